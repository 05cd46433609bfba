"""Preflight: predictions by the seed's own rules, notes, proofs, and what is printed."""

import datetime as dt
import io
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from rich.console import Console

from sandbox.agents.look import Look
from sandbox.agents.overlap import Folder, Mount
from sandbox.agents.setup import ROOTS
from sandbox.commands.reporting import conclude, judged
from sandbox.conformance.forecast import foretell, foretell_refusal
from sandbox.conformance.imagenotes import notes
from sandbox.conformance.prove import plan_of, with_proofs
from sandbox.engine.facts import ImageFacts, parse_facts
from sandbox.engine.imagebuild.store import FoundImage
from sandbox.errors import CouldNotFindOut, EngineFailure, ExitCode, Unsupported
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.cell import Refusal
from sandbox.evidence.folder import CellFiles, attempt_folder, cell_folder
from sandbox.evidence.foretold import (
    TOLD,
    Comparison,
    Ended,
    compare,
    ended,
    proof_of,
    read_preflight,
    united,
    write_preflight,
)
from sandbox.evidence.judge import judge
from sandbox.evidence.preflight import Forecast, ImagePreflight, PreflightReport, Proof
from sandbox.harnesses.registry import registered
from sandbox.report.jsonreport import Results
from sandbox.report.preflight import lines, preflight_report
from sandbox.report.words import foretold_lines
from sandbox.runtimes.library import RuntimeLibrary
from tests.broken.goodcells import good, write
from tests.reported import render, report_files

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


def refused(files: CellFiles, kind: str, reason: str = "so") -> CellFiles:
    refusal = Refusal.model_validate({"kind": kind, "reason": reason})
    return replace(files, cell=files.cell.model_copy(update={"refusal": refusal}))


@pytest.mark.parametrize(("kind", "outcome"), [("unsupported", "cannot"), ("error", "undecided")])
def test_a_refused_cell_is_a_proof_and_a_broken_one_is_none(kind: str, outcome: str) -> None:
    assert proof_of(refused(good(), kind)) == Proof(outcome=outcome, reason="so")


def test_a_broken_cell_is_undecided_and_named(tmp_path: Path) -> None:
    told = report(Forecast(harness="codex", outcome="works"))
    assert with_proofs(told, tmp_path).proven == 0
    folder = cell_folder(tmp_path, "codex/debian-12/tool_success")
    folder.parent.mkdir(parents=True)
    write(folder, refused(good(), "error"))
    told = with_proofs(told, tmp_path)
    assert (told.proven, told.disagreements, told.undecided) == (0, (), ("codex/debian-12",))
    assert "undecided, its cell broke: codex/debian-12" in "\n".join(lines(told))


def test_an_expired_deadline_is_no_proof_that_it_works() -> None:
    files = good()
    assert files.receipt is not None
    late = replace(files, receipt=files.receipt.model_copy(update={"timed_out": True}))
    proof = proof_of(late)
    assert (proof.outcome, proof.reason[:32]) == ("failed", "the agent's deadline expired aft")
    assert Forecast(harness="codex", outcome="works", proof=proof).agrees is False


def one_ended(scenario: str, **changes: str) -> Ended:
    files = good(scenario)
    files = refused(files, "unsupported", **changes) if changes else files
    return ended(files)


def test_the_cells_of_a_run_are_held_against_what_was_foretold() -> None:
    works = report(Forecast(harness="codex", outcome="works"))
    cannot = report(Forecast(harness="codex", outcome="cannot", reason="no bash"))
    ran, model_error = one_ended("tool_success"), one_ended("model_error")
    kept_out = one_ended("retry_500", reason="no bash")
    otherwise = one_ended("retry_500", reason="no sh")
    whole = compare(works, [ran, model_error])
    assert (whole.forecasts, whole.cells, whole.refusals, whole.disagreements) == (1, 2, 0, ())
    assert compare(cannot, [kept_out]).refusals == 1
    (one,) = compare(works, [kept_out]).disagreements
    assert (one.foretold, one.ended, one.reason) == ("works", "cannot", "no bash")
    (two,) = compare(cannot, [model_error]).disagreements
    assert (two.foretold, two.ended) == ("cannot", "works")
    (three,) = compare(cannot, [otherwise]).disagreements
    assert "for another reason: no sh" in three.reason
    nothing = report(Forecast(harness="codex", outcome="unknown"))
    assert compare(nothing, [ran, kept_out]).unforetold_cells == ("codex/debian-12/retry_500",)


