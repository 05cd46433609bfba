"""Checks of the model exchanges: their statuses, and that every one of them was kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import BaseModel

from sandbox.evidence.checks.check import check
from sandbox.evidence.expectations import StatusRun
from sandbox.evidence.tally import canonical, digest_of
from sandbox.evidence.verdict import Outcome, Tier, failed, judged_by
from sandbox.evidence.view import CellEvidence


@check(
    tier=Tier.P0,
    kind="behavioral",
    group="TE-1",
    why="a harness that gives up early or retries too often changes what a task costs and yields",
)
def error_sequence(cell: CellEvidence) -> Outcome:
    """The statuses of the model calls are the scenario's, and every error was scripted."""
    statuses = [call.status_code for call in cell.calls]
    if not re.fullmatch(_pattern(cell.expected.exchanges), "".join(f"{s}," for s in statuses)):
        wanted = ", ".join(map(str, cell.expected.exchanges)) or "none"
        return failed(f"expected statuses {wanted}; saw {_short(statuses)}")
    return judged_by(
        [
            f"exchange {exchange.exchange_id} has an unscripted status {exchange.status_code}"
            for exchange in cell.exchanges
            if exchange.dialect != "none" and exchange.status_code >= 400 and exchange.fault is None
        ]
    )


def _pattern(runs: Iterable[StatusRun]) -> str:
    return "".join(
        f"(?:{run.status},){{{run.at_least},{'' if run.at_most is None else run.at_most}}}"
        for run in runs
    )


def _short(statuses: list[int]) -> str:
    if not statuses:
        return "none"
    runs: list[list[int]] = []
    for status in statuses:
        if runs and runs[-1][0] == status:
            runs[-1][1] += 1
        else:
            runs.append([status, 1])
    return ", ".join(f"{status}" if n == 1 else f"{status} x{n}" for status, n in runs)


@check(
    tier=Tier.P0,
    kind="behavioral",
    group="TE-1",
    why="an exchange lost, doubled or altered on its way to the row falsifies cost and training",
)
def exchanges_saved(cell: CellEvidence) -> Outcome:
    """The saved exchanges equal what reached the server, and the row's capture equals them."""
    arrived = Counter(cell.seen(cell.witness.exchange_tally, "the exchange tally"))
    saved = Counter(map(digest_of, cell.exchanges))
    faults = _differences("exchange that arrived", arrived, "saved exchange", saved)
    ids = Counter(exchange.exchange_id for exchange in cell.exchanges)
    faults += [f"exchange id {name} occurs {n} times" for name, n in ids.items() if n > 1]
    captured = cell.row.ng_model_call_capture.calls
    if not _written_alike(cell.calls, captured):
        saved, captured_texts = Counter(map(_text, cell.calls)), Counter(map(_text, captured))
        faults += _differences("saved model call", saved, "call in the row", captured_texts)
    return judged_by(faults)


def _written_alike(left: Sequence[BaseModel], right: Sequence[BaseModel]) -> bool:
    """Whether both are the same bytes in the same order: the usual case, and quick to see."""
    return [one.model_dump_json() for one in left] == [one.model_dump_json() for one in right]


def _text(model: BaseModel) -> str:
    return canonical(model.model_dump(mode="json"))


def _differences(
    left_name: str, left: Counter[str], right_name: str, right: Counter[str]
) -> list[str]:
    lost, extra = (left - right).total(), (right - left).total()
    faults = []
    if lost:
        faults.append(f"{lost} {left_name} without an equal {right_name}")
    if extra:
        faults.append(f"{extra} {right_name} without an equal {left_name}")
    return faults


CHECKS = (error_sequence, exchanges_saved)
