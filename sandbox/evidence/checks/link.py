"""Checks of the sandbox's only way out: the model link."""

from __future__ import annotations

from sandbox.evidence.checks.check import check
from sandbox.evidence.egress import destination
from sandbox.evidence.verdict import (
    MissingEvidence,
    Outcome,
    Tier,
    failed,
    judged_by,
    not_applicable,
    passed,
)
from sandbox.evidence.view import CellEvidence

_ALLOWED = {"namespace": {"lo"}, "bridge": {"lo", "eth0"}, "relay": {"lo"}}
_WITHOUT_A_LOG = frozenset({"bridge", "relay"})


@check(
    tier=Tier.P0,
    kind="sandbox",
    group="isolation",
    why="a harness that reaches anything but its own model link makes the run unrepeatable",
)
def model_reached_only_through_link(cell: CellEvidence) -> Outcome:
    """Only lo exists, every model call came under this rollout's prefix, and there was one."""
    if cell.cell.isolation is None:
        raise MissingEvidence("cell.json does not say how the sandbox was isolated")
    interfaces = cell.seen(cell.witness.network_interfaces, "the network interfaces")
    faults = [
        f"unexpected network interface {name}"
        for name in interfaces
        if name not in _ALLOWED[cell.cell.isolation]
    ]
    for exchange in cell.exchanges:
        is_probe = exchange.dialect == "none" and exchange.rollout_id is None
        if exchange.rollout_id != cell.cell.rollout_id and not is_probe:
            whose = exchange.rollout_id or "no rollout"
            faults.append(f"exchange {exchange.exchange_id} at {exchange.path} belongs to {whose}")
    wanted = sum(run.at_least for run in cell.expected.exchanges)
    if not cell.calls and wanted:
        faults.append(f"expected at least {wanted} model exchanges, saw none")
    return judged_by(faults)


@check(
    tier=Tier.P1,
    kind="sandbox",
    group="isolation",
    why="what is tried at run time is a hidden dependency, and slow where nothing answers",
)
def egress_quiet(cell: CellEvidence) -> Outcome:
    """Nobody in the sandbox asked for a name, or tried a bare address."""
    if cell.cell.isolation in _WITHOUT_A_LOG and not cell.files.egress:
        return not_applicable(f"the {cell.cell.isolation} link does not log names")
    tried = sorted({destination(event) for event in cell.egress})
    if tried:
        more = f" and {len(tried) - 5} more" if len(tried) > 5 else ""
        return failed(f"expected that nothing is tried, saw {', '.join(tried[:5])}{more}")
    return passed()


CHECKS = (model_reached_only_through_link, egress_quiet)
