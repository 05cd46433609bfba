"""install.sh in every POSIX shell of this machine: what it does, and all that it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.evidence.records import InstallReceipt
from sandbox.progress import PlainProgress
from sandbox.runtimes.library import Bundle
from sandbox.runtimes.pins import INSTALLERS
from sandbox.runtimes.tools import host_platform
from sandbox.runtimes.unpacked import ensure_unpacked

SCRIPT = INSTALLERS / "install.sh"
TOOLS = (
    "sh",
    "tar",
    "sha256sum",
    "uname",
    "env",
    "mkdir",
    "mv",
    "rm",
    "ln",
    "touch",
    "sleep",
    "cat",
)
SHELLS = {
    name: argv
    for name, argv in {
        "dash": ["dash"],
        "bash": ["bash", "--posix"],
        "ash": ["busybox", "sh"],
    }.items()
    if shutil.which(argv[0])
}
USAGE, PLATFORM, TOOL_MISSING, INTEGRITY, UNPACK, VERSION, TAKEN = range(2, 9)

pytestmark = pytest.mark.skipif(
    not host_platform().startswith("linux-"), reason="install.sh is for Linux images"
)


@dataclass
class Installer:
    """Runs install.sh in one shell; ``bin`` holds the only tools it can find."""

    shell: list[str]
    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> Path:
        return self.folder / "home/of the/prefix"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def argv(self, pinned: Bundle, **changes: str | None) -> list[str]:
        options: dict[str, str | None] = {
            "bundle": str(pinned.path),
            "sha256": pinned.sha256,
            "prefix": str(self.prefix),
            "harness": pinned.harness,
            "version": pinned.version,
            "platform": pinned.platform,
            "version_output": pinned.version_output,
        }
        argv = [shutil.which(self.shell[0]) or "", *self.shell[1:], str(SCRIPT)]
        for name, value in (options | changes).items():
            if value is not None:
                argv += ["--" + name.replace("_", "-"), value]
        return argv

    def start(self, argv: list[str]) -> subprocess.Popen[str]:
        env = {"PATH": str(self.bin), "SECRET": "leaks", "LD_LIBRARY_PATH": "/leaks"} | self.env
        return subprocess.Popen(
            argv,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, pinned: Bundle, **changes: str | None) -> subprocess.CompletedProcess[str]:
        argv = self.argv(pinned, **changes)
        with self.start(argv) as process:
            out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def replace(self, tool: str, script: str) -> None:
        (self.bin / tool).unlink(missing_ok=True)
        (self.bin / tool).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / tool).chmod(0o755)

    def refused(self, pinned: Bundle, code: int, said: str, **changes: str | None) -> None:
        """Run it, and see that it ends with ``code`` and that nothing is left."""
        ended = self.run(pinned, **changes)
        assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
        assert said in ended.stderr
        assert self.left() == []

    def left(self) -> list[str]:
        home = self.prefix.parent
        return sorted(path.name for path in home.iterdir()) if home.exists() else []


@pytest.fixture(params=SHELLS, ids=str)
def installer(request: pytest.FixtureRequest, tmp_path: Path) -> Installer:
    made = Installer(SHELLS[request.param], tmp_path / "machine")
    made.bin.mkdir(parents=True)
    for tool in TOOLS:
        (made.bin / tool).symlink_to(shutil.which(tool) or tool)
    return made


@pytest.fixture
def bundle(tiny: Callable[..., Bundle]) -> Bundle:
    return tiny(host_platform())


def test_a_good_bundle(installer: Installer, bundle: Bundle) -> None:
    ended = installer.run(bundle)
    assert ended.returncode == 0, ended.stderr
    assert InstallReceipt.model_validate_json(ended.stdout) == InstallReceipt(
        harness="tool",
        version="1.2.3",
        platform=bundle.platform,
        bundle_sha256=bundle.sha256,
        prefix=str(installer.prefix),
        version_output="tool 1.2.3",
        already_installed=False,
    )
    assert ended.stdout.count("\n") == 1
    assert installer.left() == ["prefix"]
    assert (installer.prefix / ".bundle-sha256").read_text() == bundle.sha256 + "\n"
    assert (installer.prefix / "bin/tool").resolve() == installer.prefix / "libexec/tool"


def test_the_second_run_changes_nothing_and_says_so(installer: Installer, bundle: Bundle) -> None:
    assert installer.run(bundle).returncode == 0
    before = {path: path.lstat().st_ctime_ns for path in installer.prefix.rglob("*")}
    ended = installer.run(bundle)
    assert json.loads(ended.stdout)["already_installed"] is True
    assert "already holds" in ended.stderr
    assert {path: path.lstat().st_ctime_ns for path in installer.prefix.rglob("*")} == before
    assert installer.left() == ["prefix"]


def test_the_second_run_still_runs_the_program(installer: Installer, bundle: Bundle) -> None:
    assert installer.run(bundle).returncode == 0
    (installer.prefix / "libexec/tool").write_text("#!/bin/sh\necho tool 6.6.6\n")
    installer.refused(bundle, VERSION, "printed 'tool 6.6.6'")


@pytest.mark.parametrize("position", [0, 600, 1536, -1])
def test_one_byte_of_the_bundle_changed(
    installer: Installer, bundle: Bundle, position: int
) -> None:
    data = bytearray(bundle.path.read_bytes())
    data[position] ^= 1
    bundle.path.write_bytes(data)
    installer.refused(bundle, INTEGRITY, "pinned is")


@pytest.mark.parametrize("size", [0, 1, 512, -1])
def test_a_truncated_bundle(installer: Installer, bundle: Bundle, size: int) -> None:
    os.truncate(bundle.path, size if size >= 0 else bundle.size - 1)
    installer.refused(bundle, INTEGRITY, "pinned is")


def test_one_digit_of_the_hash_changed(installer: Installer, bundle: Bundle) -> None:
    other = ("0" if bundle.sha256[0] != "0" else "1") + bundle.sha256[1:]
    installer.refused(bundle, INTEGRITY, "pinned is", sha256=other)


def test_no_bundle(installer: Installer, bundle: Bundle) -> None:
    installer.refused(bundle, INTEGRITY, "there is no bundle", bundle="/no/such.tar")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "could not hash"),
        ("exit 0", "could not hash"),
        ("echo abc", "could not hash"),
        (f"echo {'0' * 63}", "could not hash"),
        (f"echo {'g' * 64}", "could not hash"),
        (f"echo {'0' * 64}", "pinned is"),
    ],
)
def test_a_hashing_tool_that_does_not_work(
    installer: Installer, bundle: Bundle, script: str, said: str
) -> None:
    installer.replace("sha256sum", script)
    installer.refused(bundle, INTEGRITY, said)


def test_no_hashing_tool(installer: Installer, bundle: Bundle) -> None:
    (installer.bin / "sha256sum").unlink()
    installer.refused(bundle, TOOL_MISSING, "nothing can be verified")


@pytest.mark.parametrize("tool", ["shasum", "openssl"])
def test_another_hashing_tool_serves(installer: Installer, bundle: Bundle, tool: str) -> None:
    (installer.bin / "sha256sum").unlink()
    if not shutil.which(tool):
        pytest.skip(f"no {tool} on this machine")
    (installer.bin / tool).symlink_to(str(shutil.which(tool)))
    for needed in ("perl",):
        if found := shutil.which(needed):
            (installer.bin / needed).symlink_to(found)
    assert installer.run(bundle).returncode == 0
    shutil.rmtree(installer.prefix)
    with bundle.path.open("r+b") as stream:
        stream.write(b"X")
    installer.refused(bundle, INTEGRITY, "pinned is")


@pytest.mark.parametrize("tool", ["tar", "uname", "env", "mv", "mkdir", "rm"])
def test_a_missing_tool_is_named(installer: Installer, bundle: Bundle, tool: str) -> None:
    (installer.bin / tool).unlink()
    if installer.shell[0] == "busybox":
        pytest.skip("busybox's shell has its tools built in")
    installer.refused(bundle, TOOL_MISSING, f"'{tool}'")


@pytest.mark.parametrize(
    ("platform", "code"),
    [
        ("linux-x64-gnu", PLATFORM),
        ("linux-x64-musl", PLATFORM),
        ("linux-arm64-gnu", PLATFORM),
        ("linux-arm64-musl", PLATFORM),
        ("linux-x64-uclibc", USAGE),
        ("darwin-arm64", USAGE),
    ],
)
def test_another_platform(installer: Installer, bundle: Bundle, platform: str, code: int) -> None:
    if platform == host_platform():
        pytest.skip("this machine's own")
    loaders = {"linux-x64-musl": "/lib/ld-musl-x86_64.so.1"}
    if Path(loaders.get(platform, "/nonexistent")).exists():
        pytest.skip("this machine has both loaders")
    installer.refused(bundle, code, platform, platform=platform)


def test_a_machine_of_another_kind(installer: Installer, bundle: Bundle) -> None:
    installer.replace("uname", "echo riscv64")
    if installer.shell[0] == "busybox":
        pytest.skip("busybox's shell has uname built in")
    installer.refused(bundle, PLATFORM, "riscv64")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("#!/bin/sh\necho tool 1.2.4\n", "printed 'tool 1.2.4'"),
        ("#!/bin/sh\necho tool 1.2.3; echo more\n", "more"),
        ("#!/bin/sh\necho ' tool 1.2.3'\n", "printed ' tool 1.2.3'"),
        ("#!/bin/sh\necho tool 1.2.3 >&2\n", "printed ''"),
        ("#!/bin/sh\necho tool 1.2.3; echo why >&2; exit 3\n", "| why"),
        ("#!/no/such/interpreter\n", "exit code 127"),
        ("#!/bin/sh\necho \"tool 1.2.3$SECRET$LD_LIBRARY_PATH\"\nexit $#\n", "exit code 1"),
    ],
)  # fmt: skip
def test_a_program_that_is_not_the_pin(
    installer: Installer, tiny: Callable[..., Bundle], program: str, said: str
) -> None:
    installer.refused(tiny(host_platform(), program=program), VERSION, said)


def test_what_follows_the_first_line_counts_unless_the_pin_says_otherwise(
    installer: Installer, tiny: Callable[..., Bundle]
) -> None:
    program = '#!/bin/sh\necho "tool 1.2.3"\necho "installed in $0"\n'
    bundle = tiny(host_platform(), program=program)
    installer.refused(bundle, VERSION, "installed in")
    argv = installer.argv(bundle, version_compare="first-line")
    with installer.start(argv) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["version_output"] == "tool 1.2.3"


def test_the_program_sees_a_clean_environment(
    installer: Installer, tiny: Callable[..., Bundle]
) -> None:
    program = (
        '#!/bin/sh\n[ -z "$SECRET$LD_LIBRARY_PATH$XDG_CACHE_HOME" ] || exit 1\n'
        'case $HOME/ in *.installing-*) ;; *) exit 2 ;; esac\necho "tool $*"\n'
    )
    made = tiny(host_platform(), program=program, version_output="tool --what version")
    argv = [*installer.argv(made), "--", "--what", "version"]
    with installer.start(argv) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["version_output"] == "tool --what version"


def test_a_version_check_gets_its_variables_as_they_are(
    installer: Installer, tiny: Callable[..., Bundle]
) -> None:
    program = "#!/bin/sh\n[ \"$A/$B/$1\" = '*  =/x/--what' ] || exit 1\necho tool\n"
    made = tiny(host_platform(), program=program, version_output="tool")
    named = ["--version-env", "A=*  =", "--version-env", "B=x"]
    with installer.start([*installer.argv(made), *named, "--", "--what"]) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


@pytest.mark.parametrize(
    "changes",
    [
        {"bundle": None},
        {"sha256": None},
        {"sha256": "A" * 64},
        {"sha256": "0" * 63},
        {"prefix": "relative/path"},
        {"prefix": "/"},
        {"prefix": "/a/../b"},
        {"prefix": "/a//b"},
        {"prefix": '/a"b'},
        {"harness": "../tool"},
        {"harness": "a b"},
        {"harness": "-x"},
        {"version": 'a"b'},
        {"version_output": "a\\b"},
        {"version_output": "a\nb"},
        {"version_env": "A"},
        {"version_env": "A="},
        {"version_env": "a=b"},
        {"version_env": "PATH=/x"},
        {"version_env": "A=b\nC=d"},
        {"surprise": "x"},
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(
    installer: Installer, bundle: Bundle, changes: dict[str, str | None]
) -> None:
    installer.refused(bundle, USAGE, "error:", **changes)


@pytest.mark.parametrize("what", ["file", "folder", "link", "broken-link", "other-bundle"])
def test_a_prefix_that_is_taken_is_left_alone(
    installer: Installer, bundle: Bundle, tmp_path: Path, what: str
) -> None:
    installer.prefix.parent.mkdir(parents=True)
    if what == "file":
        installer.prefix.write_text("mine")
    elif what == "link":
        installer.prefix.symlink_to(tmp_path)
    elif what == "broken-link":
        installer.prefix.symlink_to(tmp_path / "nowhere")
    else:
        installer.prefix.mkdir()
        (installer.prefix / "mine").write_text("mine")
        if what == "other-bundle":
            (installer.prefix / ".bundle-sha256").write_text("0" * 64 + "\n")
    before = hashlib.sha256(repr(sorted(installer.prefix.parent.rglob("*"))).encode()).hexdigest()
    ended = installer.run(bundle)
    assert (ended.returncode, ended.stdout) == (TAKEN, "")
    after = hashlib.sha256(repr(sorted(installer.prefix.parent.rglob("*"))).encode()).hexdigest()
    assert after == before


def test_a_bundle_without_its_program(installer: Installer, bundle: Bundle) -> None:
    installer.refused(bundle, INTEGRITY, "no program bin/other", harness="other")


@pytest.mark.parametrize("name", ["/absolute", "../climbing", "a/../../b", "a/.."])
def test_an_unsafe_name_is_refused_even_when_the_hash_is_right(
    installer: Installer, bundle: Bundle, name: str
) -> None:
    with tarfile.open(bundle.path, "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    sha256 = hashlib.sha256(bundle.path.read_bytes()).hexdigest()
    installer.refused(bundle, INTEGRITY, "unsafe name", sha256=sha256)


def test_what_is_no_tar_is_refused_even_when_the_hash_is_right(
    installer: Installer, bundle: Bundle
) -> None:
    bundle.path.write_bytes(b"not a tar at all" * 100)
    sha256 = hashlib.sha256(bundle.path.read_bytes()).hexdigest()
    installer.refused(bundle, UNPACK, "cannot", sha256=sha256)


def held_while_unpacking(installer: Installer, bundle: Bundle) -> subprocess.Popen[str]:
    """Start it with a tar that never ends; return when the sibling is half full."""
    real = shutil.which("tar")
    installer.replace(
        "tar", f'case $1 in -xof) : >"$4/half"; exec sleep 30 ;; *) {real} "$@" ;; esac'
    )
    process = installer.start(installer.argv(bundle))
    deadline = time.monotonic() + 20
    while not list(installer.prefix.parent.glob("*.installing-*/tree/half")):
        assert time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    return process


def end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signal the installer, then kill the tar it waits for: a shell acts when its child ends."""
    process.send_signal(number)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid, session = int(stat.parent.name), int(fields[3])
        if session == process.pid != pid:
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=20)


