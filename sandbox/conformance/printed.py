"""What a bundle's program prints as its version, in a sandbox: before anything expects it."""

from __future__ import annotations

from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage
from sandbox.engine.limits import ReadOnlyMount
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import InstallError
from sandbox.runtimes.library import Bundle

_MOUNT = "/tmp/.sandbox-bundle.tar"  # noqa: S108 - a read-only mount inside the sandbox
_SCRIPT = """
set -eu
mkdir /tmp/tree /tmp/home
tar -xof "$1" -C /tmp/tree
shift
cd /
exec env -i HOME=/tmp/home TMPDIR=/tmp/home PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""


def printed_version(engine: Engine, image: LoadedImage, bundle: Bundle, owner: Ownership) -> str:
    """Run the bundle's version command in a sandbox of ``image`` and return what it prints.

    Raises:
        InstallError: it fails, prints nothing, or does not name the bundle's version.
        EngineFailure: the sandbox could not be asked.
    """
    mounts = [ReadOnlyMount(source=bundle.path, target=_MOUNT)]
    with Sandbox(engine, image.ref, owner=owner, mounts=mounts) as sandbox:
        variables = [f"{name}={value}" for name, value in sorted(bundle.version_env.items())]
        program = f"/tmp/tree/bin/{bundle.harness}"  # noqa: S108 - inside the sandbox
        argv = ["sh", "-c", _SCRIPT, "sh", _MOUNT, *variables, program, *bundle.version_argv]
        ended = sandbox.exec(argv, deadline_s=180)
    said = ended.stdout.text.rstrip("\n")
    if bundle.version_first_line:
        said = said.partition("\n")[0]
    if ended.exit_code != 0 or bundle.version not in said:
        raise InstallError(
            f"{bundle.harness} {bundle.version} on {image.name} prints {said!r} as its version,"
            f" exit code {ended.exit_code}: {ended.stderr.text.strip()[-1000:]}",
            cure="the new version needs another recipe: edit its runtime table in pins.toml",
        )
    return said
