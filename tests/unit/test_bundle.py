"""Bundles: the same bytes every time, from archives that cannot write where they should not."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import IntegrityError, UsageError
from sandbox.progress import PlainProgress
from sandbox.runtimes import ustar
from sandbox.runtimes.archive import Names, members, safe_name, safe_target
from sandbox.runtimes.artifacts import NpmPin
from sandbox.runtimes.bundle import Assembled, Ingredient, assemble, check_assembled
from sandbox.runtimes.lock import LockedArtifact
from sandbox.runtimes.pins import HarnessPin

type_of = {
    "file": tarfile.REGTYPE,
    "link": tarfile.SYMTYPE,
    "hard": tarfile.LNKTYPE,
    "fifo": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
}


def tgz(path: Path, entries: list[tuple[str, str, str, int]]) -> Path:
    """Write entries of (kind, name, content or target, mode) in that order."""
    with tarfile.open(path, "w:gz") as archive:
        for kind, name, text, mode in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = type_of[kind], mode, 1234567
            info.uid, info.uname = 1000, "somebody"
            if kind == "file":
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
            else:
                info.linkname = text
                archive.addfile(info)
    return path


ENTRIES = [
    ("file", "package/vendor/share/notes.txt", "notes", 0o600),
    ("file", "package/vendor/bin/tool", "#!/bin/sh\necho tool 1.2.3\n", 0o700),
    ("link", "package/vendor/bin/alias", "tool", 0o777),
    ("file", "package/vendor/voice/big", "left out", 0o644),
    ("file", "package/README.md", "not taken", 0o644),
]

CONTENT = {"artifact": "tool", "take": "package/vendor/", "put": "vendor/", "leave": ["voice/"]}


def harness(**changes: Any) -> HarnessPin:
    runtime = {
        "platforms": ["linux-x64-gnu"],
        "entry": {"kind": "link", "program": "vendor/bin/tool"},
        "content": [CONTENT],
    } | changes
    return HarnessPin.model_validate(
        {
            "licence": "MIT",
            "version": "1.2.3",
            "version_output": "tool 1.2.3",
            "platforms": ["linux-x64-gnu"],
            "runtime": [runtime],
        }
    )


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[Path, Assembled]]:
    """Assemble a bundle from an archive; each call in fresh folders."""
    count = iter(range(99))

    def build(archive: Path, **changes: Any) -> tuple[Path, Assembled]:
        pin = harness(**changes)
        locked = LockedArtifact(
            client="npm", name="tool", version="1.2.3", file="tool-1.2.3.tgz",
            size=archive.stat().st_size,
            integrity="sha256:" + hashlib.sha256(archive.read_bytes()).hexdigest(),
        )  # fmt: skip
        npm = NpmPin(client="npm", name="tool", version="1.2.3", licence="MIT")
        ingredient = Ingredient(npm, locked, archive)
        folder = tmp_path / f"build-{next(count)}"
        stage = folder / "stage"
        stage.mkdir(parents=True)
        out = folder / "bundle.tar"
        with PlainProgress(quiet=True).step("assembling") as step:
            made = assemble(
                "tool", pin, pin.runtime[0], {"tool": ingredient}, out, stage=stage, step=step
            )
        return out, made

    return build


def listing(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path, "r:") as archive:
        return {info.name: info for info in archive}


def test_the_same_content_gives_the_same_bytes(
    tmp_path: Path, make: Callable[..., tuple[Path, Assembled]]
) -> None:
    one, first = make(tgz(tmp_path / "a.tgz", ENTRIES))
    two, second = make(tmp_path / "a.tgz")
    assert first == second
    assert one.read_bytes() == two.read_bytes()
    assert first.sha256 == hashlib.sha256(one.read_bytes()).hexdigest()
    assert first.size == one.stat().st_size


def test_order_owner_and_times_of_the_archive_do_not_matter(
    tmp_path: Path, make: Callable[..., tuple[Path, Assembled]]
) -> None:
    one, _ = make(tgz(tmp_path / "a.tgz", ENTRIES))
    two, _ = make(tgz(tmp_path / "b.tgz", [ENTRIES[2], *ENTRIES[:2]]))
    drop = {"MANIFEST.json"}  # it names the artifact's hash, which does differ

    def rest(path: Path) -> list[tuple[str, int, int, str]]:
        return [(n, i.size, i.mode, i.linkname) for n, i in listing(path).items() if n not in drop]

    assert rest(one) == rest(two)


def test_what_a_bundle_holds(tmp_path: Path, make: Callable[..., tuple[Path, Assembled]]) -> None:
    path, _ = make(tgz(tmp_path / "a.tgz", ENTRIES))
    entries = listing(path)
    assert list(entries) == [
        "MANIFEST.json", "bin", "bin/tool", "vendor", "vendor/bin", "vendor/bin/alias",
        "vendor/bin/tool", "vendor/share", "vendor/share/notes.txt",
    ]  # fmt: skip
    assert {(i.uid, i.gid, i.mtime) for i in entries.values()} == {(0, 0, 0)}
    assert entries["bin/tool"].linkname == "../vendor/bin/tool"
    assert entries["vendor/bin/tool"].mode == 0o755
    assert entries["vendor/share/notes.txt"].mode == 0o644


def test_the_manifest_says_what_it_is_and_hashes_every_file(
    tmp_path: Path, make: Callable[..., tuple[Path, Assembled]]
) -> None:
    path, _ = make(tgz(tmp_path / "a.tgz", ENTRIES))
    with tarfile.open(path) as archive:
        read = archive.extractfile("MANIFEST.json")
        assert read is not None
        manifest = json.load(read)
        for name, said in manifest["files"].items():
            if "link" not in said:
                data = archive.extractfile(name)
                assert data is not None
                assert hashlib.sha256(data.read()).hexdigest() == said["sha256"]
    assert manifest["entry"] == "bin/tool"
    assert manifest["version_output"] == "tool 1.2.3"
    assert manifest["artifacts"][0]["licence"] == "MIT"
    assert set(manifest["files"]) == set(listing(path)) - {
        "MANIFEST.json", "bin", "vendor", "vendor/bin", "vendor/share",
    }  # fmt: skip


def test_the_unpacked_entry_runs(
    tmp_path: Path, make: Callable[..., tuple[Path, Assembled]]
) -> None:
    path, _ = make(tgz(tmp_path / "a.tgz", ENTRIES))
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["tar", "-xf", path, "-C", root], check=True)
    assert subprocess.check_output([root / "bin/tool"], text=True) == "tool 1.2.3\n"


LOADER = {
    "kind": "loader",
    "program": "vendor/bin/tool",
    "loader": "/usr/bin/printf",
    "libraries": "vendor/share",
}


def launched(program: Path | str, *arguments: str, cwd: Path, path: str = os.defpath) -> list[str]:
    # the "loader" is printf, which shows the argv that a real one would get
    env = {"PATH": path, "CDPATH": "/"}
    argv = [program, *arguments]
    return subprocess.check_output(argv, text=True, env=env, cwd=cwd).splitlines()


@pytest.mark.parametrize("way", ["direct", "relative", "symlink", "chain", "on-path", "spaces"])
def test_the_launcher_finds_its_bundle(
    tmp_path: Path, make: Callable[..., tuple[Path, Assembled]], way: str
) -> None:
    path, _ = make(tgz(tmp_path / "a.tgz", ENTRIES), entry=LOADER)
    root = tmp_path / ("with space" if way == "spaces" else "root")
    root.mkdir()
    subprocess.run(["tar", "-xf", path, "-C", root], check=True)
    shim = tmp_path / "loader"
    shim.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    shim.chmod(0o755)
    entry = root / "bin/tool"
    entry.write_text(entry.read_text().replace("/usr/bin/printf", str(shim)))
    links = tmp_path / "links"
    (links / "deep").mkdir(parents=True)
    (links / "tool").symlink_to("../root/bin/tool")
    (links / "deep/tool").symlink_to("../tool")
    program: dict[str, Path | str] = {
        "direct": entry,
        "spaces": entry,
        "relative": "./root/bin/tool",
        "symlink": links / "tool",
        "chain": links / "deep/tool",
        "on-path": "tool",
    }
    search = f"{links / 'deep'}:{os.defpath}"
    argv = ["env", program[way]] if way == "on-path" else [program[way]]
    said = launched(argv[0], *map(str, argv[1:]), "a b", "$x", cwd=tmp_path, path=search)
    assert said == [
        "--library-path",
        f"{root}/vendor/share",
        f"{root}/vendor/bin/tool",
        "a b",
        "$x",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"content": [CONTENT | {"take": "package/no/"}]}, "nothing below", id="take"),
        pytest.param(
            {"entry": {"kind": "link", "program": "vendor/none"}}, "no executable", id="program"
        ),
        pytest.param(
            {"entry": {"kind": "link", "program": "vendor/share/notes.txt"}},
            "no executable", id="not-executable",
        ),
        pytest.param({"content": [CONTENT, CONTENT]}, "appears twice", id="collision"),
        pytest.param(
            {"content": [CONTENT | {"links": {"l.so": "x.so"}}]}, "not in the bundle", id="link"
        ),
    ],
)  # fmt: skip
def test_pins_that_ask_for_what_is_not_there_are_usage_errors(
    tmp_path: Path,
    make: Callable[..., tuple[Path, Assembled]],
    changes: dict[str, Any],
    said: str,
) -> None:
    with pytest.raises(UsageError, match=said):
        make(tgz(tmp_path / "a.tgz", ENTRIES), **changes)


GOOD = ("file", "package/vendor/bin/tool", "x", 0o755)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([("file", "/etc/passwd", "x", 0o644)], id="absolute"),
        pytest.param([("file", "package/../../x", "x", 0o644)], id="climbing"),
        pytest.param([("file", "package//x", "x", 0o644)], id="empty-part"),
        pytest.param([("file", "package/a\nb", "x", 0o644)], id="newline"),
        pytest.param([("file", "package\\x", "x", 0o644)], id="backslash"),
        pytest.param([GOOD], id="duplicate"),
        pytest.param([("file", "./package/vendor/bin/tool", "x", 0o644)], id="duplicate-dotted"),
        pytest.param([("link", "package/l", "/etc", 0o777)], id="absolute-link"),
        pytest.param([("link", "package/l", "../../etc", 0o777)], id="climbing-link"),
        pytest.param(
            [("link", "package/l", "vendor", 0o777), ("file", "package/l/x", "x", 0o644)],
            id="below-a-link",
        ),
        pytest.param(
            [("file", "package/d/x", "x", 0o644), ("link", "package/d", "vendor", 0o777)],
            id="link-over-folder",
        ),
        pytest.param([("hard", "package/h", "package/vendor/bin/tool", 0o644)], id="hard-link"),
        pytest.param([("device", "package/null", "", 0o644)], id="device"),
        pytest.param([("fifo", "package/pipe", "", 0o644)], id="fifo"),
    ],
)
def test_an_archive_with_an_unsafe_member_gives_no_bundle(
    tmp_path: Path,
    make: Callable[..., tuple[Path, Assembled]],
    bad: list[tuple[str, str, str, int]],
) -> None:
    with pytest.raises(IntegrityError, match="the archive cannot be used"):
        make(tgz(tmp_path / "a.tgz", [GOOD, *bad]))


@pytest.mark.parametrize("size", [1, 40, 200, -1])
def test_a_cut_archive_gives_no_bundle(
    tmp_path: Path, make: Callable[..., tuple[Path, Assembled]], size: int
) -> None:
    path = tgz(tmp_path / "a.tgz", ENTRIES)
    os.truncate(path, size if size > 0 else path.stat().st_size + size)
    with pytest.raises(IntegrityError, match="the archive cannot be used"):
        make(path)


def test_wheels_are_read_and_their_programs_made_executable(
    tmp_path: Path, make: Callable[..., tuple[Path, Assembled]]
) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/vendor/bin/tool", "#!/bin/sh\n")
    path, _ = make(wheel, content=[CONTENT | {"executable": ["bin/tool"], "leave": []}])
    assert listing(path)["vendor/bin/tool"].mode == 0o755


def test_a_wheel_with_a_climbing_name_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("../x", "x")
    with (
        pytest.raises(IntegrityError, match="unsafe name"),
        members(wheel, what="a wheel") as found,
    ):
        list(found)


def test_a_bundle_that_is_not_the_locked_one_is_an_integrity_error() -> None:
    made = Assembled(size=10, sha256="a" * 64)
    check_assembled(made, size=10, sha256="a" * 64, what="x")
    for size, sha256 in [(11, "a" * 64), (10, "b" * 64)]:
        with pytest.raises(IntegrityError, match="sandbox pins lock"):
            check_assembled(made, size=size, sha256=sha256, what="x")


PARTS = st.sampled_from(["a", "b", "..", ".", "", "c d", "\n", "\\", "é", "x" * 90])


@given(st.lists(PARTS, min_size=1, max_size=6).map("/".join))
def test_a_safe_name_stays_below_its_root(name: str) -> None:
    try:
        safe = safe_name(name)
    except ValueError:
        return
    root = Path("/root/of/the/tree")
    assert Path(os.path.normpath(root / safe)) == root / safe
    assert (root / safe).is_relative_to(root)


@given(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join),
    st.lists(PARTS, min_size=1, max_size=5).map("/".join),
)
def test_a_safe_link_leads_below_its_root(name: str, target: str) -> None:
    try:
        safe = safe_target(name, target)
    except ValueError:
        return
    root = Path("/root/of/the/tree")
    assert Path(os.path.normpath(root / Path(name).parent / safe)).is_relative_to(root)


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)))
def test_names_that_are_taken_can_stand_in_one_tree(names: list[str]) -> None:
    tree, taken = Names(), []
    for name in names:
        try:
            tree.add(name)
        except ValueError:
            continue
        taken.append(name)
    assert len(set(taken)) == len(taken)
    assert not any(one != two and two.startswith(one + "/") for one in taken for two in taken)


NAME = st.lists(
    st.text(
        st.characters(exclude_categories=("Cs",), exclude_characters="/\0"), min_size=1, max_size=40
    ),
    min_size=1,
    max_size=8,
).map("/".join)


@given(NAME, st.binary(max_size=2000), st.booleans())
def test_what_is_written_python_reads_back(name: str, data: bytes, executable: bool) -> None:
    out = io.BytesIO()
    try:
        ustar.write_file(out, name, io.BytesIO(data), len(data), executable=executable)
    except ValueError:
        assert len(name.encode()) > 100
        return
    ustar.write_end(out)
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        (info,) = archive.getmembers()
        read = archive.extractfile(info)
        assert read is not None
        assert (info.name, read.read()) == (name, data)
        assert info.mode == (0o755 if executable else 0o644)


def test_a_file_that_ends_early_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 bytes early"):
        ustar.write_file(io.BytesIO(), "x", io.BytesIO(b"ab"), 5, executable=False)
