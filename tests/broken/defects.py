"""Planted defects: for each check, cells in which exactly what it watches is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox.evidence.cell import VerifierResult
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    Gap,
    InvocationStatus,
    ModelCallRef,
    Observations,
    ToolCall,
    ToolRequestItem,
    ToolResultItem,
    ToolStatus,
)
from sandbox.evidence.records import EgressEvent, Record, Survivor, VersionCheck
from sandbox.evidence.rows import FailureRow, SuccessRow
from sandbox.evidence.tally import digest_of
from tests.broken.goodcells import SESSION, START, good, rejoined


@dataclass(frozen=True, kw_only=True)
class Defect:
    """A broken cell: ``check`` must fail on it, of the others only those in ``also`` may.

    ``files`` makes the facts; ``spoil`` changes the written folder afterwards.
    """

    check: str
    name: str
    files: Callable[[], CellFiles]
    spoil: Callable[[Path], None] = lambda folder: None
    also: frozenset[str] = frozenset()


def with_row(files: CellFiles, **changes: object) -> CellFiles:
    assert files.row is not None
    return replace(files, row=files.row.model_copy(update=changes))


def with_trajectory(files: CellFiles, **changes: object) -> CellFiles:
    assert files.row is not None
    return with_row(files, ng_trajectory=files.row.ng_trajectory.model_copy(update=changes))


def with_witness(files: CellFiles, **changes: object) -> CellFiles:
    assert files.witness is not None
    return replace(files, witness=files.witness.model_copy(update=changes))


def with_tool(files: CellFiles, number: int, **changes: object) -> CellFiles:
    assert files.witness is not None
    tools = list(files.witness.tools)
    tools[number] = tools[number].model_copy(update=changes)
    return with_witness(files, tools=tuple(tools))


def with_receipt(files: CellFiles, **changes: object) -> CellFiles:
    assert files.receipt is not None
    return replace(files, receipt=files.receipt.model_copy(update=changes))


def with_install(files: CellFiles, **changes: object) -> CellFiles:
    assert files.install is not None
    return replace(files, install=files.install.model_copy(update=changes))


def cited(**changes: object) -> VersionCheck:
    """Return the check of the version that a good cell cites, but for ``changes``."""
    install = good().install
    assert install is not None
    assert install.version_check is not None
    return install.version_check.model_copy(update=changes)


def with_cell(files: CellFiles, **changes: object) -> CellFiles:
    return replace(files, cell=files.cell.model_copy(update=changes))


def with_exchanges(files: CellFiles, change: Callable[[Exchange], Exchange]) -> CellFiles:
    """Change exchanges where they arrived: tally, saved file and row stay consistent."""
    assert files.row is not None
    changed = tuple(change(exchange) for exchange in files.exchanges or ())
    files = with_witness(
        replace(files, exchanges=changed), exchange_tally=tuple(map(digest_of, changed))
    )
    return rejoined(files, observations(files))


def observations(files: CellFiles) -> Observations:
    """Return the observations as an adapter without references would report them."""
    assert files.row is not None
    known = files.row.ng_agent_observations
    return with_records(
        known,
        lambda r: r.model_copy(update={"model_calls": ()}) if isinstance(r, AgentInvocation) else r,
    )


def with_records(known: Observations, change: Callable[[Record], Record | None]) -> Observations:
    changed = [change(record) for record in known.records]
    records = tuple(record for record in changed if record is not None)
    return known.model_copy(update={"records": records})


def with_observed(
    files: CellFiles, change: Callable[[Record], Record | None], *gaps: Gap
) -> CellFiles:
    """Change what the adapter observed, and assemble the row from it."""
    found = with_records(observations(files), change)
    return rejoined(files, found.model_copy(update={"gaps": (*found.gaps, *gaps)}))


def status(value: InvocationStatus) -> Callable[[Record], Record]:
    return lambda record: (
        record.model_copy(update={"status": value})
        if isinstance(record, AgentInvocation)
        else record
    )


def tool_status(value: ToolStatus, number: int = 0) -> Callable[[Record], Record]:
    seen: list[str] = []

    def change(record: Record) -> Record:
        if isinstance(record, ToolCall):
            seen.append(record.tool_call_id)
            if len(seen) == number + 1:
                return record.model_copy(update={"status": value})
        return record

    return change


def conversation(
    change: Callable[[Record], Record | None],
) -> Callable[[Record], Record]:
    def whole(record: Record) -> Record:
        if not isinstance(record, AgentInvocation):
            return record
        items = [change(item) for item in record.conversation]
        return record.model_copy(update={"conversation": tuple(i for i in items if i is not None)})

    return whole


def result(**changes: object) -> Callable[[Record], Record]:
    return lambda item: (
        item.model_copy(update=changes) if isinstance(item, ToolResultItem) else item
    )


def zero_row(files: CellFiles) -> CellFiles:
    """Turn the failure row into a graded zero, the classic silent loss."""
    row = files.row
    assert isinstance(row, FailureRow)
    zero = SuccessRow(
        task_id=row.task_id,
        rollout_id=row.rollout_id,
        reward=0.0,
        evaluation_completed=True,
        mask_sample=False,
        response=None,
        ng_agent_observations=row.ng_agent_observations,
        ng_trajectory=row.ng_trajectory,
        ng_model_call_capture=row.ng_model_call_capture,
    )
    return with_witness(replace(files, row=zero), verifier=VerifierResult(reward=0.0))


def failure_row(files: CellFiles) -> CellFiles:
    """Turn a graded row into a failure that keeps its observations."""
    row = files.row
    assert isinstance(row, SuccessRow)
    lost = FailureRow(
        task_id=row.task_id,
        rollout_id=row.rollout_id,
        failure_class="episode_failed",
        failure_kind="cleanup",
        failure_stage="cleanup",
        failure_message="the receipt is negative",
        failure_terminal=False,
        ng_agent_observations=row.ng_agent_observations,
        ng_trajectory=row.ng_trajectory,
        ng_model_call_capture=row.ng_model_call_capture,
    )
    return with_witness(replace(files, row=lost), verifier=None)


def lost_retry() -> CellFiles:
    """Save one of two equal failed attempts, and say nothing of the other."""
    whole = good("retry_500", statuses=(500, 500, 200, 200))
    assert whole.exchanges is not None
    first, second = whole.exchanges[:2]
    assert digest_of(first) == digest_of(second)
    return rejoined(replace(whole, exchanges=(first, *whole.exchanges[2:])), observations(whole))


def repeated_row(folder: Path) -> None:
    path = folder / "rollouts.jsonl"
    path.write_text(path.read_text() * 2)


def unknown_key(folder: Path) -> None:
    path = folder / "rollouts.jsonl"
    path.write_text(path.read_text().replace('{"task_id"', '{"score":1,"task_id"', 1))


def torn_file(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:-20])

    return spoil


def second_owner(files: CellFiles) -> CellFiles:
    """Give a model call to a second invocation too, in the row alone."""
    assert files.row is not None
    root = files.row.ng_trajectory.invocations[0]
    child = root.model_copy(
        update={"invocation_id": "child-1", "parent_invocation_id": SESSION, "conversation": ()}
    )
    known = files.row.ng_agent_observations
    files = with_row(
        files, ng_agent_observations=known.model_copy(update={"records": (*known.records, child)})
    )
    return with_trajectory(files, invocations=(root, child))


def forgotten_owner(files: CellFiles) -> CellFiles:
    """Drop a reference without a gap."""
    assert files.row is not None
    forget = with_records(
        files.row.ng_agent_observations,
        lambda r: (
            r.model_copy(update={"model_calls": r.model_calls[1:]})
            if isinstance(r, AgentInvocation)
            else r
        ),
    )
    files = with_row(files, ng_agent_observations=forget)
    found = tuple(r for r in forget.records if isinstance(r, AgentInvocation))
    return with_trajectory(files, invocations=found)


def stolen_session(files: CellFiles) -> CellFiles:
    """Let a stranger's session header stand on a call that the row gives to the root."""
    stranger = AgentInvocation(invocation_id="stranger", status=InvocationStatus.COMPLETED)
    assert files.exchanges is not None
    first = files.exchanges[0].model_copy(update={"client_session_id": "stranger"})
    exchanges = (first, *files.exchanges[1:])
    claims = {first.exchange_id: ModelCallRef(model_call_id=first.exchange_id)}

    def claim(record: Record) -> Record:
        if isinstance(record, AgentInvocation) and record.invocation_id == SESSION:
            return record.model_copy(update={"model_calls": tuple(claims.values())})
        return record

    base = with_records(observations(files), claim)
    base = base.model_copy(
        update={
            "records": (
                *base.records,
                stranger.model_copy(update={"parent_invocation_id": SESSION}),
            )
        }
    )
    joined = rejoined(replace(files, exchanges=exchanges), base)
    assert joined.row is not None
    silent = tuple(
        gap for gap in joined.row.ng_trajectory.gaps if not gap.code.endswith("_conflict")
    )
    return with_trajectory(joined, gaps=silent)


