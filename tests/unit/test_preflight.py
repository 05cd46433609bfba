"""Preflight: predictions by the seed's own rules, notes, proofs, and what is printed."""

import io
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from rich.console import Console

from sandbox.agents.look import Look
from sandbox.agents.overlap import Folder, Mount
from sandbox.agents.setup import ROOTS
from sandbox.conformance.forecast import foretell, foretell_refusal
from sandbox.conformance.imagenotes import notes
from sandbox.conformance.prove import plan_of, proof_of, with_proofs
from sandbox.engine.facts import ImageFacts, parse_facts
from sandbox.engine.imagebuild.store import FoundImage
from sandbox.errors import EngineFailure, Unsupported
from sandbox.evidence.cell import Refusal
from sandbox.evidence.folder import cell_folder
from sandbox.evidence.preflight import Forecast, ImagePreflight, PreflightReport, Proof
from sandbox.harnesses.registry import registered
from sandbox.report.preflight import lines, preflight_report
from sandbox.runtimes.library import RuntimeLibrary
from tests.broken.goodcells import good, write

HARNESSES = registered().harnesses
TOOLS = ("env", "setsid", "sleep", "sh", "tr", "sed")
GNU = ("mapped=/lib/x86_64-linux-gnu/libc.so.6", "loader=/lib64/ld-linux-x86-64.so.2")
CPP = (
    "library=/lib/x86_64-linux-gnu/libstdc++.so.6",
    "library=/lib/x86_64-linux-gnu/libstdc++.so.6.0.30",
    "library=/lib/x86_64-linux-gnu/libgcc_s.so.1",
)
MUSL = ("mapped=/lib/ld-musl-x86_64.so.1", "loader=/lib/ld-musl-x86_64.so.1")


def double(size: int) -> int:
    return 2 * size


@pytest.fixture(scope="module")
def library() -> RuntimeLibrary:
    return RuntimeLibrary()


def facts(
    *more: str, libc: tuple[str, ...] = GNU, glibc: str = "2.36", tools: tuple[str, ...] = TOOLS,
    env: dict[str, str] | None = None,
) -> ImageFacts:  # fmt: skip
    lines_ = ["uid=0", "gid=0", "machine=x86_64", "home=/root", "workdir=/workspace", "user=root"]
    lines_ += [*libc, f"getconf=version {glibc}", "writable=/root", "writable=/workspace", *more]
    lines_ += [f"tool={name} /bin/{name}" for name in tools]
    return parse_facts("\n".join([*lines_, "end=1"]), image_env=env or {})


def look(*, options: frozenset[str] = frozenset(), free_mib: int = 100_000) -> Look:
    """Everything is writable on one mount with ``options``."""
    return Look(
        folders=tuple(
            Folder(
                path=path,
                resolved=PurePosixPath(path),
                writable=True,
                free_kib=free_mib << 10,
            )
            for path in ("/workspace", "/root", *ROOTS)
        ),
        mounts=(
            Mount(device="0:1", root=PurePosixPath("/"), point=PurePosixPath("/"), options=options),
        ),
    )


@pytest.mark.parametrize(
    ("harness", "libc", "outcome", "brings"),
    [
        ("codex", GNU, "works", ()),
        ("codex", MUSL, "works", ()),
        ("pi", (*GNU, *CPP), "works with", ("node-linux-x64-gnu",)),
        ("opencode", MUSL, "works with", ("node-linux-x64-musl", "ripgrep-linux-x64")),
    ],
)
def test_what_works_and_what_comes_along(
    library: RuntimeLibrary,
    harness: str,
    libc: tuple[str, ...],
    outcome: str,
    brings: tuple[str, ...],
) -> None:
    told = foretell(HARNESSES[harness], library, facts(libc=libc), look(), double)
    assert (told.outcome, told.brings, told.reason) == (outcome, brings, None)
    assert told.version == library.pins.harness_pin(harness).version
    assert told.needs_mib is not None
    assert told.needs_mib > 100


@pytest.mark.parametrize(
    ("seen", "at", "said"),
    [
        (facts(glibc="2.27"), look(), "needs GLIBC_2.28, image has 2.27"),
        (facts(libc=()), look(), "no platform fits the image: libc none"),
        (facts(tools=("sh", "env", "tr", "sed")), look(), "the image has no setsid, sleep"),
        (facts(), look(options=frozenset({"noexec"})), "mounted noexec"),
        (facts(), look(free_mib=300), "MiB needed"),
        (facts(libc=("loader=/lib/ld-linux-x86-64.so.2",)), look(), "needs the loader /lib64/ld-"),
    ],
)
def test_what_cannot_work_says_why_and_the_cure(
    library: RuntimeLibrary, seen: ImageFacts, at: Look, said: str
) -> None:
    told = foretell(HARNESSES["hermes"], library, seen, at, double)
    assert told.outcome == "cannot"
    assert said in (told.reason or "")
    assert told.cure


