"""The scripted model server: the only room that knows starlette and uvicorn."""

from sandbox.model.faults import (
    CutFault,
    EmptyFault,
    Fault,
    LengthFault,
    MalformedFault,
    StallFault,
    StatusFault,
    StreamErrorFault,
    fault_name,
)
from sandbox.model.script import (
    HoldStep,
    ParallelToolStep,
    RawToolStep,
    Script,
    Step,
    SubagentStep,
    TextStep,
    ToolStep,
)
from sandbox.model.server import ModelServer

__all__ = [
    "CutFault",
    "EmptyFault",
    "Fault",
    "HoldStep",
    "LengthFault",
    "MalformedFault",
    "ModelServer",
    "ParallelToolStep",
    "RawToolStep",
    "Script",
    "StallFault",
    "StatusFault",
    "Step",
    "StreamErrorFault",
    "SubagentStep",
    "TextStep",
    "ToolStep",
    "fault_name",
]