def split_turn(files: CellFiles) -> CellFiles:
    """Count a retry as a step of its own."""
    assert files.row is not None
    first, *others = files.row.ng_trajectory.turns
    attempts = [
        first.model_copy(update={"turn_no": 100 + n, "model_calls": (ref,), "resolved": n > 0})
        for n, ref in enumerate(first.model_calls)
    ]
    return with_trajectory(files, turns=(*attempts, *others))


def shortened_to_model(exchange: Exchange) -> Exchange:
    """Cut the tool output in what the model is shown."""
    assert isinstance(exchange.request, dict)
    text = exchange.model_dump_json().replace("zweite Zeile", "zw")
    return Exchange.model_validate_json(text)


def untold(exchange: Exchange) -> Exchange:
    """Leave the exit code out of what the model is shown."""
    text = exchange.model_dump_json().replace("Exit code: 7", "Result:")
    return Exchange.model_validate_json(text)


def unasked_call(files: CellFiles) -> CellFiles:
    record = ToolCall(
        invocation_id=SESSION,
        tool_call_id="ghost",
        tool_name="shell",
        started_at=START,
        completed_at=START + 1,
        status=ToolStatus.COMPLETED,
    )
    known = observations(files)
    return rejoined(files, known.model_copy(update={"records": (*known.records, record)}))


