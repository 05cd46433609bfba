"""Facts and processes: what scripts and the kernel say is read strictly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.engine.changes import parse_changes
from sandbox.engine.facts import ImageFacts, Place, parse_facts
from sandbox.engine.observer import ProbeObserver, parse_use
from sandbox.engine.processes import ProcessInfo, from_probe, of_the_task, parse_process
from sandbox.errors import EngineFailure
from sandbox.evidence.records import FileChange

COMMON = "uid=0\ngid=0\nuser=root\nhome=/root\nworkdir=/\npath=/bin\nmachine=x86_64\n"
GLIBC = "mapped=/usr/lib/x86_64-linux-gnu/libc.so.6\nloader=/lib64/ld-linux-x86-64.so.2\n"
MUSL = "mapped=/lib/ld-musl-x86_64.so.1\nloader=/lib/ld-musl-x86_64.so.1\n"
MUSL_SAYS = "musl_says=Version 1.2.5\n"
GLIBC_SAYS = "glibc_says=ld.so (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36.\n"


def facts(text: str) -> ImageFacts:
    return parse_facts(COMMON + text + "end=1\n", image_env={"A": "b"})


def mounts(*shown: str) -> str:
    """Lines of mountinfo for options and place."""
    pairs = (one.split() for one in shown)
    return "".join(
        f"22 1 0:21 / {place} {options} shared:1 - tmpfs a=b rw\n" for options, place in pairs
    )


@pytest.mark.parametrize(
    ("text", "libc", "version", "platform"),
    [
        (GLIBC + "getconf=glibc 2.41\n" + GLIBC_SAYS, "glibc", "2.41", "linux-x64-gnu"),
        (GLIBC + "getconf=\n" + GLIBC_SAYS, "glibc", "2.36", "linux-x64-gnu"),
        (
            GLIBC
            + "glibc_says=GNU C Library (Debian GLIBC 2.31-13) stable release version 2.31.\n",
            "glibc",
            "2.31",
            "linux-x64-gnu",
        ),
        (GLIBC, "glibc", None, "linux-x64-gnu"),
        (MUSL + MUSL_SAYS, "musl", "1.2.5", "linux-x64-musl"),
        (
            GLIBC + GLIBC_SAYS + "loader=/lib/ld-musl-x86_64.so.1\n" + MUSL_SAYS,
            "glibc",
            "2.36",
            "linux-x64-gnu",
        ),
        (
            MUSL + MUSL_SAYS + "loader=/lib64/ld-linux-x86-64.so.2\n",
            "musl",
            "1.2.5",
            "linux-x64-musl",
        ),
        ("loader=/lib/ld-musl-x86_64.so.1\n", "musl", None, "linux-x64-musl"),
        ("", "none", None, None),
    ],
    ids=[
        "getconf",
        "loader",
        "library",
        "silent",
        "musl",
        "both gnu",
        "both musl",
        "static",
        "none",
    ],
)
def test_libc(text: str, libc: str, version: str | None, platform: str | None) -> None:
    found = facts(text)
    assert (found.libc, found.libc_version, found.platform) == (libc, version, platform)


def test_libraries_are_named_by_what_is_asked_for() -> None:
    folders = ("/usr/lib/x86_64-linux-gnu", "/usr/local/lib")
    names = ("libstdc++.so.6", "libstdc++.so.6.0.30", "libz.so.1.2.13", "libz.so.1", "libzstd.so.1")
    said = [f"library={folders[0]}/{name}\n" for name in names]
    said += [f"library={folders[1]}/{name}\n" for name in ("libz.so.1", "liby.so.2")]
    assert facts(GLIBC + "".join(said)).libraries == {
        "libstdc++.so.6": "libstdc++.so.6.0.30",
        "libstdc++.so.6.0.30": "libstdc++.so.6.0.30",
        "libz.so.1": "libz.so.1.2.13",
        "libz.so.1.2.13": "libz.so.1.2.13",
        "libzstd.so.1": "libzstd.so.1",
        "liby.so.2": "liby.so.2",
    }
    assert facts(GLIBC).libraries == {}


@pytest.mark.parametrize(
    ("machine", "platform"),
    [("aarch64", "linux-arm64-gnu"), ("riscv64", None), ("", None)],
)
def test_architecture(machine: str, platform: str | None) -> None:
    text = (COMMON + GLIBC).replace("machine=x86_64", f"machine={machine}")
    assert parse_facts(text + "end=1\n", image_env={}).platform == platform


V1 = "fpu lm cx8 cmov mmx fxsr sse sse2 syscall"
V2 = f"{V1} pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm"
V3 = f"{V2} fma movbe xsave avx f16c abm bmi1 avx2 bmi2"


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        pytest.param(None, None, id="not-known"),
        pytest.param(V1, "x86-64", id="first"),
        pytest.param(V2, "x86-64-v2", id="v2"),
        pytest.param(f"{V2} avx xsave", "x86-64-v2", id="avx-alone"),
        pytest.param(V3, "x86-64-v3", id="v3"),
        pytest.param(V3.replace("popcnt", ""), "x86-64", id="a-level-holds-those-below"),
        pytest.param(f"{V3} avx512f avx512dq avx512cd avx512bw avx512vl", "x86-64-v4", id="v4"),
    ],
)
def test_the_level_of_the_cpu(flags: str | None, level: str | None) -> None:
    said = "" if flags is None else f"cpu_flags= {flags}\n"
    assert facts(GLIBC + said).cpu == level
    arm = (COMMON + GLIBC + said).replace("machine=x86_64", "machine=aarch64")
    assert parse_facts(arm + "end=1\n", image_env={}).cpu is None


@pytest.mark.parametrize(
    ("text", "sh"),
    [
        ("sh_exe=/usr/bin/dash\n", "dash"),
        ("sh_exe=/bin/busybox\n", "ash"),
        ("sh_exe=/bin/toybox\n", "toybox"),
        ("sh_exe=/usr/bin/bash\nsh_bash=5.2\n", "bash"),
        ("sh_bash=5.2\n", "bash"),
        ("", "unknown"),
    ],
)
def test_shell(text: str, sh: str) -> None:
    assert facts(text).sh == sh


def test_a_place_on_a_read_only_mount_cannot_be_written() -> None:
    """Whatever busybox's test -w says, which looks at modes only."""
    found = facts("writable=/tmp\nwritable=/srv/x\n" + mounts("ro,relatime /", "rw /srv"))
    assert [place.path for place in found.writable] == ["/srv/x"]


