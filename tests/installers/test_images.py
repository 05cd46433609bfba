"""The installer in real sandboxes of both libcs: copied and mounted bundles, and all refusals."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.engine.images import LoadedImage
from sandbox.engine.limits import Limits, ReadOnlyMount
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import InstallError, IntegrityError
from sandbox.evidence.records import InstallReceipt
from sandbox.runtimes.install import install
from sandbox.runtimes.library import Bundle

pytestmark = pytest.mark.docker

PREFIX = "/opt/harness/runtime"
Start = Callable[..., Sandbox]
Tiny = Callable[..., Bundle]


def left(sandbox: Sandbox, folder: str = "/opt/harness") -> list[str]:
    """Return what lies beside the prefix, the prefix included."""
    script = '[ ! -d "$1" ] || ls -A "$1"'
    ended = sandbox.exec(["sh", "-c", script, "sh", folder], deadline_s=30)
    assert ended.exit_code == 0, ended.stderr.text
    return ended.stdout.text.split()


def refused(
    sandbox: Sandbox,
    bundle: Bundle,
    said: str,
    *,
    error: type[Exception] = InstallError,
    prefix: str = PREFIX,
    beside: tuple[str, ...] = (),
) -> None:
    with pytest.raises(error, match=said) as caught:
        install(sandbox, bundle, prefix, deadline_s=60)
    assert getattr(caught.value, "cure", None)
    assert bundle.harness in str(caught.value)
    assert sandbox.name in str(caught.value)
    assert left(sandbox, str(Path(prefix).parent)) == list(beside)


def test_copied(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    box, bundle = sandbox(), tiny(image.platform)
    receipt = install(box, bundle, PREFIX)
    assert receipt == InstallReceipt(
        harness="tool",
        version="1.2.3",
        platform=image.platform,
        bundle_sha256=bundle.sha256,
        prefix=PREFIX,
        version_output="tool 1.2.3",
        already_installed=False,
        duration_s=receipt.duration_s,
    )
    assert receipt.duration_s is not None
    assert left(box) == ["runtime"]
    assert box.exec([f"{PREFIX}/bin/tool"], deadline_s=30, env={"TMPDIR": "/tmp"}).exit_code == 0
    assert install(box, bundle, PREFIX).already_installed
    assert left(box) == ["runtime"]


def test_mounted(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    bundle = tiny(image.platform)
    box = sandbox(mounts=[ReadOnlyMount(source=bundle.path, target="/bundle.tar")])
    assert not install(box, bundle, PREFIX, bundle_path="/bundle.tar").already_installed
    assert left(box) == ["runtime"]


def test_a_user_without_rights_installs_where_it_may(
    sandbox: Start, image: LoadedImage, tiny: Tiny
) -> None:
    bundle = tiny(image.platform)
    box = sandbox(
        user="1234:1234", mounts=[ReadOnlyMount(source=bundle.path, target="/bundle.tar")]
    )
    assert not install(box, bundle, "/tmp/copied/runtime").already_installed
    assert not install(
        box, bundle, "/tmp/seen/runtime", bundle_path="/bundle.tar"
    ).already_installed
    with pytest.raises(InstallError, match="cannot make /opt/harness"):
        install(box, bundle, PREFIX, bundle_path="/bundle.tar")
    assert left(box) == []


def test_one_byte_changed(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    bundle = tiny(image.platform)
    with bundle.path.open("r+b") as stream:
        stream.seek(700)
        stream.write(b"\xff")
    refused(sandbox(), bundle, "pinned is", error=IntegrityError)


def test_truncated(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    bundle = tiny(image.platform)
    os.truncate(bundle.path, bundle.size - 512)
    refused(sandbox(), bundle, "pinned is", error=IntegrityError)


def test_one_digit_of_the_lock_changed(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    bundle = tiny(image.platform)
    other = ("0" if bundle.sha256[0] != "0" else "1") + bundle.sha256[1:]
    refused(
        sandbox(),
        bundle.model_copy(update={"sha256": other}),
        "pinned is",
        error=IntegrityError,
    )


def test_the_other_libc(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    other = {"linux-x64-gnu": "linux-x64-musl", "linux-x64-musl": "linux-x64-gnu"}
    refused(sandbox(), tiny(other[image.platform]), "this image has no /lib")


def test_another_architecture(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    refused(sandbox(), tiny(image.platform.replace("x64", "arm64")), "this machine is x86_64")


def test_another_version(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    bundle = tiny(image.platform, version_output="tool 1.2.4")
    refused(sandbox(), bundle, "printed 'tool 1.2.3'")


def test_no_hashing_tool(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    box = sandbox(env={"PATH": "/few"})
    script = (
        'mkdir /few; for t in sh uname env mkdir mv rm tar ls; do ln -s "$(command -v $t)" /few/$t;'
        " done"
    )
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    made = box.exec(["/bin/sh", "-c", script], deadline_s=30, env={"PATH": path})
    assert made.exit_code == 0, made.stderr.text
    refused(box, tiny(image.platform), "nothing can be verified")


def test_a_taken_prefix(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    box, bundle = sandbox(), tiny(image.platform)
    install(box, bundle, PREFIX)
    other = tiny(image.platform, extra={"A": b"other content"})
    refused(box, other, "holds another bundle", beside=("runtime",))
    assert install(box, bundle, PREFIX).already_installed


def test_a_target_that_cannot_be_written(
    sandbox: Start, image: LoadedImage, tiny: Tiny, tmp_path: Path
) -> None:
    bundle = tiny(image.platform)
    (tmp_path / "frozen").mkdir()
    box = sandbox(
        mounts=[
            ReadOnlyMount(source=bundle.path, target="/bundle.tar"),
            ReadOnlyMount(source=tmp_path / "frozen", target="/frozen"),
        ]
    )
    with pytest.raises(InstallError, match="cannot write to /frozen"):
        install(box, bundle, "/frozen/runtime", bundle_path="/bundle.tar")
    assert left(box, "/frozen") == []


def test_a_disk_that_is_full(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    bundle = tiny(image.platform, extra={"big": bytes(3 << 20)})
    box = sandbox(
        limits=Limits(tmp_mib=2),
        mounts=[ReadOnlyMount(source=bundle.path, target="/bundle.tar")],
    )
    with pytest.raises(InstallError, match="disk full"):
        install(box, bundle, "/tmp/harness/runtime", bundle_path="/bundle.tar")
    assert left(box, "/tmp/harness") == []


HANGS = '#!/bin/sh\necho started >"$HOME/../started"\nsleep 600\n'


def test_a_program_that_hangs(sandbox: Start, image: LoadedImage, tiny: Tiny) -> None:
    box, bundle = sandbox(), tiny(image.platform, program=HANGS)
    with pytest.raises(InstallError, match="not done within 3 s"):
        install(box, bundle, PREFIX, deadline_s=3)
    assert left(box) == []
    assert not [p for p in box.processes() if "sleep" in str(p)]


SLOW_TAR = """mkdir /shim
cat >/shim/tar <<'END'
#!/bin/sh
if [ "$1" = -xof ] && [ -e /shim/slow ]; then
    : >"$4/half"
    sleep 60
fi
PATH=${PATH#/shim:}
exec tar "$@"
END
chmod +x /shim/tar
: >/shim/slow
"""

KILL = """until ls /opt/harness/*.installing-*/tree/half; do sleep 0.1; done >/dev/null 2>&1
for folder in /opt/harness/*.installing-*; do kill -9 "${folder##*-}"; done
rm /shim/slow
"""


def test_kill_9_while_unpacking_and_once_more(
    sandbox: Start, image: LoadedImage, tiny: Tiny
) -> None:
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    box, bundle = sandbox(env={"PATH": f"/shim:{path}"}), tiny(image.platform)
    made = box.exec(["sh", "-c", SLOW_TAR], deadline_s=30)
    assert made.exit_code == 0, made.stderr.text
    killer = threading.Thread(
        target=box.exec, args=(["sh", "-c", KILL],), kwargs={"deadline_s": 30}
    )
    killer.start()
    with pytest.raises(InstallError, match="exit code 137"):
        install(box, bundle, PREFIX, deadline_s=30)
    killer.join()
    (sibling,) = left(box)
    assert sibling.startswith("runtime.installing-")  # nobody could clean up ...
    assert not install(box, bundle, PREFIX).already_installed
    assert left(box) == ["runtime"]  # ... but the next one does
