"""The scenario in which a harness shows what it declares of its tools (check ``drift``)."""

from __future__ import annotations

from sandbox.conformance.scenario import KEY_PREFIX, Scenario, marker, probe
from sandbox.evidence.expectations import Expectation, StatusRun
from sandbox.evidence.notes import AT_ONCE, BASH, KEY_SEEN, note_of
from sandbox.evidence.observations import InvocationStatus
from sandbox.model.script import ParallelToolStep, Script, TextStep, ToolStep

_PATIENCE = 6
"""Seconds that a command waits for the other one; Codex leaves a command alone after ten."""

_END = "exit 0"


def _unlike(word: str) -> str:
    """Return a pattern that finds the word and does not hold it: the command's text is kept."""
    return f"[{word[0]}]{word[1:]}"


def _noting(rollout_id: str, number: int, other: int) -> ToolStep:
    """Return command ``number``, which also notes its shell, the key and command ``other``."""
    step, own = probe(rollout_id, number), marker(number)
    command = (
        f"{step.command.removesuffix(_END)}"
        f'[ -z "${{BASH_VERSION-}}" ] || : > {note_of(own, BASH)}; '
        f"! env | grep -q '{_unlike(KEY_PREFIX + rollout_id)}' || : > {note_of(own, KEY_SEEN)}; "
        f"n=0; while [ ! -e {marker(other)} ] && [ $n -lt {_PATIENCE} ]; "
        "do n=$((n + 1)); sleep 1; done; "
        f"[ ! -e {marker(other)} ] || : > {note_of(own, AT_ONCE)}; "
        f"{_END}"
    )
    return step.model_copy(update={"command": command})


def _both_in_one_reply(rollout_id: str) -> Script:
    calls = (_noting(rollout_id, 1, 2), _noting(rollout_id, 2, 1))
    done = TextStep(text="The task is done.")
    return Script(seed=rollout_id, steps=(ParallelToolStep(calls=calls), done))


DECLARED = Scenario(
    name="declared_traits",
    script=_both_in_one_reply,
    graded=(marker(1), marker(2)),
    profiles=("full",),
    expectation=Expectation(
        proves="two calls of one reply run at once or in turn, in the shell and with the key in "
        "sight or not, as the harness declares",
        exchanges=(StatusRun(status=200, at_least=2, at_most=2),),
        outcomes=(InvocationStatus.COMPLETED,),
        row="rollout",
        reward=1.0,
        tools=2,
    ),
)
