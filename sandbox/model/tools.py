"""The shell tool: which of the advertised tools runs a command, and how a call of it is filled in.

Names and argument schemas are read from the request, so a harness may call its tool as it likes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from sandbox.model.dialect import Call, Tool
from sandbox.model.schema import fill, properties, required, resolve, type_names

COMMAND_PROPERTIES = ("command", "cmd", "commands", "script", "shell_command")

# Names that shell tools are known under, best first. A tool under another name is taken when its
# schema asks for a command.
KNOWN_NAMES = (
    "bash",
    "shell",
    "exec_command",
    "shell_command",
    "local_shell",
    "exec",
    "terminal",
    "run_shell_command",
    "run_terminal_cmd",
    "execute_command",
    "run_command",
    "sh",
)
_NAME_HINTS = ("bash", "shell", "exec", "terminal", "command", "run")


class NoShellTool(LookupError):
    """No advertised tool runs a command; the message lists the names that were advertised."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        names = ", ".join(tool.full_name for tool in tools) or "none"
        super().__init__(f"no shell tool is advertised; advertised tools: {names}")


def choose_shell_tool(tools: Sequence[Tool]) -> Tool:
    """The tool that runs a command: a known name first, then a fitting schema.

    Raises:
        NoShellTool: none of them does.
    """
    ranked = [
        (rank, place) for place, tool in enumerate(tools) if (rank := _rank(tool)) is not None
    ]
    if not ranked:
        raise NoShellTool(tools)
    return tools[min(ranked)[1]]


def shell_call(tool: Tool, call_id: str, command: str) -> Call:
    """A call of ``tool`` that runs ``command``; other required arguments follow its schema."""
    return Call(
        call_id=call_id,
        name=tool.name,
        arguments=json.dumps(shell_arguments(tool, command), ensure_ascii=False),
        namespace=tool.namespace,
        form=tool.form,
    )


def shell_arguments(tool: Tool, command: str) -> dict[str, JsonValue]:
    """Arguments of a shell tool call that runs ``command``."""
    if tool.form == "local_shell":
        return {"type": "exec", "command": ["sh", "-c", command], "env": {}}
    name = _command_property(tool.schema)
    if name is None:
        raise NoShellTool([tool])
    schema = resolve(properties(tool.schema)[name], tool.schema)
    arguments = fill(tool.schema, skip=frozenset({name}))
    if "string" in type_names(schema):
        return {name: command, **arguments}
    return {name: ["sh", "-c", command], **arguments}


def _rank(tool: Tool) -> int | None:
    """Place in the order of preference; None for a tool that cannot run a command."""
    if tool.form == "local_shell":
        return KNOWN_NAMES.index("local_shell")
    name = _command_property(tool.schema)
    if name is None:
        return None
    lowered = tool.name.lower()
    if lowered in KNOWN_NAMES:
        return KNOWN_NAMES.index(lowered)
    if name not in required(tool.schema):
        return None
    hinted = any(hint in lowered for hint in _NAME_HINTS)
    return len(KNOWN_NAMES) + (0 if hinted else 1)


def _command_property(schema: Mapping[str, JsonValue]) -> str | None:
    """Name of the property that takes the command: a string, or a list of strings."""
    offered = properties(schema)
    for name in COMMAND_PROPERTIES:
        if name in offered and _takes_command(resolve(offered[name], schema), schema):
            return name
    return None


def _takes_command(schema: Mapping[str, JsonValue], root: Mapping[str, JsonValue]) -> bool:
    names = type_names(schema)
    if "string" in names and "enum" not in schema and "const" not in schema:
        return True
    items = schema.get("items")
    return "array" in names and (
        not isinstance(items, dict) or "string" in type_names(resolve(items, root))
    )