def backwards(record: Record) -> Record:
    if isinstance(record, ToolCall) and record.started_at is not None:
        return record.model_copy(update={"completed_at": record.started_at - 1})
    return record


def session_of(value: str | None, *, number: int = 0) -> Callable[[Exchange], Exchange]:
    def change(exchange: Exchange) -> Exchange:
        if exchange.exchange_id != f"mc{number + 1:05d}":
            return exchange
        return exchange.model_copy(update={"client_session_id": value})

    return change


def _defects() -> Iterable[Defect]:
    yield from _form()
    yield from _outcome()
    yield from _link_and_calls()
    yield from _tools()
    yield from _joins()
    yield from _drift()
    yield from _install_and_cleanup()


def _form() -> Iterable[Defect]:
    check = "row_schema"
    everything = frozenset(
        {
            "outcome_class",
            "no_silent_zero",
            "rejected_task",
            "verifier_outcome",
            "tool_status",
            "tool_output",
            "exchanges_saved",
            "observations_present",
            "run_join",
            "attempts_owned",
            "step_join",
            "drift",
            "token_counts",
            "verifier_calls",
            "subagents_joined",
            "compaction_recorded",
        }
    )
    yield Defect(
        check=check, name="unknown key in the row", files=good, spoil=unknown_key, also=everything
    )
    yield Defect(check=check, name="two rows", files=good, spoil=repeated_row, also=everything)
    yield Defect(
        check=check,
        name="torn footprint",
        files=good,
        spoil=torn_file("footprint.json"),
        also=frozenset({"footprint_expected"}),
    )
    yield Defect(
        check=check,
        name="trajectory of another rollout",
        files=lambda: with_trajectory(good(), rollout_id="another"),
    )
    yield Defect(
        check=check, name="row of another task", files=lambda: with_row(good(), task_id="another")
    )
    yield Defect(
        check=check,
        name="tool call ends before it starts",
        files=lambda: with_observed(good(), backwards),
    )

    def repeated_turns() -> CellFiles:
        files = good()
        assert files.row is not None
        turns = tuple(t.model_copy(update={"turn_no": 1}) for t in files.row.ng_trajectory.turns)
        return with_trajectory(files, turns=turns)

    yield Defect(check=check, name="equal turn numbers", files=repeated_turns)