def test_a_disagreement_fails_the_run_and_is_told_in_every_report(tmp_path: Path) -> None:
    folder = cell_folder(tmp_path, "codex/debian-12/tool_success")
    folder.parent.mkdir(parents=True)
    write(folder, good())
    wrong = report(Forecast(harness="codex", outcome="cannot", reason="why"))
    outcomes = {}
    for told in (report(Forecast(harness="codex", outcome="works")), wrong):
        write_preflight(tmp_path, told)
        run = judge(tmp_path, baseline=Baseline(), today=dt.date(2027, 1, 1))
        outcomes[run.exit_code] = run
    assert set(outcomes) == {0, 1}
    texts = report_files(outcomes[1])
    for text in (render(outcomes[1], width=400), texts["summary.md"], texts["results.json"]):
        assert "works" in text
        assert "codex/debian-12/tool" in text.replace("\\", "")
    assert "disagreements between preflight and cells: 1" in render(outcomes[1], width=400)
    assert "disagreements between preflight and cells: 0" in render(outcomes[0], width=400)


def test_the_reports_hold_each_execution_of_a_repeated_cell_against_it(tmp_path: Path) -> None:
    for number, works in ((1, True), (2, False)):
        folder = cell_folder(attempt_folder(tmp_path, number), "codex/debian-12/tool_success")
        folder.parent.mkdir(parents=True)
        write(folder, good() if works else refused(good(), "unsupported", reason="no bash"))
    write_preflight(tmp_path, report(Forecast(harness="codex", outcome="works")))
    assert conclude(tmp_path, known=Baseline()) is not ExitCode.OK
    results = Results.model_validate_json((tmp_path / "results.json").read_bytes(), strict=True)
    assert results.foretold is not None
    assert (results.foretold.cells, results.foretold.disagreeing) == (2, 1)
    assert results.foretold == judged(tmp_path, known=Baseline()).foretold
    told = (tmp_path / "summary.md").read_text()
    assert "disagreements between preflight and cells: 1" in told
    assert "| codex | debian-12 | 2 | 2.0 | 149 |" in told


def test_of_many_disagreements_the_first_are_named_and_all_are_counted() -> None:
    comparison = Comparison(report(Forecast(harness="codex", outcome="cannot", reason="why")))
    for _ in range(TOLD + 5):
        comparison.add(one_ended("tool_success"))
    found = comparison.end()
    assert (found.disagreeing, len(found.disagreements)) == (TOLD + 5, TOLD)
    *_, last = foretold_lines(found)
    assert last == f"foretold otherwise: {TOLD + 5 - 20} more cell(s)"


def test_predictions_of_a_runs_parts_are_brought_together(tmp_path: Path) -> None:
    one = report(Forecast(harness="codex", outcome="works"))
    other = report(Forecast(harness="pi", outcome="works"), name="alpine-3.23")
    more = report(Forecast(harness="pi", outcome="works"), name="debian-12")
    whole = united([one, other, more])
    assert whole is not None
    found = {image.name: [one.harness for one in image.forecasts] for image in whole.images}
    assert found == {"debian-12": ["codex", "pi"], "alpine-3.23": ["pi"]}
    write_preflight(tmp_path, whole)
    assert read_preflight(tmp_path) == whole
    assert united([]) is None
    (tmp_path / "preflight.json").write_text("{}")
    with pytest.raises(CouldNotFindOut, match="not a preflight report"):
        read_preflight(tmp_path)


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
