"""The rules that NeMo Gym's documented contract sets for the contents of a row.

Each is one function that yields the reasons to refuse a row whose fields are as documented, with
its evidence group (TE-1 to TE-9) where the contract has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Rule = Callable[[Row], Iterator[str]]

_UNOWNED = "model_call_ownership_unavailable"
_UNRESOLVED = {
    "model_call_reference_unmatched",
    "model_call_reference_ambiguous",
    "model_call_reference_conflict",
}


def grade(row: Row) -> Iterator[str]:
    """TE-6: a reward is a verifier's, of an agent whom the model answered, or it is masked."""
    if "reward" not in row:
        return
    if not row["evaluation_completed"]:
        yield "a reward, and the evaluation is not completed"
    if not any(_answered(call) for call in _calls(row)) and not row["mask_sample"]:
        yield "a reward that is not masked, and no model call was answered"


def identity(row: Row) -> Iterator[str]:
    """TE-8: trajectory, turns and capture are of this row's task and rollout."""
    trajectory, capture = row["ng_trajectory"], row["ng_model_call_capture"]
    own = {"task_id": row["task_id"], "rollout_id": row["rollout_id"]}
    turns = ((f"turn {turn['turn_no']}", turn) for turn in trajectory["turns"])
    for what, one in (("trajectory", trajectory), ("capture", capture), *turns):
        for key, value in own.items():
            if one.get(key, value) != value:
                yield f"{what} has {key} {one[key]!r}, the row {value!r}"


def invocations(row: Row) -> Iterator[str]:
    """Invocation ids are unique; parents, where they are known, lead to a root."""
    found = _records(row, "agent_invocation")
    yield from _repeated("invocation", (one["invocation_id"] for one in found))
    parents = {one["invocation_id"]: one.get("parent_invocation_id") for one in found}
    for start in parents:
        line, current = set(), start
        while current in parents and current not in line:
            line.add(current)
            current = parents[current]
        if current in line:
            yield f"the parents of invocation {start} go in a circle"


def hierarchy(row: Row) -> Iterator[str]:
    """TE-5: tool calls belong to a known invocation; a subagent's spawning call is known."""
    known = {one["invocation_id"] for one in _records(row, "agent_invocation")}
    calls = {one["tool_call_id"] for one in _records(row, "tool_call")}
    for kind in ("tool_call", "context_compaction"):
        for one in _records(row, kind):
            if one["invocation_id"] not in known:
                yield f"a {kind} of invocation {one['invocation_id']!r}, which there is not"
    for one in _records(row, "agent_invocation"):
        spawn = one.get("spawned_by_tool_call_id")
        if spawn and spawn not in calls:
            yield f"invocation {one['invocation_id']} was started by {spawn!r}, which there is not"


def ownership(row: Row) -> Iterator[str]:
    """TE-8: each captured call has one owner, or a gap says that it has none."""
    calls = _calls(row)
    yield from _repeated("captured call", (call["model_call_id"] for call in calls))
    owned = Counter(
        match
        for one in _records(row, "agent_invocation")
        for ref in one.get("model_calls") or ()
        for match in _matches(ref, calls)
    )
    gaps = row["ng_agent_observations"]["gaps"]
    for call in calls:
        name = call["model_call_id"]
        told = any(gap["code"] == _UNOWNED and name in str(gap.get("detail")) for gap in gaps)
        if owned[name] > 1:
            yield f"call {name} has {owned[name]} owners"
        elif (owned[name] == 1) == told:
            yield f"call {name} has {'an owner and' if told else 'no owner and no'} gap"
    if not calls and not any(gap["code"] == "model_call_capture_no_records" for gap in gaps):
        yield "no call was captured, and no gap says so"


def references(row: Row) -> Iterator[str]:
    """TE-9: a reference means exactly one captured call, or a gap says that it does not."""
    calls = _calls(row)
    told = {gap["code"] for gap in row["ng_agent_observations"]["gaps"]}
    owners = (*_records(row, "agent_invocation"), *row["ng_trajectory"]["turns"])
    for ref in (ref for one in owners for ref in one.get("model_calls") or ()):
        if len(_matches(ref, calls)) != 1 and not told & _UNRESOLVED:
            name = ref.get("model_call_id") or ref.get("response_id")
            yield f"reference {name!r} means {len(_matches(ref, calls))} calls, and no gap says so"


def steps(row: Row) -> Iterator[str]:
    """TE-3 and TE-9: each owned call is an attempt of one turn, but for those of compactions."""
    calls, trajectory = _calls(row), row["ng_trajectory"]
    known = {one["invocation_id"] for one in trajectory["invocations"]}
    keys = ((turn["invocation_id"], turn["turn_no"]) for turn in trajectory["turns"])
    yield from _repeated("turn", keys)
    for turn in trajectory["turns"]:
        if turn["invocation_id"] not in known:
            yield f"turn {turn['turn_no']} is of invocation {turn['invocation_id']!r}"
    owned = {name for one in trajectory["invocations"] for name in _meant(one, calls)}
    helpers = {name for one in _records(row, "context_compaction") for name in _meant(one, calls)}
    tried = Counter(name for turn in trajectory["turns"] for name in _meant(turn, calls))
    for name in sorted(owned | set(tried)):
        expected = 0 if name in helpers else 1
        if tried[name] != expected:
            yield f"call {name} is in {tried[name]} turns, not {expected}"


