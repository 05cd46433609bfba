"""Bundles unpacked on this machine and seen read-only in sandboxes; what a kill leaves."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.engine.images import LoadedImage
from sandbox.engine.limits import ReadOnlyMount
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import InstallError, IntegrityError
from sandbox.progress import PlainProgress
from sandbox.runtimes.install import install
from sandbox.runtimes.proofs import Proofs
from sandbox.runtimes.reports import Bundle
from sandbox.runtimes.unpacked import check_unpacked, ensure_unpacked

QUIET = PlainProgress(quiet=True)
PREFIX, TREE = "/opt/harness/runtime", "/tmp/.runtime"
Start = Callable[..., Sandbox]
Tiny = Callable[..., Bundle]


@pytest.fixture
def bundle(tiny: Tiny, image: LoadedImage) -> Bundle:
    return tiny(image.platform)


@pytest.fixture
def tree(bundle: Bundle, tmp_path: Path) -> Path:
    return ensure_unpacked(bundle, tmp_path / "trees" / bundle.sha256, QUIET)


@pytest.fixture
def shown(tree: Path) -> list[ReadOnlyMount]:
    return [ReadOnlyMount(source=tree, target=TREE)]


def listing(box: Sandbox, prefix: str) -> str:
    """Every file of a prefix with its mode and content's hash, links followed at the top only."""
    script = (
        'cd "$1" && find . -type f -exec ls -ld {} + | while read -r mode _ _ _ _ _ _ _ name; do '
        'echo "$mode $name $(sha256sum <"$name")"; done; find . -type l -exec ls -l {} + | '
        "sed 's/.* [.]/./'"
    )
    ended = box.exec(["sh", "-c", script, "sh", prefix], deadline_s=30)
    assert ended.exit_code == 0, ended.stderr.text
    return "\n".join(sorted(ended.stdout.text.splitlines()))


@pytest.mark.docker
@pytest.mark.parametrize("user", [None, "1234:1234"], ids=["image's", "nobody's"])
def test_both_ways_end_in_the_same_prefix(
    sandbox: Start, bundle: Bundle, tree: Path, shown: list[ReadOnlyMount], user: str | None
) -> None:
    box = sandbox(mounts=shown, user=user)
    folder = "/tmp/s"
    mounted = install(box, bundle, f"{folder}/mounted", tree_path=TREE)
    copied = install(box, bundle, f"{folder}/copied")
    assert listing(box, mounted.prefix) == listing(box, copied.prefix)
    differ = {"prefix", "way", "duration_s"}
    assert mounted.model_dump(exclude=differ) == copied.model_dump(exclude=differ)
    assert (mounted.way, copied.way) == ("mount", "copy")
    for prefix in (mounted.prefix, copied.prefix):
        ended = box.exec([f"{prefix}/bin/tool"], deadline_s=30, env={"TMPDIR": "/tmp"})
        assert ended.stdout.text == "tool 1.2.3\n"
    write = 'for f in "$1" "$1/bin"; do (: >"$f/x") 2>/dev/null && echo wrote; done; true'
    said = box.exec(["sh", "-c", write, "sh", mounted.prefix], deadline_s=30).stdout.text
    assert said == ""
    assert install(box, bundle, mounted.prefix, tree_path=TREE).already_installed
    assert box.exec(["rm", "-rf", folder], deadline_s=30).exit_code == 0
    assert check_unpacked(bundle.path, bundle.sha256, tree.parent) is None


@pytest.mark.docker
def test_the_next_sandbox_of_the_image_cites_the_first(
    sandbox: Start, bundle: Bundle, shown: list[ReadOnlyMount], image: LoadedImage, tmp_path: Path
) -> None:
    proofs = Proofs(folder=tmp_path / "proofs", image_id=image.image_id)
    first, second = sandbox(mounts=shown), sandbox(mounts=shown)
    now = install(first, bundle, PREFIX, tree_path=TREE, proofs=proofs)
    later = install(second, bundle, PREFIX, tree_path=TREE, proofs=proofs)
    assert (now.version_checked, later.version_checked) == ("now", "earlier")
    assert later.version_check == now.version_check
    assert later.version_check is not None
    assert later.version_check.sandbox == first.name


@pytest.mark.docker
def test_a_program_of_another_version_is_refused_each_time(
    sandbox: Start, tiny: Tiny, image: LoadedImage, tmp_path: Path
) -> None:
    bundle = tiny(image.platform, version_output="tool 9")
    tree = ensure_unpacked(bundle, tmp_path / "trees" / bundle.sha256, QUIET)
    box = sandbox(mounts=[ReadOnlyMount(source=tree, target=TREE)])
    proofs = Proofs(folder=tmp_path / "proofs", image_id=image.image_id)
    for _ in range(2):
        with pytest.raises(InstallError, match="printed 'tool 1.2.3'"):
            install(box, bundle, PREFIX, tree_path=TREE, proofs=proofs)
    assert box.exec(["ls", "-A", "/opt/harness"], deadline_s=30).stdout.text == ""


@pytest.mark.docker
def test_trees_that_cannot_be_trusted_are_refused(
    sandbox: Start, bundle: Bundle, shown: list[ReadOnlyMount]
) -> None:
    box = sandbox(mounts=shown)
    other = bundle.model_copy(update={"sha256": "0" * 64})
    copied = install(box, bundle, "/opt/harness/copied").prefix
    for pinned, path, said in (
        (other, TREE, "is of bundle"),
        (bundle, "/nowhere", "there is no tree"),
        (bundle, "/etc", "is of bundle ''"),
        (bundle, copied, "can be written to"),
    ):
        with pytest.raises(IntegrityError, match=said):
            install(box, pinned, PREFIX, tree_path=path)
    with pytest.raises(InstallError, match="is no link to"):
        install(box, bundle, copied, tree_path=TREE)
    assert box.exec(["ls", "-A", "/opt/harness"], deadline_s=30).stdout.text == "copied\n"
    assert box.exec(["ls", "-A", copied], deadline_s=30).stdout.text.count("writable") == 0


KILLED = """
import sys, time
from contextlib import nullcontext
from pathlib import Path
from sandbox.runtimes.reports import Bundle
from sandbox.runtimes.unpacked import ensure_unpacked

class Slow:
    def step(self, label):
        return nullcontext(self)
    def total(self, amount):
        pass
    def advance(self, amount):
        if not amount:  # at the end of the file: all is unpacked, nothing published
            print("unpacked", flush=True)
            time.sleep(60)
    def note(self, text):
        pass

bundle = Bundle.model_validate_json(sys.argv[1])
ensure_unpacked(bundle, Path(sys.argv[2]), Slow())
"""


def test_a_killed_unpacking_leaves_nothing_wrong(tiny: Tiny, tmp_path: Path) -> None:
    bundle = tiny("linux-x64-gnu")
    folder = tmp_path / "trees" / bundle.sha256
    argv = [sys.executable, "-c", KILLED, bundle.model_dump_json(), str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "unpacked\n"
        process.send_signal(signal.SIGKILL)
    assert not folder.exists()
    assert len(list(folder.parent.glob(".*.tmp-*"))) == 1
    ensure_unpacked(bundle, folder, QUIET)
    assert list(folder.parent.glob(".*.tmp-*")) == []
    assert check_unpacked(bundle.path, bundle.sha256, folder, rehash=True) is None
