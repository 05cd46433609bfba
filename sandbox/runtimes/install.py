"""A bundle into a sandbox: runs ``installers/install.sh`` there, holds its receipt to the pin.

Two ways, one result (a private prefix and a receipt): a copy is unpacked in the sandbox, a mount is
a tree of this machine (``unpacked.py``) that the sandbox sees read-only and the prefix links to.
"""

from __future__ import annotations

import posixpath
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from pydantic import ValidationError

from sandbox.errors import CouldNotFindOut, InstallError, IntegrityError, SandboxError
from sandbox.evidence.records import InstallReceipt, VersionCheck
from sandbox.runtimes.proofs import Proofs, install_script, installer_sha256
from sandbox.runtimes.reports import Bundle

DEADLINE_S = 180.0
VersionChecked = Literal["now", "earlier"]


class Output(Protocol):
    """One stream of a command."""

    @property
    def text(self) -> str:
        """What it said."""


class Ended(Protocol):
    """How a command ended."""

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None when it was killed."""

    @property
    def stdout(self) -> Output:
        """Its standard output."""

    @property
    def stderr(self) -> Output:
        """Its standard error."""

    @property
    def timed_out(self) -> bool:
        """Whether the deadline killed it."""


class Target(Protocol):
    """The part of a sandbox that an installation needs."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def exec(self, argv: Sequence[str], *, deadline_s: float) -> Ended:
        """Run a command to its end."""

    def put(self, files: Path, dest: str) -> None:
        """Put a file of this machine, under its own name, into the folder ``dest``."""


def install(
    target: Target,
    bundle: Bundle,
    prefix: str,
    *,
    bundle_path: str | None = None,
    tree_path: str | None = None,
    proofs: Proofs | None = None,
    deadline_s: float = DEADLINE_S,
) -> InstallReceipt:
    """Install ``bundle`` at ``prefix`` and return the receipt.

    Args:
        target: a running sandbox; the installer runs as its user.
        bundle: a verified bundle of this machine.
        prefix: absolute path that does not exist yet, or holds this bundle already.
        bundle_path: where the sandbox sees the bundle's file (a read-only mount). None: it is
            copied beside the prefix, and the copy is removed again.
        tree_path: where the sandbox sees the unpacked bundle read-only: the way is "mount".
        proofs: by which an image's program, mounted, need not say its version again.
        deadline_s: after so many seconds the installer and all its children are killed.

    Raises:
        IntegrityError: the bundle in the sandbox is not the pinned one.
        InstallError: the installer refused, or its receipt is not about this bundle.
        EngineFailure: the sandbox could not be asked.
    """
    started = time.monotonic()
    where = f"{bundle.harness} {bundle.version} ({bundle.platform}) at {prefix} in {target.name}"
    run = partial(_run, target, bundle, prefix, where=where, deadline_s=deadline_s)
    if tree_path is None:
        here: AbstractContextManager[str] = (
            nullcontext(bundle_path) if bundle_path else _copied(target, bundle, prefix)
        )
        with here as path:
            receipt = run(["--bundle", path])
        check = None
    else:
        receipt, check = _mounted(partial(run, ["--tree", tree_path]), bundle, target, proofs)
    duration = round(time.monotonic() - started, 3)
    return receipt.model_copy(update={"duration_s": duration, "version_check": check})


def _mounted(
    run: Callable[..., InstallReceipt], bundle: Bundle, target: Target, proofs: Proofs | None
) -> tuple[InstallReceipt, VersionCheck | None]:
    """Install a mounted tree; its version is checked unless that was proved in such an image."""
    if proofs is None:
        return run(), None
    wanted = installer_sha256(bundle)
    known = proofs.find(bundle, wanted)
    if known is None:
        with proofs.one_at_a_time(bundle.sha256):  # the others wait for what they can then cite
            known = proofs.find(bundle, wanted)
            if known is None:
                receipt = run()
                return receipt, proofs.keep(bundle, wanted, sandbox=target.name)
    return run(version_checked="earlier"), known


def _run(
    target: Target,
    bundle: Bundle,
    prefix: str,
    source: Sequence[str],
    *,
    where: str,
    deadline_s: float,
    version_checked: VersionChecked = "now",
) -> InstallReceipt:
    """Run the installer once, and hold its receipt to what was asked for."""
    options = [*source, *_options(bundle, prefix, version_checked), "--", *bundle.version_argv]
    argv = ["sh", "-c", install_script().decode(), "install.sh", *options]
    ended = target.exec(argv, deadline_s=deadline_s)
    if ended.exit_code is None:  # killed: it could not clean up itself
        target.exec(["sh", "-c", _CLEAN_UP, "sh", prefix, bundle.sha256], deadline_s=60)
    if ended.exit_code != 0:
        raise _refused(ended, where, deadline_s)
    receipt = _parsed(ended.stdout.text, where)
    way = "mount" if source[0] == "--tree" else "copy"
    _check(receipt, bundle, prefix, where, way=way, version_checked=version_checked)
    return receipt


