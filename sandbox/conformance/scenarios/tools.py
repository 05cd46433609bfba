"""Scenarios in which the model answers well and the tools are what is watched."""

from __future__ import annotations

import shlex

from sandbox.conformance.scenario import EVERYWHERE, Scenario, home_note, marker, probe
from sandbox.conformance.scenarios.expected import NOT_COMPLETED, completed, gave_up, ok, some
from sandbox.evidence.expectations import Ending
from sandbox.model.script import (
    ParallelToolStep,
    RawToolStep,
    Script,
    Step,
    TextStep,
    ToolStep,
)

DONE = TextStep(text="The task is done.")

_REFUSED = "refused.txt"
_HOME_FILE = "~/home-note.txt"
_MIB = 1024 * 1024
_LINE = "Zeile \u00e4\u00f6\u00fc \u6f22\u5b57 \U0001f600 weiter und weiter"
_BACKGROUND_WAYS = ("", "nohup ", "setsid ")
_THOUGHT = "Thinking about {}: the folder first."


def _script(rollout_id: str, *steps: Step, usage: bool = True) -> Script:
    return Script(seed=rollout_id, steps=(*steps, DONE), usage=usage)


def _two_calls(rollout_id: str) -> Script:
    return _script(rollout_id, probe(rollout_id, 1), probe(rollout_id, 2))


def _first_fails(rollout_id: str) -> Script:
    return _script(rollout_id, probe(rollout_id, 1, exit_code=7), probe(rollout_id, 2))


def _side_by_side(rollout_id: str) -> Script:
    calls = (probe(rollout_id, 1), probe(rollout_id, 2, exit_code=3))
    return _script(rollout_id, ParallelToolStep(calls=calls), probe(rollout_id, 3))


def _nobody_has_it(rollout_id: str) -> Script:
    unknown = RawToolStep(tool_name="tool_that_nobody_has", arguments='{"path": "."}')
    return _script(rollout_id, unknown, probe(rollout_id, 1))


def _half_an_object(rollout_id: str) -> Script:
    arguments = f'{{"command": "touch {_REFUSED}", "cmd": "touch {_REFUSED}"'
    broken = RawToolStep(tool_name=None, arguments=arguments, marker=_REFUSED)
    return _script(rollout_id, broken, probe(rollout_id, 1))


def _twelve_seconds(rollout_id: str) -> Script:
    return _script(rollout_id, probe(rollout_id, 1, first="sleep 12"))


def _twenty_megabytes(rollout_id: str) -> Script:
    return _script(rollout_id, printing(rollout_id, 1, size=20 * _MIB))


def printing(rollout_id: str, number: int, *, size: int) -> ToolStep:
    """Return command ``number``, which prints so many bytes of text, and a line more at most."""
    step = probe(rollout_id, number)
    line_bytes = len(f"0000000 {_LINE}\n".encode())
    lines = size // line_bytes + 1
    program = f'BEGIN{{for(i=0;i<{lines};i++)printf "%07d {_LINE}\\n",i}}'
    command = step.command.removesuffix("exit 0") + f"awk {shlex.quote(program)}; exit 0"
    whole = len(step.output.encode()) + lines * line_bytes
    return step.model_copy(update={"command": command, "output_bytes": whole})


def _background(rollout_id: str, seconds: int, redirect: str) -> Script:
    steps = (
        probe(rollout_id, number, first=f"{way}sleep {seconds}{number}{redirect} &")
        for number, way in enumerate(_BACKGROUND_WAYS, start=1)
    )
    return _script(rollout_id, *steps)


def _at_home(rollout_id: str) -> Script:
    text = f"{rollout_id} was at home"
    lines = (text, "zu Hause")  # two: harnesses may show the command beside its output
    note = home_note(_HOME_FILE)
    command = (
        f"printf '%s' {shlex.quote(text)} > \"$HOME/{_HOME_FILE[2:]}\"; "
        f'printf \'%s\' "$HOME" > "$HOME/{note[2:]}"; '
        f"printf '%s\\n' {' '.join(map(shlex.quote, lines))}; exit 0"
    )
    output = "".join(f"{line}\n" for line in lines)
    return _script(
        rollout_id,
        ToolStep(command=command, marker=_HOME_FILE, marker_text=text, output=output, exit_code=0),
    )


def _no_usage(rollout_id: str) -> Script:
    return _script(rollout_id, probe(rollout_id, 1), usage=False)


def _thinking(rollout_id: str) -> Script:
    step = probe(rollout_id, 1).model_copy(update={"reasoning": _THOUGHT.format(rollout_id)})
    done = DONE.model_copy(update={"reasoning": f"{rollout_id} seems to be done."})
    return Script(seed=rollout_id, steps=(step, done))