def _outcome() -> Iterable[Defect]:
    check = "outcome_class"
    yield Defect(
        check=check,
        name="timed-out run called completed",
        files=lambda: with_observed(good("run_timeout"), status(InvocationStatus.COMPLETED)),
    )
    yield Defect(
        check=check,
        name="unknown without a gap",
        files=lambda: with_observed(good("run_timeout"), status(InvocationStatus.UNKNOWN)),
    )
    yield Defect(
        check=check,
        name="answered run called failed",
        files=lambda: with_observed(good(), status(InvocationStatus.FAILED)),
    )
    yield Defect(
        check=check,
        name="graded run kept as a failure",
        files=lambda: failure_row(good()),
        also=frozenset({"verifier_outcome"}),
    )
    yield Defect(
        check=check,
        name="failure of another stage",
        files=lambda: with_row(good("model_error"), failure_stage="seed"),
    )
    yield Defect(
        check=check,
        name="the receipt says timed out",
        files=lambda: with_receipt(good(), timed_out=True, ending_s=0.1),
    )
    check = "no_silent_zero"
    yield Defect(
        check=check,
        name="model error graded zero",
        files=lambda: zero_row(good("model_error")),
        also=frozenset({"outcome_class", "verifier_outcome"}),
    )
    yield Defect(
        check=check,
        name="reward without evaluation",
        files=lambda: with_row(good("run_timeout"), evaluation_completed=False),
    )
    yield Defect(
        check=check,
        name="zero without a verifier",
        files=lambda: with_witness(good("run_timeout"), verifier=None),
        also=frozenset({"verifier_outcome"}),
    )
    check = "verifier_outcome"
    yield Defect(check=check, name="reward altered", files=lambda: with_row(good(), reward=0.5))
    yield Defect(
        check=check,
        name="verifier not satisfied",
        files=lambda: with_row(
            with_witness(good(), verifier=VerifierResult(reward=0.0, detail="no probe-2.txt")),
            reward=0.0,
        ),
    )
    yield Defect(
        check=check,
        name="verifier called after a failure",
        files=lambda: with_witness(good("model_error"), verifier=VerifierResult(reward=0.0)),
    )
    check = "script_followed"

    def script(**changes: object) -> CellFiles:
        files = good()
        assert files.witness is not None
        assert files.witness.script is not None
        return with_witness(files, script=files.witness.script.model_copy(update=changes))

    yield Defect(check=check, name="refused", files=lambda: script(refusal="no marker"))
    yield Defect(check=check, name="stopped early", files=lambda: script(steps_done=1))


