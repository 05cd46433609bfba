"""Results of commands that yielded: what came at once, and what the polls brought.

The scripted model names the polls of a call ``<call>p1``, ``<call>p2`` and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from sandbox.evidence import payloads
from sandbox.evidence.view import CellEvidence


def sent(cell: CellEvidence, call_id: str) -> list[str]:
    """Return what the model was shown of a call, request by request, polls joined.

    Of a call that was polled only the last text: until the last poll it is not complete.
    """
    requests = [payloads.tool_results(call.dialect, call.request) for call in cell.calls]
    texts = [text for results in requests if (text := whole(results, call_id)) is not None]
    polled = any(polls(results, call_id) for results in requests)
    return texts[-1:] if polled else texts


def kept(cell: CellEvidence, call_id: str) -> list[str]:
    """Return the results of a call in the transcripts; one that was polled has one, joined."""
    named = {item.tool_call_id: item.output for item in cell.tool_results}
    if polls(named, call_id):
        return [text for text in (whole(named, call_id),) if text is not None]
    return [item.output for item in cell.tool_results if item.tool_call_id == call_id]


def whole(results: Mapping[str, str], call_id: str) -> str | None:
    """Return a call's result with what its polls brought; None when there is none."""
    if call_id not in results:
        return None
    return "\n".join((results[call_id], *polls(results, call_id)))


def polls(results: Mapping[str, str], call_id: str) -> list[str]:
    """Return the results of the polls of a call that yielded, oldest first."""
    names = (f"{call_id}p{number}" for number in itertools.count(1))
    return [results[name] for name in itertools.takewhile(results.__contains__, names)]
