"""One image to be made for one architecture on one host: its names, its place, its voice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sandbox.engine.imagebuild.commands import Host
from sandbox.engine.imagebuild.definition import Arch, ImageDef, Route
from sandbox.engine.imagebuild.packages import Package, packages_sha256
from sandbox.progress import Progress, Step

LABELS = "sandbox.image."  # not sandbox.project: containers inherit an image's labels
RECIPE_LABEL = f"{LABELS}recipe_sha256"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every step of making an image needs to know."""

    definition: ImageDef
    arch: Arch
    host: Host
    progress: Progress

    @property
    def title(self) -> str:
        """Name the image in messages."""
        return f"image {self.definition.name}"

    def say(self, line: str) -> None:
        """Tell people something about this image."""
        self.progress.say(f"{self.title}: {line}")

    def step(self, label: str) -> AbstractContextManager[Step]:
        """Show ``label`` as under way for this image."""
        return self.progress.step(f"{self.title}: {label}")

    def recipe_sha256(self, route: Route) -> str:
        """Hash what decides the image's bytes on the way ``route``."""
        return self.definition.recipe_sha256(self.arch, route)

    def reference(self, route: Route) -> str:
        """Give the name and tag that an engine knows the image by."""
        return f"sandbox/{self.definition.name}:{self.recipe_sha256(route)[:12]}"

    def home(self, route: Route) -> Path:
        """Say which folder of the cache belongs to the image; its name holds the recipe's hash."""
        short = self.recipe_sha256(route)[:12]
        return self.host.images / f"{self.definition.name}-{self.arch}-{short}"

    def labels(self, route: Route, packages: Sequence[Package] = ()) -> dict[str, str]:
        """Give the labels that say what the image is and what it was made from."""
        said = {
            "project": "sandbox",
            "name": self.definition.name,
            "libc": self.definition.libc,
            "libc_version": self.definition.libc_version,
            "arch": self.arch,
            "platform": self.definition.platform(self.arch),
            "recipe_sha256": self.recipe_sha256(route),
        }
        if packages:
            said["packages_sha256"] = packages_sha256(packages)
        return {f"{LABELS}{key}": value for key, value in said.items()}