def _link_and_calls() -> Iterable[Defect]:
    check = "model_reached_only_through_link"
    yield Defect(
        check=check,
        name="second interface",
        files=lambda: with_witness(good(), network_interfaces=("lo", "eth0")),
    )
    yield Defect(
        check=check,
        name="exchange of another rollout",
        files=lambda: with_exchanges(
            good(), lambda e: e.model_copy(update={"rollout_id": "another"})
        ),
    )
    yield Defect(
        check=check,
        name="isolation unknown",
        files=lambda: with_cell(good(), isolation=None),
    )
    yield Defect(
        check="egress_quiet",
        name="name asked for",
        files=lambda: replace(
            good(), egress=(EgressEvent(at=START, name="models.dev", record_type="A"),)
        ),
    )
    yield Defect(
        check="egress_quiet",
        name="bare address tried",
        files=lambda: replace(
            good(), egress=(EgressEvent(at=START, kind="unrouted", name="", count=2),)
        ),
    )
    yield Defect(
        check="egress_quiet",
        name="connection begun",
        files=lambda: replace(
            good(),
            egress=(
                EgressEvent(
                    at=START, kind="tcp", name="h.test", port=443, protocol="tls", named_by="sni"
                ),
            ),
        ),
    )
    check = "error_sequence"
    yield Defect(
        check=check,
        name="one retry too many",
        files=lambda: good("retry_500", statuses=(500, 500, 200, 200)),
    )
    yield Defect(
        check=check,
        name="gave up after the error",
        files=lambda: with_observed(good("retry_500", statuses=(200, 200)), lambda record: record),
    )
    yield Defect(
        check=check,
        name="error that the script did not ask for",
        files=lambda: with_exchanges(
            good("model_error"), lambda e: e.model_copy(update={"fault": None})
        ),
    )
    check = "exchanges_saved"
    yield Defect(
        check=check,
        name="one of two equal retries lost",
        files=lost_retry,
        also=frozenset(),
    )

    def altered() -> CellFiles:
        files = good()
        assert files.exchanges is not None
        first = files.exchanges[0].model_copy(update={"request": {"input": "Do it."}})
        exchanges = (first, *files.exchanges[1:])
        return rejoined(replace(files, exchanges=exchanges), observations(files))

    yield Defect(check=check, name="request altered on its way", files=altered)

    def lost_in_row() -> CellFiles:
        files = good()
        assert files.row is not None
        captured = files.row.ng_model_call_capture
        fewer = captured.model_copy(update={"calls": captured.calls[1:]})
        return with_row(files, ng_model_call_capture=fewer)

    yield Defect(check=check, name="lost in the row's capture", files=lost_in_row)


def _tools() -> Iterable[Defect]:
    check = "tools_executed"
    yield Defect(
        check=check, name="no marker", files=lambda: with_tool(good(), 1, marker_found=False)
    )
    yield Defect(
        check=check,
        name="ran without being asked for",
        files=lambda: with_tool(good("model_error"), 0, marker_found=True, home_seen="/root"),
        also=frozenset({"tool_status", "tool_output"}),
    )
    yield Defect(
        check=check, name="never asked for", files=lambda: with_tool(good(), 0, requested=False)
    )
    check = "tool_status"
    yield Defect(
        check=check,
        name="exit 7 called completed",
        files=lambda: with_observed(good("tool_failure"), tool_status(ToolStatus.COMPLETED)),
    )
    yield Defect(
        check=check,
        name="killed command called completed",
        files=lambda: with_observed(good("run_timeout"), tool_status(ToolStatus.COMPLETED)),
    )
    yield Defect(
        check=check,
        name="unknown without a gap",
        files=lambda: with_observed(good("run_timeout"), tool_status(ToolStatus.UNKNOWN)),
    )
    yield Defect(
        check=check,
        name="exit code altered",
        files=lambda: with_observed(good("tool_failure"), conversation(result(exit_code=1))),
    )
    check = "tool_output"
    yield Defect(
        check=check,
        name="output altered in the transcript",
        files=lambda: with_observed(good(), conversation(result(output="first line\n"))),
    )
    yield Defect(
        check=check,
        name="output cut on its way to the model",
        files=lambda: with_exchanges(good(), shortened_to_model),
    )
    yield Defect(
        check=check,
        name="result missing from the transcript",
        files=lambda: with_observed(
            good(),
            conversation(lambda item: None if isinstance(item, ToolResultItem) else item),
        ),
    )
    check = "failure_told"
    for dialect in ("responses", "chat"):
        yield Defect(
            check=check,
            name=f"exit 7 kept from the model ({dialect})",
            files=lambda dialect=dialect: with_exchanges(
                good("tool_failure", dialect=dialect), untold
            ),
        )
    check = "task_home_used"
    yield Defect(
        check=check,
        name="the harness's private HOME",
        files=lambda: with_tool(good(), 0, home_seen="/var/tmp/agent-1/home"),
    )
    yield Defect(
        check=check, name="HOME not noted", files=lambda: with_tool(good(), 1, home_seen=None)
    )