def _options(bundle: Bundle, prefix: str, version_checked: VersionChecked) -> list[str]:
    options = {
        "--sha256": bundle.sha256,
        "--prefix": prefix,
        "--harness": bundle.harness,
        "--version": bundle.version,
        "--platform": bundle.platform,
        "--version-output": bundle.version_output,
        "--version-compare": "first-line" if bundle.version_first_line else "all",
        "--version-checked": version_checked,
    }
    pairs = [
        *options.items(),
        *(("--version-env", f"{name}={value}") for name, value in bundle.version_env.items()),
    ]
    return [word for pair in pairs for word in pair]


@contextmanager
def _copied(target: Target, bundle: Bundle, prefix: str) -> Iterator[str]:
    folder = posixpath.join(posixpath.dirname(prefix), f".bundle-{uuid.uuid4().hex}")
    try:
        target.put(bundle.path, folder)
        yield posixpath.join(folder, bundle.path.name)
    except BaseException:
        with suppress(SandboxError):  # the first error is the one to tell
            _remove(target, folder)
        raise
    _remove(target, folder)


def _remove(target: Target, folder: str) -> None:
    ended = target.exec(["rm", "-rf", "--", folder], deadline_s=60)
    if ended.exit_code != 0:
        raise InstallError(
            f"cannot remove the bundle's copy {folder} in {target.name}:"
            f" {ended.stderr.text.strip()[-500:]}",
            cure="remove it by hand, or drop the sandbox",
        )


# Removes what a killed installer of this bundle leaves; see install.sh.
_CLEAN_UP = """
for left in "$1".installing-*; do rm -rf -- "$left"; done
[ -f "$1/.bundle-sha256" ] || exit 0
IFS= read -r recorded <"$1/.bundle-sha256" && [ "$recorded" = "$2" ] && rm -rf -- "$1"
"""

# What install.sh's exit codes ask for; 5 is an IntegrityError, the others InstallErrors.
_CURES = {
    2: "this is a mistake in how the installer was called: report it",
    3: "use the bundle of the image's own platform (`sandbox pins list`)",
    4: "add the tool to the image: bytes that cannot be verified are not installed",
    5: "run `sandbox pins verify`; nothing was installed",
    6: "give the prefix's folder space and write permission for the image's user",
    7: "the pin and the program disagree, or the image lacks what it needs: see its output above",
    8: "choose a prefix that does not exist",
    126: "the image needs a POSIX sh",
    127: "the image needs a POSIX sh",
}


def _refused(ended: Ended, where: str, deadline_s: float) -> CouldNotFindOut:
    said = ended.stderr.text.strip()[-2000:] or "no message"
    if ended.timed_out:
        return InstallError(
            f"cannot install {where}: not done within {deadline_s:.0f} s: {said}",
            cure="the machine is overloaded, or the program hangs when asked for its version",
        )
    kind = IntegrityError if ended.exit_code == 5 else InstallError
    return kind(
        f"cannot install {where}: exit code {ended.exit_code}: {said}",
        cure=_CURES.get(ended.exit_code or 0, "see the message; nothing was installed"),
    )


def _parsed(text: str, where: str) -> InstallReceipt:
    try:
        return InstallReceipt.model_validate_json(text)
    except ValidationError as error:
        raise InstallError(
            f"installing {where}: the installer's receipt is not one: {text[:500]!r}",
            cure="the image's sh or tar does not behave: try the installer there by hand",
        ) from error


def _check(receipt: InstallReceipt, bundle: Bundle, prefix: str, where: str, **asked: str) -> None:
    wanted = {
        **asked,
        "harness": bundle.harness,
        "version": bundle.version,
        "platform": bundle.platform,
        "bundle_sha256": bundle.sha256,
        "prefix": prefix,
        "version_output": bundle.version_output,
    }
    said = receipt.model_dump(include=set(wanted))
    if wrong := sorted(key for key in wanted if said[key] != wanted[key]):
        raise InstallError(
            f"installing {where}: the receipt says another {wrong[0]}: {said[wrong[0]]!r}",
            cure="the image's sh does not behave: try the installer there by hand",
        )
