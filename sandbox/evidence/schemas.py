"""The published JSON Schemas of everything that a run's folder holds, by name and version.

Dialect: JSON Schema 2020-12, as written (serialised) by this version. A change that old readers
cannot read gets a new version.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from sandbox.evidence.benches import BenchRecord
from sandbox.evidence.cell import CellRecord, RunRecord, WitnessRecord
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.observations import Observations
from sandbox.evidence.records import CleanupReceipt, EgressEvent, FileChange, InstallReceipt
from sandbox.evidence.results import CellVerdicts, RunVerdicts
from sandbox.evidence.rows import FailureRow, SuccessRow

VERSION = "1.0"
SCHEMAS: dict[str, tuple[type[BaseModel], str]] = {
    "rollout-row": (SuccessRow, "a line of rollouts.jsonl"),
    "failure-row": (FailureRow, "a line of failures.jsonl"),
    "observations": (Observations, "what an agent reports of a session"),
    "run": (RunRecord, "run.json"),
    "cell": (CellRecord, "cell.json"),
    "witness": (WitnessRecord, "witness.json"),
    "exchange": (Exchange, "a line of exchanges.jsonl"),
    "cleanup-receipt": (CleanupReceipt, "receipt.json"),
    "install-receipt": (InstallReceipt, "install.json"),
    "file-change": (FileChange, "an entry of footprint.json"),
    "egress-event": (EgressEvent, "a line of egress.jsonl"),
    "cell-verdicts": (CellVerdicts, "verdicts.json"),
    "run-verdicts": (RunVerdicts, "the judged run that reports are made of"),
    "bench": (BenchRecord, "what `sandbox bench --json` prints"),
}


def schema(name: str) -> dict[str, Any]:
    """Return the schema of that name; raises KeyError for an unknown one."""
    model, text = SCHEMAS[name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:sandbox:schema:{name}:{VERSION}",
        "$comment": text,
        **model.model_json_schema(by_alias=True, mode="serialization"),
    }


def schema_text(name: str) -> str:
    """Return the published form of a schema."""
    return json.dumps(schema(name), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
