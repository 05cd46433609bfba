"""Runtimes that an image brings on its PATH, held to the pin like installed ones."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sandbox.agents.contract import UnprocessableError
from sandbox.agents.ports import Place, Runtimes
from sandbox.engine.facts import ImageFacts
from sandbox.errors import InstallError
from sandbox.evidence.records import InstallReceipt
from sandbox.runtimes.library import Bundle
from sandbox.runtimes.needs import Refusal

_NOT_THERE = 93
_VERSION_S = 180.0
# PREFIX HARNESS VERSION-ARGUMENT...: a link at PREFIX to the runtime whose program is on the PATH;
# prints the digest of its bundle, then what the program says with nothing inherited.
_LINK = """
prefix=$1 harness=$2; shift 2
entry=$(command -v -- "$harness") || exit 93
while [ ! -f "${entry%/*}/../.bundle-sha256" ] && [ -h "$entry" ]; do
    link=$(ls -ld -- "$entry"); link=${link#*" -> "}
    case $link in /*) entry=$link ;; *) entry=${entry%/*}/$link ;; esac
done
root=$(CDPATH='' cd -- "${entry%/*}/.." && pwd -P) || exit 94
[ -f "$root/.bundle-sha256" ] || exit 95
cat "$root/.bundle-sha256" && ln -s -- "$root" "$prefix" || exit 96
home=$prefix.home; mkdir -- "$home" && cd / || exit 96
code=0
env -i HOME="$home" TMPDIR="$home" \\
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
    "$prefix/bin/$harness" "$@" </dev/null || code=$?
rm -rf -- "$home"
exit "$code"
"""


class PreinstalledRuntimes:
    """Runtimes that the image has on its PATH (``sandbox images bake``), held to the pin."""

    def __init__(self, runtimes: Runtimes) -> None:
        self._runtimes = runtimes

    def refusals(self, harness: str, platform: str, facts: ImageFacts) -> Sequence[Refusal]:
        """Return what an image lacks for the bundle; raises Unsupported without a pin."""
        return self._runtimes.refusals(harness, platform, facts)

    def bundle(self, harness: str, platform: str) -> Bundle:
        """Return the pinned bundle; raises Unsupported without a pin."""
        return self._runtimes.bundle(harness, platform)

    def room(self, bundle: Bundle) -> int:  # noqa: ARG002 - whatever its size
        """Return 0: the runtime is there already."""
        return 0

    def install(self, place: Place, bundle: Bundle, prefix: str) -> InstallReceipt:
        """Make ``prefix`` a link to the image's runtime, and hold that to the pin.

        Raises:
            UnprocessableError: the image has no such runtime.
            InstallError: it is not the pinned one.
        """
        started = time.monotonic()
        argv = ["sh", "-c", _LINK, "sh", prefix, bundle.harness, *bundle.version_argv]
        ended = place.exec(argv, deadline_s=_VERSION_S, cwd="/")
        if ended.exit_code == _NOT_THERE:
            raise UnprocessableError(
                f"the image of {place.name} has no {bundle.harness} on its PATH",
                cure=f"sandbox images bake {bundle.harness} IMAGE",
            )
        digest, _, printed = ended.stdout.text.rstrip("\n").partition("\n")
        if bundle.version_first_line:
            printed = printed.partition("\n")[0]
        seen = (ended.exit_code, digest, printed)
        wanted = (0, bundle.sha256, bundle.version_output)
        if seen != wanted:
            raise InstallError(
                f"the {bundle.harness} on the PATH of {place.name} is not the pinned one: exit "
                f"{ended.exit_code}, bundle {digest or 'unknown'}, version {printed!r}; "
                f"{ended.stderr.text.strip()[-500:]}",
                cure=f"sandbox images bake {bundle.harness} IMAGE",
            )
        return InstallReceipt(
            harness=bundle.harness,
            version=bundle.version,
            platform=bundle.platform,
            bundle_sha256=digest,
            prefix=prefix,
            version_output=printed,
            already_installed=True,
            duration_s=round(time.monotonic() - started, 3),
        )
