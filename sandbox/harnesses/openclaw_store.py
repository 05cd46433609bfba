"""What OpenClaw tells of its sessions beside their transcripts: the index, and its last words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from sandbox.evidence.observations import Gap, InvocationStatus
from sandbox.harnesses.native import find_files, json_value, short, unparseable

Outcome = tuple[InvocationStatus, str | None]

_ABANDONED = {"abandoned", "blocked"}


@dataclass
class Index:
    """``sessions.json``: session ids by key, and for a subagent its parent's key."""

    ids: dict[str, str] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)

    def parent_of(self, session_id: str) -> str | None:
        """Return the session id of a subagent's parent, or the parent's key where that is all."""
        for key, found in self.ids.items():
            if found == session_id and key in self.parents:
                parent = self.parents[key]
                return self.ids.get(parent, parent)
        return None

    def keys_of(self, session_id: str) -> set[str]:
        """Return the keys of a session."""
        return {key for key, found in self.ids.items() if found == session_id}


@dataclass(frozen=True, kw_only=True)
class LastWords:
    """The JSON that ``--json`` prints when a turn is over: which session, and what went wrong."""

    session_id: str | None = None
    trouble: Outcome | None = None


def read_index(native: Path) -> Index:
    """Read the index of sessions; what cannot be read is a gap."""
    index = Index()
    for path in find_files(native, "sessions.json"):
        value = _json(path)
        if isinstance(value, Gap):
            index.gaps.append(value)
            continue
        for key, entry in value.items():
            facts = _dict(entry)
            session_id, parent = _text(facts.get("sessionId")), _text(facts.get("spawnedBy"))
            if session_id is not None:
                index.ids[key] = session_id
                if parent is not None:
                    index.parents[key] = parent
    return index


def read_last_words(native: Path) -> tuple[LastWords, list[Gap]]:
    """Read stdout; a turn that failed or was killed prints nothing, which is no gap."""
    gaps: list[Gap] = []
    words = LastWords()
    for path in find_files(native, "stdout"):
        if not path.stat().st_size:
            continue
        value = _json(path)
        if isinstance(value, Gap):
            gaps.append(value)
            continue
        meta = _dict(value.get("meta"))
        agent = _dict(meta.get("agentMeta"))
        words = LastWords(session_id=_text(agent.get("sessionId")), trouble=_trouble(meta))
    return words, gaps


def _trouble(meta: dict[str, JsonValue]) -> Outcome | None:
    error = _dict(meta.get("error"))
    if error:
        return InvocationStatus.FAILED, short(_text(error.get("kind")) or "error")
    if meta.get("aborted") is True:
        return InvocationStatus.INCOMPLETE, "aborted"
    state = _text(meta.get("livenessState"))
    return (InvocationStatus.FAILED, state) if state in _ABANDONED else None


def _json(path: Path) -> dict[str, JsonValue] | Gap:
    try:
        value = json_value(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        return unparseable(f"{path.name}: {error}")
    return value if isinstance(value, dict) else unparseable(f"{path.name}: not a JSON object")


def _dict(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
