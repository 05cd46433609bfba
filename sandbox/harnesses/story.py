"""What the walk through a transcript collects of one thread, in the words of the observations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sandbox.evidence.observations import ContextCompaction, ConversationItem, Gap, ModelCallRef
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.native import short

CallT = TypeVar("CallT")
AnswerT = TypeVar("AnswerT")


@dataclass
class Thread(Generic[CallT]):
    """One thread. ``calls`` are its tool calls by id; an entry that is an id is a call's result."""

    invocation_id: str
    context: NativeContext
    calls: dict[str, CallT] = field(default_factory=dict)
    entries: list[ConversationItem | str] = field(default_factory=list)
    model_calls: list[ModelCallRef] = field(default_factory=list)
    compactions: list[ContextCompaction] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def gap(self, code: str, detail: str) -> None:
        """Add a gap of this thread."""
        self.gaps.append(Gap(code=code, invocation_id=self.invocation_id, detail=short(detail)))

    def own(self, gaps: list[Gap]) -> None:
        """Put gaps of the file before the thread's own, as the thread's."""
        mine = [gap.model_copy(update={"invocation_id": self.invocation_id}) for gap in gaps]
        self.gaps = [*mine, *self.gaps]

    def answered(self, response_id: str | None) -> None:
        """Note the model's answer of that id, once."""
        if response_id is None:
            return
        ref = ModelCallRef(model_ref=self.context.model_ref, response_id=response_id)
        if ref not in self.model_calls:
            self.model_calls.append(ref)

    def conversation(
        self, result: Callable[[CallT], ConversationItem | None]
    ) -> tuple[ConversationItem, ...]:
        """Return the conversation; ``result`` gives a call's, None while there is none."""
        items = (
            result(self.calls[entry]) if isinstance(entry, str) else entry for entry in self.entries
        )
        return tuple(item for item in items if item is not None)


@dataclass
class Story(Thread[CallT], Generic[CallT, AnswerT]):
    """A thread of questions and answers.

    ``answer`` is the last one; ``goes_on``: there was more to do after it. ``first_at`` is the time
    of the first question, ``last_at`` of the last thing that counts.
    """

    answer: AnswerT | None = None
    goes_on: bool = False
    first_at: float | None = None
    last_at: float | None = None

    @property
    def duration_ms(self) -> float | None:
        """The time between the two."""
        if self.first_at is None or self.last_at is None:
            return None
        return round(max(0.0, self.last_at - self.first_at) * 1000, 3)