def test_a_library_that_is_missing_is_foretold(library: RuntimeLibrary) -> None:
    told = foretell(HARNESSES["pi"], library, facts(), look(), double)
    assert told.outcome == "cannot"
    assert "needs libstdc++.so.6, image has none" in (told.reason or "")


@pytest.mark.parametrize("harness", ["opencode", "kilocode", "claude-code"])
def test_a_cpu_that_is_too_old_is_foretold(library: RuntimeLibrary, harness: str) -> None:
    """Such a program would die of SIGILL, somewhere in its work."""
    old = facts("cpu_flags=cmov cx8 fpu fxsr mmx syscall sse sse2", *CPP)
    told = foretell(HARNESSES[harness], library, old, look(), double)
    assert told.outcome == "cannot"
    assert "needs a CPU of level x86-64-v2, this machine's is x86-64" in (told.reason or "")
    assert "older CPUs" in (told.cure or "")


def test_a_platform_without_a_pin_cannot_work(library: RuntimeLibrary) -> None:
    arm = facts(libc=MUSL).model_copy(update={"platform": "linux-arm64-musl"})
    told = foretell(HARNESSES["kilocode"], library, arm, look(), double)
    assert told.outcome == "cannot"
    assert "no pin for platform linux-arm64-musl" in (told.reason or "")


def test_a_refusal_is_told_from_not_knowing() -> None:
    codex = HARNESSES["codex"]
    assert foretell_refusal(codex, Unsupported("no sh", cure="sh")).outcome == "cannot"
    assert foretell_refusal(codex, EngineFailure("gone")).outcome == "unknown"


def image(**more: object) -> FoundImage:
    plain = {
        "image_id": "sha256:1", "tags": (), "size": 1, "created": "", "layers": (), "labels": {},
        "env": (), "cmd": ("/bin/sh",), "user": "", "workdir": "/workspace",
    }  # fmt: skip
    return FoundImage.model_validate({**plain, **more})


def test_a_plain_image_has_nothing_to_say() -> None:
    plain = facts("ca_file=/etc/ssl/cert.pem", env={"LANG": "C.UTF-8"})
    assert notes(image(entrypoint=("/usr/bin/tini", "--")), plain, (), ()) == ()


@pytest.mark.parametrize(
    ("more", "env", "kind", "subject"),
    [
        ({"entrypoint": ("/start.sh",)}, {}, "entrypoint", "/start.sh"),
        ({"cmd": ("/srv/daemon", "-f")}, {}, "command", "/srv/daemon -f"),
        ({"healthcheck": ("CMD-SHELL", "curl x")}, {}, "healthcheck", "curl x"),
        ({"volumes": ("/workspace",)}, {}, "volume", "/workspace"),
        ({}, {"LD_PRELOAD": "/x.so"}, "environment", "LD_PRELOAD"),
        ({}, {"OPENAI_API_KEY": "sk-secret-value"}, "environment", "OPENAI_API_KEY"),
        ({}, {"https_proxy": "http://p"}, "environment", "https_proxy"),
        ({}, {"CODEX_HOME": "/x"}, "environment", "CODEX_HOME"),
        ({}, {"LANG": "POSIX"}, "locale", "POSIX"),
    ],
)
def test_what_surprises_is_noted(
    more: dict[str, object], env: dict[str, str], kind: str, subject: str
) -> None:
    seen = facts("ca_file=/etc/ssl/cert.pem", env={"LANG": "C.UTF-8", **env})
    (note,) = notes(image(**more), seen, (), ())
    assert (note.kind, note.subject) == (kind, subject)
    assert "sk-secret" not in note.text, "a value of the environment is never repeated"


def test_a_workdir_in_a_volume_and_agents_files_are_noted() -> None:
    seen = facts("ca_file=/etc/ssl/cert.pem", env={"LANG": "C.UTF-8"})
    found = notes(image(volumes=("/workspace",)), seen, ("AGENTS.md",), (".codex",))
    assert "the workdir is in it" in found[0].text
    assert [note.subject for note in found[1:]] == ["/workspace/AGENTS.md", "/root/.codex"]