def payloads(row: Row) -> Iterator[str]:
    """TE-1, TE-2 and TE-7: the trajectory's calls are the captured ones, word for word."""
    captured = {call["model_call_id"]: call for call in _calls(row)}
    shown = {call["model_call_id"]: call for call in row["ng_trajectory"]["model_calls"]}
    if sorted(captured) != sorted(shown) or len(shown) != len(row["ng_trajectory"]["model_calls"]):
        yield f"the trajectory has calls {sorted(shown)}, the capture {sorted(captured)}"
    for name in sorted(captured.keys() & shown.keys()):
        one, other = captured[name], shown[name]
        meta, tokens = other["response_metadata"], other.get("token_stats") or {}
        for key in ("request", "response", "started_at", "completed_at"):
            if one[key] != other[key]:
                yield f"call {name}: another {key} than captured"
        for key in ("response_id", "status_code", "finish_reason", "error_category", "model_ref"):
            if meta.get(key) != one.get(key):
                yield f"call {name}: {key} {meta.get(key)!r}, captured {one.get(key)!r}"
        counted = one.get("tokens") or {}
        for mine, theirs in _TOKEN_NAMES.items():
            if tokens.get(mine) != counted.get(theirs):
                yield f"call {name}: {mine} {tokens.get(mine)}, captured {counted.get(theirs)}"


_TOKEN_NAMES = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "reasoning_tokens": "reasoning_tokens",
    "cached_tokens": "cached_tokens",
}


def observed(row: Row) -> Iterator[str]:
    """TE-4 and TE-5: the trajectory shows the observed invocations and tool calls, and no other."""
    trajectory = row["ng_trajectory"]
    for kind, key, own in (
        ("agent_invocation", "invocations", ("invocation_id", "status", "conversation")),
        ("tool_call", "tool_calls", ("invocation_id", "tool_call_id", "status", "duration_ms")),
    ):
        here = [[one.get(name) for name in own] for one in trajectory[key]]
        there = [[one.get(name) for name in own] for one in _records(row, kind)]
        if sorted(map(repr, here)) != sorted(map(repr, there)):
            yield f"{key} of the trajectory are not the observed ones"
    if trajectory["gaps"] != row["ng_agent_observations"]["gaps"]:
        yield "gaps of the trajectory are not the observed ones"


def times(row: Row) -> Iterator[str]:
    """What ends has begun before, and a duration in ms is the time between in s."""
    calls = row["ng_trajectory"]["model_calls"]
    for one in (*_records(row, "tool_call"), *calls, *_calls(row)):
        start, end = one.get("started_at"), one.get("completed_at")
        if start is not None and end is not None and end < start:
            yield f"{_name(one)} ends {start - end:.3f} s before it begins"
    for one in calls:
        between = (one["completed_at"] - one["started_at"]) * 1000
        if abs(one["duration_ms"] - between) > 1:
            yield f"{_name(one)} takes {one['duration_ms']} ms, and {between:.0f} ms are between"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        grade,
        identity,
        invocations,
        hierarchy,
        ownership,
        references,
        steps,
        payloads,
        observed,
        times,
    )
}


def _calls(row: Row) -> Sequence[Row]:
    calls: Sequence[Row] = row["ng_model_call_capture"]["calls"]
    return calls


def _records(row: Row, kind: str) -> list[Row]:
    return [one for one in row["ng_agent_observations"]["records"] if one["kind"] == kind]


def _answered(call: Row) -> bool:
    whole = call.get("error_category") in (None, "incomplete")
    return 200 <= call["status_code"] < 300 and whole


def _matches(ref: Row, calls: Sequence[Row]) -> list[str]:
    """Return the ids of the captured calls that a reference can mean; never by time or order."""
    own = {key: ref[key] for key in ("model_call_id", "model_ref", "response_id") if ref.get(key)}
    return [
        call["model_call_id"]
        for call in calls
        if all(call.get(key) == value for key, value in own.items())
    ]


def _meant(owner: Row, calls: Sequence[Row]) -> Iterator[str]:
    for ref in owner.get("model_calls") or ():
        found = _matches(ref, calls)
        if len(found) == 1:
            yield found[0]


def _repeated(what: str, names: Iterator[object]) -> Iterator[str]:
    for name, times_ in Counter(names).items():
        if times_ > 1:
            yield f"{what} {name} is there {times_} times"


def _name(one: Row) -> str:
    return str(one.get("tool_call_id") or one.get("model_call_id"))