def _joins() -> Iterable[Defect]:
    check = "observations_present"
    yield Defect(
        check=check,
        name="transcript lost",
        files=lambda: with_observed(
            good("model_error"), lambda record: record, Gap(code="agent_transcript_unavailable")
        ),
    )
    yield Defect(
        check=check,
        name="tool request not in the conversation",
        files=lambda: with_observed(
            good(),
            conversation(lambda item: None if isinstance(item, ToolRequestItem) else item),
        ),
    )
    yield Defect(check=check, name="tool call nobody asked for", files=lambda: unasked_call(good()))
    yield Defect(
        check=check,
        name="tool call not observed",
        files=lambda: with_observed(good(), lambda r: None if isinstance(r, ToolCall) else r),
        also=frozenset({"tool_status"}),
    )
    yield Defect(
        check="native_kept", name="no native files", files=lambda: replace(good(), native=())
    )
    check = "run_join"
    yield Defect(
        check=check,
        name="two owners",
        files=lambda: second_owner(good()),
        also=frozenset({"step_join", "subagents_joined"}),
    )
    yield Defect(check=check, name="no owner and no gap", files=lambda: forgotten_owner(good()))
    yield Defect(
        check=check,
        name="stolen session id",
        files=lambda: stolen_session(good("retry_500")),
        also=frozenset({"subagents_joined"}),
    )
    yield Defect(
        check="attempts_owned",
        name="failed attempt without identifiers",
        files=lambda: with_exchanges(good("retry_500"), session_of(None)),
    )
    yield Defect(
        check="step_join",
        name="retry counted as a step",
        files=lambda: split_turn(good("retry_500")),
    )


def _drift() -> Iterable[Defect]:
    check = "drift"

    def declared(files: CellFiles, **changes: object) -> CellFiles:
        return with_cell(files, capabilities={**files.cell.capabilities, **changes})

    def headers(files: CellFiles, value: dict[str, str]) -> CellFiles:
        return with_exchanges(files, lambda e: e.model_copy(update={"headers": value}))

    def notes(*names: str) -> CellFiles:
        return with_witness(good("declared_traits"), workdir_files=names)

    def hung(fault: str, *, ended: bool, **changes: object) -> CellFiles:
        """Let the first request of a stopped run hang, to the run's end or with another one."""
        files = declared(good("run_timeout", statuses=(200, 0)), **changes)
        hold = {"fault": fault, "completed_at": START + (1.6 if ended else 4.5)}
        first = "mc00002" if not ended else "mc00001"
        return with_exchanges(
            files, lambda e: e.model_copy(update=hold) if e.exchange_id == first else e
        )

    def compacted() -> CellFiles:
        files = good()
        known = observations(files)
        record = ContextCompaction(invocation_id=SESSION)
        return rejoined(files, known.model_copy(update={"records": (*known.records, record)}))

    both = ("probe-1.at-once", "probe-2.at-once")
    offered = [{"type": "function", "name": "spawn_agent"}]

    def offering(files: CellFiles, tools: list[dict[str, str]]) -> CellFiles:
        def change(exchange: Exchange) -> Exchange:
            assert isinstance(exchange.request, dict)
            return exchange.model_copy(update={"request": {**exchange.request, "tools": tools}})

        return with_exchanges(files, change)

    for name, make in {
        "another dialect": lambda: declared(good(), dialect="messages"),
        "declared header not sent": lambda: headers(good(), {}),
        "header of nobody": lambda: headers(good(), {"session-id": "stranger"}),
        "undeclared header sent": lambda: declared(good(), session_header=None),
        "declared at once, ran in turn": lambda: notes("probe-2.at-once"),
        "declared in turn, ran at once": lambda: declared(notes(*both), parallel_tools=False),
        "declared bash, ran in another shell": lambda: declared(notes(*both), needs_bash=True),
        "key hidden by word, and seen": lambda: notes(*both, "probe-1.key"),
        "key seen by word, and hidden": lambda: declared(notes(*both), tools_see_key=True),
        "undeclared subagent tool": lambda: declared(offering(good(), offered), subagents=False),
        "declared subagents, no tool for them": lambda: offering(
            good(), [{"type": "function", "name": "shell"}]
        ),
        "undeclared compaction": compacted,
        "declared request deadline never came": lambda: hung(
            "hold", ended=False, request_deadline=True
        ),
        "undeclared request deadline came": lambda: hung("stall_headers", ended=True),
        "declared stream deadline never came": lambda: hung("stall_stream", ended=False),
        "undeclared stream deadline came": lambda: hung(
            "stall_stream", ended=True, stream_deadline=False
        ),
        "not declared at all": lambda: with_cell(good(), capabilities={"dialect": "responses"}),
    }.items():
        yield Defect(check=check, name=name, files=make, also=frozenset({"error_sequence"}))