def test_a_user_without_an_entry_and_without_a_home_is_noted() -> None:
    seen = parse_facts(
        "uid=7\ngid=7\nhome=/nowhere\nworkdir=/workspace\nend=1", image_env={"LANG": "C.UTF-8"}
    )
    found = [(note.kind, note.subject) for note in notes(image(), seen, (), ())]
    assert found[:3] == [("user", "7"), ("place", "/nowhere"), ("place", "/workspace")]


def report(*forecasts: Forecast, name: str = "debian-12") -> PreflightReport:
    one = ImagePreflight(name=name, platform="linux-x64-gnu", libc="glibc", forecasts=forecasts)
    return PreflightReport(images=(one,), seconds=1.0, jobs=2, engine="docker 20")


def test_proofs_come_from_the_cells_and_disagreements_are_counted(tmp_path: Path) -> None:
    works = Forecast(harness="codex", outcome="works")
    cannot = Forecast(harness="opencode", outcome="cannot", reason="why")
    told = report(works, cannot)
    for cell in plan_of(told):
        folder = cell_folder(tmp_path, cell.cell_id)
        folder.parent.mkdir(parents=True)
        dialect = "responses" if cell.harness == "codex" else "chat"
        write(folder, good("tool_success", dialect))
    proven = with_proofs(told, tmp_path)
    assert [one.agrees for one in proven.images[0].forecasts] == [True, False]
    assert (proven.proven, proven.disagreements) == (2, ("opencode/debian-12",))
    said = "\n".join(lines(proven))
    assert "2 proven, 1 disagreement(s)" in said
    assert "predicted otherwise: opencode/debian-12" in said


@pytest.mark.parametrize(("kind", "outcome"), [("unsupported", "cannot"), ("error", "failed")])
def test_a_refused_cell_is_a_proof_and_a_broken_one_is_none_of_it(
    tmp_path: Path, kind: str, outcome: str
) -> None:
    files = good()
    refusal = Refusal.model_validate({"kind": kind, "reason": "so"})
    refused = replace(files, cell=files.cell.model_copy(update={"refusal": refusal}))
    proof = proof_of(write(tmp_path / "cell", refused))
    assert proof == Proof(outcome=outcome, reason="so")
    assert proof_of(tmp_path / "nothing") is None


def test_an_expired_deadline_proves_nothing(tmp_path: Path) -> None:
    files = good()
    assert files.receipt is not None
    late = replace(files, receipt=files.receipt.model_copy(update={"timed_out": True}))
    proof = proof_of(write(tmp_path / "cell", late))
    assert proof is not None
    assert proof.outcome == "undecided"
    told = report(Forecast(harness="codex", outcome="works", proof=proof))
    assert (told.proven, told.disagreements, told.undecided) == (0, (), ("codex/debian-12",))
    assert "undecided, its deadline expired: codex/debian-12" in "\n".join(lines(told))


@pytest.mark.parametrize(
    ("outcome", "proven", "agrees"),
    [
        ("works", "works", True),
        ("works with", "works", True),
        ("works", "cannot", False),
        ("works with", "failed", False),
        ("cannot", "cannot", True),
        ("cannot", "failed", False),
        ("cannot", "works", False),
        ("unknown", "works", None),
        ("works", "undecided", None),
    ],
)
def test_when_a_proof_agrees(outcome: str, proven: str, agrees: bool | None) -> None:
    said = {"harness": "codex", "outcome": outcome, "proof": {"outcome": proven}}
    assert Forecast.model_validate(said).agrees is agrees


def test_the_table_fits_a_narrow_terminal_and_names_each_reason_once() -> None:
    why = "codex cannot run here: the image has no setsid"
    names = list(HARNESSES)
    told = [
        Forecast(harness=name, outcome="cannot", reason=why.replace("codex", name), cure="add it")
        for name in names
    ]
    out = io.StringIO()
    Console(width=80, file=out).print(preflight_report(report(*told, name="alpine-3.23-nonroot")))
    said = out.getvalue()
    assert max(len(line) for line in said.splitlines()) <= 80
    assert said.count("the image has no setsid") == 1
    assert "every harness: the image has no setsid (what to do: add it)" in said


def test_an_image_that_could_not_be_looked_at_is_named_with_the_reason() -> None:
    lost = ImagePreflight(name="a:1", error="the engine has no image a:1", cure="load it")
    told = PreflightReport(images=(lost,), seconds=1.0, jobs=2, engine="docker 20")
    assert "the engine has no image a:1 (what to do: load it)" in "\n".join(lines(told))
