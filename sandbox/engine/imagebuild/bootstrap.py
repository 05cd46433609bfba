"""Make a Debian root file system with mmdebstrap: its tools, its mirror, its scratch space.

As root the whole build happens in a mount and a pid namespace of its own, on a tmpfs that exists
only there: however the build ends, no process, mount or scratch file of it is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox.engine.imagebuild.commands import (
    Completed,
    Host,
    ensure_packages,
    is_full,
    no_space,
    tool_env,
)
from sandbox.engine.imagebuild.definition import BootstrapRecipe, arch_of
from sandbox.engine.imagebuild.job import Job
from sandbox.engine.imagebuild.sources import (
    CREDENTIALS,
    SETTINGS,
    TARGETS,
    credential_settings,
    forwarded_settings,
    lacks_origins,
    parse_targets,
    sources_to_try,
)
from sandbox.engine.imagebuild.tartree import tar_entries
from sandbox.engine.imagebuild.tree import Entry, Selection
from sandbox.errors import FetchError, PrerequisiteMissing, SandboxError, Unsupported

# What differs between two builds, comes from the building host, or serves only apt's next run.
SELECTION = Selection(
    drop=(
        "dev/*",
        "proc/*",
        "sys/*",
        "run/*",
        "tmp/*",
        "var/tmp/*",
        "boot/*",
        "lost+found",
        ".dockerenv",
        "etc/hostname",  # the engine mounts its own over these three
        "etc/hosts",
        "etc/resolv.conf",
        "etc/machine-id",
        "var/lib/dbus/machine-id",
        "var/lib/systemd/random-seed",
        "etc/.pwd.lock",
        "etc/apt/sources.list",  # the building host's mirror
        "etc/apt/sources.list.d/*",
        "etc/apt/apt.conf.d/00sandbox-build",
        "etc/apt/apt.conf.d/99mmdebstrap",
        "etc/apt/preferences.d/00sandbox-build",
        "etc/dpkg/dpkg.cfg.d/00sandbox-build",
        "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
        "var/lib/apt/lists/*",
        "var/cache/apt/*",
        "var/cache/ldconfig/*",
        "var/cache/debconf/*-old",
        "var/lib/dpkg/*-old",
        "var/log/*.log",
        "var/log/apt/*",
    ),
    keep=("run/lock",),  # /var/lock points to it (Debian policy 9.1.4)
)

_TOOL = "mmdebstrap"
_DEADLINE_S = 1800.0
_SCRATCH_MIB = 2048  # a minbase takes 400; it is a limit, not what is used
_QUICK_S = 60.0
_UPDATE_S = 600.0
_SETUP = (
    'cd "$1/etc" && mkdir -p apt/apt.conf.d apt/preferences.d dpkg/dpkg.cfg.d && '
    'printf %s "$SANDBOX_APT_CONF" >apt/apt.conf.d/00sandbox-build && '
    'printf %s "$SANDBOX_APT_PINS" >apt/preferences.d/00sandbox-build && '
    "echo force-unsafe-io >dpkg/dpkg.cfg.d/00sandbox-build"  # the tree is thrown away
)
# mmdebstrap's own default mirror comes with these: on every host only the suite itself may count.
_POCKETS = ("updates", "security")
_PIN = "Package: *\nPin: release n={}\nPin-Priority: -1\n\n"
_ON_TMPFS = (
    'set -eu; mount -t tmpfs -o "size=$1,mode=0755" sandbox-image "$2"; '
    'TMPDIR=$2; export TMPDIR; shift 2; exec "$@"'
)
_ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL")
_MOUNT_POINTS = ("/dev/shm", "/mnt", "/media")  # noqa: S108 - only ever hidden by our own tmpfs


@contextmanager
def bootstrapped(job: Job, recipe: BootstrapRecipe, folder: Path) -> Iterator[tuple[Entry, ...]]:
    """Give the entries of the root file system that ``recipe`` makes; readable while inside.

    Args:
        job: the image, its architecture (it must be the host's), the host.
        recipe: suite, variant and packages.
        folder: an empty folder for the tar file, on a disk with space.

    Raises:
        PrerequisiteMissing: mmdebstrap or the keyring is missing and cannot be installed.
        FetchError: mmdebstrap failed; the message has its last words.
        CacheUnusable: the disk is full.
        Unsupported: another architecture than the host's.
    """
    if arch_of(job.host.machine) != job.arch:
        raise Unsupported(
            f"{job.title}: mmdebstrap on {job.host.machine} makes no image for {job.arch}",
            cure="build on a machine of the engine's architecture",
        )
    _ensure_tools(job, recipe)
    target = folder / "rootfs.tar"
    failures: list[Completed] = []
    with job.step(f"packages by {_TOOL}"):
        for lines in _mirrors(recipe, job.host):
            done = _run(job, recipe, target, lines)
            if done.code == 0:
                break
            failures.append(done)
        else:
            raise _failure(job, failures[0], folder)
    with target.open("rb") as stream, tar_entries(stream) as entries:
        yield entries


def _ensure_tools(job: Job, recipe: BootstrapRecipe) -> None:
    host = job.host
    missing = [] if host.commands.which(_TOOL) else [_TOOL]
    missing += [] if host.exists(Path(recipe.keyring)) else [recipe.keyring_package]
    if missing:
        ensure_packages(host, missing, need=job.title, progress=job.progress)
    if host.commands.which(_TOOL) is None or not host.exists(Path(recipe.keyring)):
        raise PrerequisiteMissing(
            f"{job.title} needs {_TOOL} and {recipe.keyring}",
            cure=f"install them as root: apt-get install {_TOOL} {recipe.keyring_package}",
        )


def _mirrors(recipe: BootstrapRecipe, host: Host) -> tuple[tuple[str, ...], ...]:
    env = tool_env(host)
    targets = parse_targets(host.run(TARGETS, env=env, deadline_s=_QUICK_S).stdout)
    if lacks_origins(targets) and host.commands.is_root():
        host.run(["apt-get", "-q", "update"], env=env, deadline_s=_UPDATE_S)
        targets = parse_targets(host.run(TARGETS, env=env, deadline_s=_QUICK_S).stdout)
    return sources_to_try(targets, suite=recipe.suite, components=recipe.components)


def _run(job: Job, recipe: BootstrapRecipe, target: Path, lines: Sequence[str]) -> Completed:
    env = tool_env(
        job.host,
        DEBIAN_FRONTEND="noninteractive",
        SOURCE_DATE_EPOCH=str(job.definition.config.epoch),
        SANDBOX_APT_CONF=_apt_settings(job.host),
        SANDBOX_APT_PINS="".join(_PIN.format(f"{recipe.suite}-{name}") for name in _POCKETS),
    )
    argv = [*_isolation(target, job.host), *_command(recipe, target, lines)]
    target.unlink(missing_ok=True)
    return job.host.run(argv, env=env, deadline_s=_DEADLINE_S)


def _command(recipe: BootstrapRecipe, target: Path, lines: Sequence[str]) -> list[str]:
    include = [f"--include={','.join(recipe.include)}"] if recipe.include else []
    return [
        _TOOL,
        f"--variant={recipe.variant}",
        f"--components={','.join(recipe.components)}",
        f"--keyring={recipe.keyring}",  # no other key can sign what goes into the image
        "--format=tar",
        f"--setup-hook={_SETUP}",
        *include,
        recipe.suite,
        str(target),
        *lines,
    ]


def _apt_settings(host: Host) -> str:
    env = tool_env(host)
    settings = forwarded_settings(host.run(SETTINGS, env=env, deadline_s=_QUICK_S).stdout)
    return settings + credential_settings(
        host.run(CREDENTIALS, env=env, deadline_s=_QUICK_S).stdout
    )


def _isolation(target: Path, host: Host) -> list[str]:
    """Give the words before mmdebstrap that keep what it makes to itself.

    Without root, or where namespaces are refused, mmdebstrap isolates and cleans up by itself.
    """
    if not host.commands.is_root():
        return []
    if host.run([*_ISOLATED, "true"], env=tool_env(host), deadline_s=_QUICK_S).code != 0:
        return ["env", f"TMPDIR={target.parent}"]
    point = _mount_point(target)
    if point is None or not _has_memory(_SCRATCH_MIB):
        return [*_ISOLATED, "env", f"TMPDIR={target.parent}"]
    return [*_ISOLATED, "sh", "-c", _ON_TMPFS, "sh", f"{_SCRATCH_MIB}m", point]


def _mount_point(target: Path) -> str | None:
    """Choose a folder that every user may enter and that does not hide ``target``."""
    found = (point for point in _MOUNT_POINTS if Path(point).is_dir())
    return next((point for point in found if not target.is_relative_to(point)), None)


def _has_memory(mib: int) -> bool:
    """Say whether the machine has memory for a tmpfs of ``mib``, and half as much beside it."""
    rows = Path("/proc/meminfo").read_text().splitlines()
    available = next((int(row.split()[1]) for row in rows if row.startswith("MemAvailable:")), 0)
    return available << 10 >= 1.5 * (mib << 20)


def _failure(job: Job, done: Completed, folder: Path) -> SandboxError:
    if is_full(folder):
        return no_space(job.title, folder)
    ended = "did not end in time" if done.code is None else f"failed with exit code {done.code}"
    return FetchError(
        f"{job.title}: {_TOOL} {ended}: {done.tail}",
        cure="see its last lines above: is the host's Debian mirror reachable (apt-get update)?",
        retryable=True,
    )
