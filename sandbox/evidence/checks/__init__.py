"""All checks, one module for each family of evidence, in the order in which reports show them."""

from __future__ import annotations

from sandbox.evidence.checks import (
    attribution,
    calls,
    cleanup,
    drift,
    guarantees,
    install,
    joins,
    link,
    observed,
    outcome,
    refusals,
    replies,
    schema,
    sessions,
    tools,
)
from sandbox.evidence.checks.check import Check

CHECKS: dict[str, Check] = {
    check.id: check
    for family in (
        schema,
        outcome,
        link,
        calls,
        replies,
        tools,
        refusals,
        observed,
        joins,
        attribution,
        drift,
        sessions,
        install,
        cleanup,
        guarantees,
    )
    for check in family.CHECKS
}