def test_kill_9_while_unpacking_and_once_more(installer: Installer, bundle: Bundle) -> None:
    if installer.shell[0] == "busybox":
        pytest.skip("busybox's shell has tar built in")
    end(held_while_unpacking(installer, bundle), signal.SIGKILL)
    assert not installer.prefix.exists()
    (left,) = installer.left()
    assert left.startswith("prefix.installing-")
    (installer.bin / "tar").unlink()
    (installer.bin / "tar").symlink_to(str(shutil.which("tar")))
    assert installer.run(bundle).returncode == 0
    assert installer.left() == ["prefix"]


def test_a_living_installers_sibling_is_left_alone(installer: Installer, bundle: Bundle) -> None:
    other = installer.prefix.parent / f"prefix.installing-{os.getpid()}"
    other.mkdir(parents=True)
    assert installer.run(bundle).returncode == 0
    assert installer.left() == ["prefix", other.name]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_a_signal_while_unpacking_leaves_nothing(
    installer: Installer, bundle: Bundle, number: signal.Signals
) -> None:
    if installer.shell[0] == "busybox":
        pytest.skip("busybox's shell has tar built in")
    process = held_while_unpacking(installer, bundle)
    end(process, number)
    assert process.returncode == 128 + number
    assert installer.left() == []


