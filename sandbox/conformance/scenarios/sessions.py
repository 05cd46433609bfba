"""Scenarios with more than one agent, or more than one history."""

from __future__ import annotations

from sandbox.conformance.scenario import Scenario, marker, probe
from sandbox.conformance.scenarios.expected import completed, ok
from sandbox.conformance.scenarios.faults import one_tool
from sandbox.conformance.scenarios.tools import DONE, printing
from sandbox.model.script import Script, SubagentStep, TextStep

_FULL_CONTEXT = 980_000
"""Tokens that leave no room in a window of 200,000, nor in one of a million."""

_WORDY = 40_000
"""Bytes that a command prints: three of them are more than harnesses keep in any case."""


def _hands_on(rollout_id: str) -> Script:
    subagent = SubagentStep(
        prompt=f"Run the command that you are given, then report ({rollout_id} subagent).",
        steps=(probe(rollout_id, 1), TextStep(text="The subagent is done.")),
    )
    return Script(seed=rollout_id, steps=(subagent, DONE))


def _fills_the_context(rollout_id: str) -> Script:
    # harnesses keep the newest part of a history, so there has to be an older one
    one, two, three = (printing(rollout_id, number, size=_WORDY) for number in (1, 2, 3))
    full = three.model_copy(update={"reported_tokens": _FULL_CONTEXT})
    last = DONE.model_copy(update={"reported_tokens": _FULL_CONTEXT})
    steps = (one, two, full, probe(rollout_id, 4), last)
    summary = "<summary>The commands ran as they should.</summary>"
    return Script(seed=rollout_id, steps=steps, compacts=True, helper_text=summary)


def _meets(rollout_id: str, number: int, other: int) -> Script:
    """One command that waits until the other session's command runs too, for a minute at most."""
    wait = f"n=0; while [ ! -e {marker(other)} ] && [ $n -lt 60 ]; do sleep 1; n=$((n+1)); done"
    return Script(seed=rollout_id, steps=(probe(rollout_id, number, first=wait), DONE))


SUBAGENT = Scenario(
    name="subagent",
    script=_hands_on,
    graded=(marker(1),),
    deadline_s=90.0,
    expectation=completed(
        "a subagent's calls, tools and end are its own, joined to the call that started it",
        ok(2, 10),
        subagents=1,
        needs="subagents",
    ),
)
CONTEXT_COMPACTION = Scenario(
    name="context_compaction",
    script=_fills_the_context,
    graded=(marker(1), marker(2), marker(3), marker(4)),
    deadline_s=90.0,
    expectation=completed(
        "a history that no longer fits is shortened, on record, and the run goes on",
        ok(5, 12),
        tools=4,
        compaction=True,
        needs="compaction",
    ),
)
TWO_SESSIONS = Scenario(
    name="two_sessions",
    script=lambda rollout_id: _meets(rollout_id, 1, 2),
    companion=lambda rollout_id: _meets(rollout_id, 2, 1),
    graded=(marker(1),),
    expectation=completed(
        "two sessions at once in one sandbox share nothing: folders, models, calls, processes",
        ok(2, 8),
        companion=True,
    ),
)
RESUME_AFTER_CLOSE = Scenario(
    name="resume_after_close",
    script=one_tool(),
    graded=(marker(1),),
    expectation=completed(
        "a closed session refuses to be activated again", ok(2), reactivated=True
    ),
)

SCENARIOS = (SUBAGENT, CONTEXT_COMPACTION, TWO_SESSIONS, RESUME_AFTER_CLOSE)