TOOL_SUCCESS = Scenario(
    name="tool_success",
    script=_two_calls,
    graded=(marker(1), marker(2)),
    profiles=EVERYWHERE,
    expectation=completed(
        "two tool calls run in the task's workdir, their true output returns, the run ends",
        ok(3),
        tools=2,
    ),
)
TOOL_FAILURE = Scenario(
    name="tool_failure",
    script=_first_fails,
    graded=(marker(1), marker(2)),
    profiles=EVERYWHERE,
    expectation=completed(
        "a command that exits 7 is recorded as failed, and the run goes on and completes",
        ok(3),
        tools=2,
    ),
)
PARALLEL_TOOLS = Scenario(
    name="parallel_tools",
    script=_side_by_side,
    graded=(marker(1), marker(2), marker(3)),
    expectation=completed(
        "two calls of one reply both run, and each keeps its own result, one of them a failure",
        ok(3),
        tools=3,
    ),
)
UNKNOWN_TOOL = Scenario(
    name="unknown_tool",
    script=_nobody_has_it,
    graded=(marker(1),),
    expectation=completed(
        "a call of a tool that does not exist runs nothing, the model is told, the run goes on",
        ok(3),
        alternatives=(gave_up(some(200), outcomes=NOT_COMPLETED, unwanted=True),),
    ),
)
INVALID_TOOL_JSON = Scenario(
    name="invalid_tool_json",
    script=_half_an_object,
    graded=(marker(1),),
    expectation=completed(
        "arguments that are no JSON run nothing, not even repaired; the model is told",
        ok(3),
    ),
)
LONG_TOOL = Scenario(
    name="long_tool",
    script=_twelve_seconds,
    graded=(marker(1),),
    expectation=completed(
        "a command that takes longer than a harness waits is seen to its end, with all its output",
        ok(2, 6),
    ),
)
BIG_OUTPUT = Scenario(
    name="big_output",
    script=_twenty_megabytes,
    graded=(marker(1),),
    expectation=completed(
        "of 20 MB of output the model gets all, or is told what is missing; no letter is broken",
        ok(2, 6),
    ),
)
BACKGROUND_TOOL = Scenario(
    name="background_tool",
    script=lambda rollout_id: _background(rollout_id, 471, " </dev/null >/dev/null 2>&1"),
    graded=(marker(1), marker(2), marker(3)),
    deadline_s=60.0,
    expectation=completed(
        "commands left in the background (plain, nohup, setsid) hold nobody up, and are told of",
        ok(4),
        tools=len(_BACKGROUND_WAYS),
        background=("sleep 471",),
    ),
)
_HELD_UP = tuple(
    Ending(
        exchanges=(some(200),),
        outcomes=NOT_COMPLETED,
        row="rollout",
        reward=float(begun == len(_BACKGROUND_WAYS)),
        tools=begun,
        timed_out=True,
        unwanted=True,
    )
    for begun in range(1, len(_BACKGROUND_WAYS) + 1)
)
"""The deadline comes while a command is waited for that has left its output open."""
BACKGROUND_HELD = Scenario(
    name="background_held",
    script=lambda rollout_id: _background(rollout_id, 472, ""),
    graded=(marker(1), marker(2), marker(3)),
    deadline_s=60.0,
    expectation=completed(
        "commands in the background that keep the tool's output open hold nobody up either",
        ok(4, 12),
        tools=len(_BACKGROUND_WAYS),
        background=("sleep 472",),
        alternatives=_HELD_UP,
    ),
)
HOME_WRITE = Scenario(
    name="home_write",
    script=_at_home,
    graded=(_HOME_FILE,),
    expectation=completed(
        "what a tool writes below HOME is where the verifier looks: in the task's own HOME",
        ok(2),
    ),
)
USAGE_OMITTED = Scenario(
    name="usage_omitted",
    script=_no_usage,
    graded=(marker(1),),
    expectation=completed(
        "replies without token counts leave rows without token counts, not zeros or guesses",
        ok(2),
    ),
)
REASONING = Scenario(
    name="reasoning",
    script=_thinking,
    graded=(marker(1),),
    expectation=completed(
        "reasoning before a call and before the answer is kept, and apart from the answer", ok(2)
    ),
)

SCENARIOS = (
    TOOL_SUCCESS,
    TOOL_FAILURE,
    PARALLEL_TOOLS,
    UNKNOWN_TOOL,
    INVALID_TOOL_JSON,
    LONG_TOOL,
    BIG_OUTPUT,
    BACKGROUND_TOOL,
    BACKGROUND_HELD,
    HOME_WRITE,
    USAGE_OMITTED,
    REASONING,
)
