"""Which folders of the image cache the present recipes name."""

from __future__ import annotations

from pathlib import Path

from sandbox.engine.imagebuild.commands import Host
from sandbox.engine.imagebuild.definition import DiskRecipe, image_definitions
from sandbox.engine.imagebuild.job import Job
from sandbox.progress import PlainProgress


def image_folder() -> Path:
    """Return where built images are kept."""
    return Host().images


def needed_images() -> set[Path]:
    """Return the folders of the images that the definitions of today make, on any architecture."""
    host, quiet = Host(), PlainProgress(quiet=True)
    return {
        Job(definition=one, arch=arch, host=host, progress=quiet).home("recipe")
        for one in image_definitions().values()
        for arch in one.architectures
        if one.recipe is not None
    }


def needed_wheels() -> set[Path]:
    """Return the folders of the wheels that carry the disks of today's images."""
    return {
        image_folder() / "wheels" / pin.sha256
        for one in image_definitions().values()
        if isinstance(one.recipe, DiskRecipe)
        for pin in one.recipe.wheels.values()
    }