def test_all_the_rest() -> None:
    found = facts(
        'tool=tar /bin/tar\ntool=sh /bin/s h\nos_ID=debian\nos_VERSION_ID="12"\n'
        "ca_file=/etc/ssl/cert.pem\nwritable=/tmp\nwritable=/dev/shm/x\nwritable=/tmp\n"
        + mounts("rw,relatime /", "rw,noexec /dev/shm", "rw,noexec /tmp", "rw /tmp")
    )
    assert found.tools == {"tar": "/bin/tar", "sh": "/bin/s h"}
    assert found.distribution == "debian 12"
    assert found.ca_file == "/etc/ssl/cert.pem"
    assert found.env == {"A": "b"}
    assert found.writable == (
        Place(path="/tmp", executable=True),
        Place(path="/dev/shm/x", executable=False),
    )
    assert facts("").distribution is None


@pytest.mark.parametrize("text", ["", COMMON, "end=1\n", COMMON + "odd line\nend=1\n"])
def test_incomplete_facts_are_refused(text: str) -> None:
    with pytest.raises(EngineFailure):
        parse_facts(text, image_env={})


def stat(name: str, state: str = "S", parent: int = 1, started: int = 50) -> str:
    return f"9 ({name}) {state} {parent} " + " ".join("0" for _ in range(17)) + f" {started} 0 0"


@given(st.text(max_size=15))
def test_process_names_do_not_confuse(name: str) -> None:
    process = parse_process(pid=9, uid=3, stat=stat(name, parent=4, started=77), cmdline=())
    assert (process.parent, process.started_ticks, process.state) == (4, 77, "S")
    assert process.argv == (f"[{name}]",)


def process(pid: int, started: int, state: str = "S") -> ProcessInfo:
    return ProcessInfo(pid=pid, parent=1, uid=0, argv=("x",), state=state, started_ticks=started)


def test_init_keeper_and_the_dead_are_left_out() -> None:
    seen = (process(9, 20), process(1, 10), process(7, 10), process(12, 20, "Z"), process(8, 20))
    assert [one.pid for one in of_the_task(seen)] == [8, 9]
    assert of_the_task(()) == ()


def test_a_probe_is_read() -> None:
    text = (
        f"P 7\nU 0\nS {stat('sleep', parent=1, started=5)}\nC sleep\x1f10\n"
        "P 8\nU 0\nS \nC \n"  # gone between two looks
        f"P 9\nU 1000\nS {stat('a) (b', parent=7, started=6)}\nC \n"
        "M memory.oom_control oom_kill_disable 0\nM memory.oom_control oom_kill 4\n"
        "M cpuacct.usage 2000000000 \nM memory.max_usage_in_bytes 77 \n"
    )
    observer = ProbeObserver(lambda: text)
    first, second = observer.processes()
    assert (first.pid, first.argv, first.identity) == (7, ("sleep", "10"), "7:5")
    assert (second.uid, second.argv) == (1000, ("[a) (b]",))
    use = observer.use()
    assert (use.cpu_time_s, use.peak_memory_mib, use.oom_kills) == (2.0, 77 / 2**20, 4)


def test_a_probe_of_version_2() -> None:
    use = parse_use("M cpu.stat usage_usec 5\nM memory.peak 9 \nM memory.events oom_kill 1\nM x\n")
    assert (use.cpu_time_s, use.peak_memory_mib, use.oom_kills) == (5e-6, 9 / 2**20, 1)
    assert parse_use("").oom_kills is None
    assert from_probe("") == ()


def test_changes() -> None:
    said = [{"Path": "/b", "Kind": 1}, {"Path": "/a", "Kind": 0}, {"Path": "/c", "Kind": 2}]
    assert parse_changes(said) == (
        FileChange(path="/a", change="modified"),
        FileChange(path="/b", change="added"),
        FileChange(path="/c", change="deleted"),
    )
    assert parse_changes(None) == ()