def _install_and_cleanup() -> Iterable[Defect]:
    check = "install_exact"
    for name, changes in {
        "longer version": {"version_output": "codex-cli 1.2.30"},
        "other version": {"version": "1.2.4"},
        "other bytes": {"bundle_sha256": "cd" * 32},
        "other platform": {"platform": "linux-x64-musl"},
        "prefix outside the session": {"prefix": "/usr/local"},
        "version of a copy cited": {"way": "copy", "version_checked": "earlier"},
        "nothing cited": {"version_checked": "earlier", "version_check": None},
        "cited of other bytes": {"version_check": cited(bundle_sha256="cd" * 32)},
        "cited of another image": {"version_check": cited(image_id="sha256:2")},
        "cited of another output": {"version_check": cited(version_output="codex-cli 1.2.4")},
        "cited before it happened": {"version_check": cited(checked_at=4e9)},
    }.items():
        yield Defect(
            check=check,
            name=name,
            files=lambda changes=changes: with_install(good(), **changes),  # type: ignore[misc]
        )
    check = "receipt_confirmed"
    survivor = (Survivor(pid=99, command="sleep 999"),)
    for name, facts in {
        "not confirmed": {"cleanup_confirmed": False},
        "not launched": {"launched": False},
        "supervision error": {"error": "no wait status"},
        "survivors listed": {"survivors": survivor},
        "no return code": {"return_code": None},
    }.items():
        yield Defect(
            check=check,
            name=name,
            files=lambda facts=facts: with_receipt(good(), **facts),  # type: ignore[misc]
        )
    for check, name, seen in (
        ("nothing_left_running", "process left", {"survivors": survivor}),
        ("nothing_left_running", "not looked", {"survivors": None}),
        ("session_dir_gone", "directory left", {"session_dir_gone": False}),
        ("session_dir_gone", "not looked", {"session_dir_gone": None}),
        ("witness_sound", "the witness failed", {"errors": ("exec failed",)}),
        ("resources_recorded", "no figures", {"resources": None}),
        ("sandbox_released", "not looked", {"teardown": None}),
    ):
        yield Defect(
            check=check,
            name=name,
            files=lambda seen=seen: with_witness(good(), **seen),  # type: ignore[misc]
        )
    yield Defect(check="resources_recorded", name="killed for memory", files=_oom)
    for field in ("container_gone", "networks_gone", "volumes_gone"):
        yield Defect(
            check="sandbox_released",
            name=f"not {field}",
            files=lambda field=field: _left(field),  # type: ignore[misc]
        )


def _oom() -> CellFiles:
    files = good()
    assert files.witness is not None
    assert files.witness.resources is not None
    return with_witness(
        files, resources=files.witness.resources.model_copy(update={"oom_kills": 1})
    )


def _left(field: str) -> CellFiles:
    files = good()
    assert files.witness is not None
    assert files.witness.teardown is not None
    return with_witness(files, teardown=files.witness.teardown.model_copy(update={field: False}))


DEFECTS: tuple[Defect, ...] = tuple(_defects())