# --- trees; those that are mounted read-only are in test_trees.py -------------------------------


def unpacked(bundle: Bundle, folder: Path) -> Path:
    return ensure_unpacked(bundle, folder / "trees" / bundle.sha256, PlainProgress(quiet=True))


def test_a_tree_that_can_be_written_to_is_refused(
    installer: Installer, bundle: Bundle, tmp_path: Path
) -> None:
    tree = unpacked(bundle, tmp_path)
    before = sorted(tree.rglob("*"))
    installer.refused(bundle, INTEGRITY, "can be written to", bundle=None, tree=str(tree))
    assert sorted(tree.rglob("*")) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tree": "/"}, "exclude each other"),
        ({"version_checked": "earlier"}, "with --tree earlier"),
        ({"version_checked": "never"}, "not never"),
        ({"bundle": None}, "--bundle is missing"),
    ],
    ids=["both", "copy-cited", "never", "neither"],
)
def test_what_does_not_fit_together_is_a_mistake(
    installer: Installer, bundle: Bundle, changes: dict[str, str | None], said: str
) -> None:
    installer.refused(bundle, USAGE, said, **changes)


def test_a_link_at_the_prefix_is_no_copy(
    installer: Installer, bundle: Bundle, tmp_path: Path
) -> None:
    installer.prefix.parent.mkdir(parents=True)
    installer.prefix.symlink_to(unpacked(bundle, tmp_path))
    ended = installer.run(bundle)
    assert (ended.returncode, ended.stdout) == (TAKEN, "")
    assert "exists and is a link" in ended.stderr
    assert installer.left() == ["prefix"]
