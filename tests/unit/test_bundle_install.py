"""The host's side of an installation, held against a sandbox that answers what it likes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.errors import EngineFailure, InstallError, IntegrityError, SandboxError
from sandbox.runtimes.install import install
from sandbox.runtimes.library import Bundle
from sandbox.runtimes.proofs import Proofs

PREFIX = "/opt/harness/runtime"
BUNDLE = Bundle(
    harness="tool",
    version="1.2.3",
    platform="linux-x64-musl",
    path=Path("/cache/abc.tar"),
    sha256="a" * 64,
    size=10,
    version_argv=("--version", "-q"),
    version_output="tool 1.2.3",
)
RECEIPT = {
    "harness": "tool",
    "version": "1.2.3",
    "platform": "linux-x64-musl",
    "bundle_sha256": "a" * 64,
    "prefix": PREFIX,
    "version_output": "tool 1.2.3",
    "already_installed": False,
}


@dataclass
class Text:
    text: str = ""


@dataclass
class Answer:
    exit_code: int | None = 0
    stdout: Text = field(default_factory=Text)
    stderr: Text = field(default_factory=Text)
    timed_out: bool = False


def answer(
    code: int | None = 0, *, out: object = None, err: str = "", timed_out: bool = False
) -> Answer:
    text = out if isinstance(out, str) else json.dumps(out if out is not None else RECEIPT)
    return Answer(code, Text(text), Text(err), timed_out)


COPIED = {"way": "copy", "version_checked": "now", "version_check": None}
MOUNTED = answer(out=RECEIPT | {"way": "mount"})
CITED = answer(out=RECEIPT | {"way": "mount", "version_checked": "earlier"})


@dataclass
class FakeSandbox:
    """Answers the installer with ``installer``, everything else with ``other``."""

    installer: Answer = field(default_factory=answer)
    other: Answer = field(default_factory=Answer)
    put_fails: bool = False
    name: str = "box"
    ran: list[list[str]] = field(default_factory=list)
    had: list[tuple[Path, str]] = field(default_factory=list)

    def exec(self, argv: Sequence[str], *, deadline_s: float) -> Answer:
        assert deadline_s > 0
        self.ran.append(list(argv))
        return self.installer if "install.sh" in argv else self.other

    def put(self, files: Path, dest: str) -> None:
        self.had.append((files, dest))
        if self.put_fails:
            raise EngineFailure("no space")


def test_a_mounted_bundle_is_not_copied() -> None:
    box = FakeSandbox()
    receipt = install(box, BUNDLE, PREFIX, bundle_path="/mnt/b.tar")
    assert box.had == []
    (argv,) = box.ran
    assert argv[:2] == ["sh", "-c"]
    assert argv[4:6] == ["--bundle", "/mnt/b.tar"]
    assert argv[-3:] == ["--", "--version", "-q"]
    assert receipt.duration_s is not None
    assert receipt.model_dump(exclude={"duration_s"}) == RECEIPT | COPIED


def test_a_mounted_tree_is_linked_and_its_program_cited_the_second_time(tmp_path: Path) -> None:
    proofs = Proofs(folder=tmp_path, image_id="sha256:1")
    first, second = FakeSandbox(MOUNTED), FakeSandbox(CITED, name="other box")
    now = install(first, BUNDLE, PREFIX, tree_path="/tree", proofs=proofs)
    later = install(second, BUNDLE, PREFIX, tree_path="/tree", proofs=proofs)
    assert [box.had for box in (first, second)] == [[], []]
    for box, checked in ((first, "now"), (second, "earlier")):
        (argv,) = box.ran
        assert argv[4:6] == ["--tree", "/tree"]
        assert argv[argv.index("--version-checked") + 1] == checked
    assert (now.way, now.version_checked) == ("mount", "now")
    assert (later.way, later.version_checked) == ("mount", "earlier")
    assert later.version_check is not None
    assert (later.version_check, later.version_check.sandbox) == (now.version_check, "box")


def test_what_was_refused_proves_nothing(tmp_path: Path) -> None:
    proofs = Proofs(folder=tmp_path, image_id="sha256:1")
    with pytest.raises(InstallError):
        install(FakeSandbox(answer(7)), BUNDLE, PREFIX, tree_path="/tree", proofs=proofs)
    box = FakeSandbox(MOUNTED)
    install(box, BUNDLE, PREFIX, tree_path="/tree", proofs=proofs)
    assert "now" in box.ran[0]


def test_without_proofs_the_program_runs_each_time() -> None:
    for _ in range(2):
        receipt = install(FakeSandbox(MOUNTED), BUNDLE, PREFIX, tree_path="/tree")
        assert (receipt.version_checked, receipt.version_check) == ("now", None)


def test_the_variables_of_a_version_check_are_named_one_by_one() -> None:
    box = FakeSandbox()
    bundle = BUNDLE.model_copy(update={"version_env": {"A": "1", "B": "x y"}})
    install(box, bundle, PREFIX, bundle_path="/mnt/b.tar")
    (argv,) = box.ran
    assert argv[-7:] == ["--version-env", "A=1", "--version-env", "B=x y", *argv[-3:]]


def copied_to(box: FakeSandbox) -> str:
    ((source, folder),) = box.had
    assert source == BUNDLE.path
    assert folder.startswith("/opt/harness/.bundle-")
    return folder


def test_a_copied_bundle_is_removed_again() -> None:
    box = FakeSandbox()
    install(box, BUNDLE, PREFIX)
    folder = copied_to(box)
    assert box.ran[0][5] == f"{folder}/abc.tar"
    assert box.ran[1] == ["rm", "-rf", "--", folder]


def test_a_copy_is_removed_when_the_installer_refuses() -> None:
    box = FakeSandbox(installer=answer(5, err="install.sh: error: pinned is"))
    with pytest.raises(IntegrityError):
        install(box, BUNDLE, PREFIX)
    assert box.ran[-1] == ["rm", "-rf", "--", copied_to(box)]


def test_half_a_copy_is_removed_and_the_first_error_told() -> None:
    box = FakeSandbox(put_fails=True, other=answer(1))
    with pytest.raises(EngineFailure, match="no space"):
        install(box, BUNDLE, PREFIX)
    assert box.ran == [["rm", "-rf", "--", copied_to(box)]]


def test_a_copy_that_cannot_be_removed_is_an_error() -> None:
    with pytest.raises(InstallError, match="cannot remove the bundle's copy"):
        install(FakeSandbox(other=answer(1, err="busy")), BUNDLE, PREFIX)


@pytest.mark.parametrize(
    ("code", "error", "cure"),
    [
        (2, InstallError, "report it"),
        (3, InstallError, "own platform"),
        (4, InstallError, "add the tool"),
        (5, IntegrityError, "pins verify"),
        (6, InstallError, "space and write permission"),
        (7, InstallError, "disagree"),
        (8, InstallError, "does not exist"),
        (99, InstallError, "see the message"),
    ],
)
def test_each_refusal_says_what_where_why_and_the_cure(
    code: int, error: type[SandboxError], cure: str
) -> None:
    box = FakeSandbox(installer=answer(code, out="", err="install.sh: error: the reason"))
    with pytest.raises(error) as caught:
        install(box, BUNDLE, PREFIX, bundle_path="/b.tar")
    for word in ("tool 1.2.3", "linux-x64-musl", PREFIX, "box", "the reason", cure):
        assert word in str(caught.value)


def test_a_killed_installer_is_cleaned_up_after() -> None:
    box = FakeSandbox(installer=answer(None, out="", timed_out=True))
    with pytest.raises(InstallError, match="not done within 7 s"):
        install(box, BUNDLE, PREFIX, bundle_path="/b.tar", deadline_s=7)
    assert box.ran[1][-2:] == [PREFIX, BUNDLE.sha256]


def lies(key: str, value: object) -> Callable[[], Answer]:
    return lambda: answer(out=RECEIPT | {key: value})


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: answer(out=""), id="nothing"),
        pytest.param(lambda: answer(out="tool 1.2.3"), id="no-json"),
        pytest.param(lambda: answer(out=json.dumps(RECEIPT) * 2), id="two"),
        pytest.param(lies("surprise", 1), id="unknown-key"),
        pytest.param(lies("already_installed", "maybe"), id="type"),
        pytest.param(lies("harness", "other"), id="harness"),
        pytest.param(lies("version", "9"), id="version"),
        pytest.param(lies("platform", "linux-x64-gnu"), id="platform"),
        pytest.param(lies("bundle_sha256", "b" * 64), id="sha256"),
        pytest.param(lies("prefix", "/else"), id="prefix"),
        pytest.param(lies("version_output", "tool 9"), id="output"),
        pytest.param(lies("way", "mount"), id="way"),
        pytest.param(lies("version_checked", "earlier"), id="not-run"),
    ],
)
def test_a_receipt_that_is_not_about_this_bundle_is_refused(made: Callable[[], Answer]) -> None:
    with pytest.raises(InstallError, match="receipt"):
        install(FakeSandbox(installer=made()), BUNDLE, PREFIX, bundle_path="/b.tar")
