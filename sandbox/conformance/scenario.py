"""What a scenario is: prompt, script, faults, verifier, deadline and expectations, as data."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sandbox.engine.limits import DEFAULT_LIMITS, Limits
from sandbox.evidence.expectations import Expectation
from sandbox.model.script import Script, ToolStep

Profile = Literal["quick", "full", "slow"]
KEY_PREFIX = "sk-local-"
"""The model key of a rollout is this and its id."""
VerifierKind = Literal["files", "broken", "judge"]
CancelMoment = Literal["tool", "model"]
EVERYWHERE: tuple[Profile, ...] = ("quick", "full")
PROMPT = "Work on the task in this folder with the shell tool, step by step, then report."


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One scripted task.

    Args:
        name: the scenario's part of a cell id.
        expectation: the true result, with the line that says what the scenario proves.
        script: makes the model's script for one rollout id, so that no two rollouts share a text.
        deadline_s: the task's own agent deadline, in seconds by the host clock.
        graded: names of the files below the workdir that the verifier wants: reward 1.0 when each
            holds its step's text, else 0.0. A name that begins with ``~/`` is below the task's
            HOME.
        profiles: the profiles that the scenario is part of.
        prompt: what the harness is told.
        workspace: texts of files that are in the workdir before the agent comes.
        verifier: ``files`` grades ``graded`` alone; ``judge`` asks the model for its opinion too;
            ``broken`` ends with an error.
        cancel: when the episode is cancelled: while the script's last tool runs, or while the model
            is asked and does not answer.
        limits: what the sandbox may use.
        companion: makes the script of another session that works in the same sandbox meanwhile.
    """

    name: str
    expectation: Expectation
    script: Callable[[str], Script]
    deadline_s: float = 120.0
    graded: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ("full",)
    prompt: str = PROMPT
    workspace: Mapping[str, str] = field(default_factory=dict)
    verifier: VerifierKind = "files"
    cancel: CancelMoment | None = None
    limits: Limits = DEFAULT_LIMITS
    companion: Callable[[str], Script] | None = None


def probe(rollout_id: str, number: int, *, exit_code: int | None = 0, first: str = "") -> ToolStep:
    """Return the scripted command number ``number``: it leaves a marker, prints, and exits.

    The marker is written through a relative path, so it proves the working directory too; the
    value of HOME goes to a file beside it. ``exit_code`` None: the command never ends by itself.
    ``first`` is sh that runs between the marker and the output; it must print nothing.
    """
    text = f"{rollout_id}-{number}"
    output = f"first line {text}\nzweite Zeile äöü 漢字 {text}\n"
    ending = "while :; do sleep 1; done" if exit_code is None else f"exit {exit_code}"
    command = (
        f"printf '%s' {shlex.quote(text)} > {marker(number)}; "
        f"printf '%s' \"$HOME\" > {home_note(marker(number))}; "
        f"{first}{_after(first)}"
        f"printf '%s\\n' {' '.join(shlex.quote(line) for line in output.splitlines())}; "
        f"{ending}"
    )
    return ToolStep(
        command=command,
        marker=marker(number),
        marker_text=text,
        output=output,
        exit_code=exit_code,
    )


def _after(first: str) -> str:
    """What separates a command from the next: ``&`` does it by itself."""
    return "" if not first else " " if first.endswith("&") else "; "


def marker(number: int) -> str:
    """Return the file that command ``number`` writes, relative to the task workdir."""
    return f"probe-{number}.txt"


def home_note(name: str) -> str:
    """Return the file beside the marker ``name`` that its command writes its HOME to."""
    return f"{name.removesuffix('.txt')}.home"
