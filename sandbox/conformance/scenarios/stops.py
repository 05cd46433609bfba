"""Scenarios in which the run is stopped, or its sandbox runs out of something."""

from __future__ import annotations

from sandbox.conformance.scenario import EVERYWHERE, Scenario, marker, probe
from sandbox.conformance.scenarios.expected import (
    NOT_COMPLETED,
    STOPPED_SHORT,
    completed,
    failing,
    gave_up,
    ok,
)
from sandbox.conformance.scenarios.tools import DONE
from sandbox.engine.limits import Limits
from sandbox.evidence.expectations import Ending, StatusRun
from sandbox.model.script import HoldStep, Script

_HELD = StatusRun(status=0, at_least=0, at_most=1)
_HELD_AGAIN = StatusRun(status=0, at_least=0, at_most=None)
"""A harness may end the tool and then ask again, each by a limit of its own before the deadline."""
_GULP = "dd if=/dev/zero of=/dev/null bs=3000M count=1"
_EAT = f"(echo 1000 >/proc/self/oom_score_adj; exec {_GULP}) 2>/dev/null"
_FILL = "dd if=/dev/zero of=/tmp/filler bs=65536 2>/dev/null"


def _never_ends(rollout_id: str) -> Script:
    return Script(seed=rollout_id, steps=(probe(rollout_id, 1, exit_code=None), HoldStep()))


def _never_answers(rollout_id: str) -> Script:
    return Script(seed=rollout_id, steps=(probe(rollout_id, 1), HoldStep()))


def _eats_memory(rollout_id: str) -> Script:
    eater = probe(rollout_id, 1, exit_code=137, first=_EAT)
    return Script(seed=rollout_id, steps=(eater, probe(rollout_id, 2), DONE))


def _fills_the_disk(rollout_id: str) -> Script:
    filler = probe(rollout_id, 1, exit_code=1, first=_FILL)
    # no rm: Codex asks before it forces a removal
    cleaner = probe(rollout_id, 2, first=": >/tmp/filler")
    return Script(seed=rollout_id, steps=(filler, cleaner, DONE))


RUN_TIMEOUT = Scenario(
    name="run_timeout",
    script=_never_ends,
    deadline_s=20.0,
    graded=(marker(2),),
    profiles=EVERYWHERE,
    expectation=failing(
        "a tool that never ends is stopped with the run by the task's deadline; "
        "nothing of it lives on, and the verifier still grades what is there",
        Ending(
            exchanges=(ok(1), _HELD_AGAIN),
            outcomes=STOPPED_SHORT,
            row="rollout",
            reward=0.0,
            tools=1,
            timed_out=True,
        ),
    ),
)
CANCEL_DURING_TOOL = Scenario(
    name="cancel_during_tool",
    script=_never_ends,
    cancel="tool",
    deadline_s=90.0,
    expectation=failing(
        "a cancel while a tool runs ends harness and tool, and leaves a record of both",
        gave_up(ok(1), _HELD, outcomes=NOT_COMPLETED, stopped=True, tools=1),
    ),
)
CANCEL_DURING_MODEL = Scenario(
    name="cancel_during_model",
    script=_never_answers,
    cancel="model",
    deadline_s=90.0,
    expectation=failing(
        "a cancel while the model is asked ends the harness; what was done until then is kept",
        gave_up(ok(1), StatusRun(status=0), outcomes=NOT_COMPLETED, stopped=True, tools=1),
    ),
)
TOOL_OOM = Scenario(
    name="tool_oom",
    script=_eats_memory,
    graded=(marker(1), marker(2)),
    limits=Limits(memory_mib=2048),
    deadline_s=180.0,
    expectation=completed(
        "a command killed for its memory is recorded as failed, and harness and sandbox live on",
        ok(3, 6),
        tools=2,
        oom=True,
    ),
)
DISK_FULL = Scenario(
    name="disk_full",
    script=_fills_the_disk,
    limits=Limits(tmp_mib=256),
    graded=(marker(1), marker(2)),
    deadline_s=90.0,
    expectation=completed(
        "a disk filled by a command and freed by the next: the run completes, or says it failed",
        ok(3, 6),
        tools=2,
        lossy=True,
        alternatives=(
            gave_up(ok(1, 6), outcomes=NOT_COMPLETED, tools=1),
            gave_up(ok(1, 6), outcomes=NOT_COMPLETED, tools=2),
        ),
    ),
)

SCENARIOS = (RUN_TIMEOUT, CANCEL_DURING_TOOL, CANCEL_DURING_MODEL, TOOL_OOM, DISK_FULL)
