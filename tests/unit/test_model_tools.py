"""The shell tool: chosen from what harnesses really advertise, and filled in from any schema."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.model.dialect import Tool
from sandbox.model.schema import fill, resolve, type_names, value_for
from sandbox.model.tools import NoShellTool, choose_shell_tool, shell_arguments, shell_call

TEXT = {"type": "string"}


def tool(name: str, required: tuple[str, ...] = (), **properties: Any) -> Tool:
    return Tool(
        name=name,
        schema={"type": "object", "properties": properties, "required": list(required)},
    )


# The shell tools of the pinned harnesses, as their requests advertise them (shortened to what
# decides), each beside the tools that must not be taken for it.
CODEX = (
    tool("write_stdin", ("session_id",), session_id={"type": "number"}, chars=TEXT),
    tool(
        "exec_command",
        ("cmd",),
        cmd=TEXT,
        login={"type": "boolean"},
        prefix_rule={"type": "array", "items": TEXT},
        yield_time_ms={"type": "number"},
    ),
)
OPENCODE = (
    tool("task", ("description", "prompt"), description=TEXT, prompt=TEXT, command=TEXT),
    tool("bash", ("command",), command=TEXT, timeout={"type": "integer"}, workdir=TEXT),
)
CLAUDE = (
    tool("Task", ("prompt",), prompt=TEXT),
    tool("Bash", ("command",), command=TEXT, description=TEXT, timeout={"type": "number"}),
)
OPENCLAW = (
    tool("process", ("action",), action=TEXT),
    tool("exec", ("command",), command=TEXT, yieldMs={"type": "number"}),
)
HERMES = (tool("terminal", ("command",), command=TEXT, background={"type": "boolean"}),)


@pytest.mark.parametrize(
    ("tools", "name"),
    [
        (CODEX, "exec_command"),
        (OPENCODE, "bash"),
        (CLAUDE, "Bash"),
        (OPENCLAW, "exec"),
        (HERMES, "terminal"),
    ],
    ids=["codex", "opencode", "claude-code", "openclaw", "hermes"],
)
def test_the_shell_tool_of_each_harness_is_chosen(tools: tuple[Tool, ...], name: str) -> None:
    assert choose_shell_tool(tools).name == name
    assert choose_shell_tool(tuple(reversed(tools))).name == name


def test_an_unknown_name_is_chosen_by_its_schema() -> None:
    tools = (tool("read", ("path",), path=TEXT), tool("do_it", ("command",), command=TEXT))

    assert choose_shell_tool(tools).name == "do_it"


def test_a_telling_name_beats_another_unknown_one() -> None:
    tools = (tool("git", ("command",), command=TEXT), tool("my_shell", ("cmd",), cmd=TEXT))

    assert choose_shell_tool(tools).name == "my_shell"


def test_an_optional_command_does_not_make_a_shell_tool() -> None:
    with pytest.raises(NoShellTool):
        choose_shell_tool((tool("task", ("prompt",), prompt=TEXT, command=TEXT),))


def test_a_command_from_a_fixed_list_does_not_make_a_shell_tool() -> None:
    editor = tool("edit", ("command",), command={"type": "string", "enum": ["view", "create"]})

    with pytest.raises(NoShellTool):
        choose_shell_tool((editor,))


def test_without_a_shell_tool_the_refusal_lists_the_names() -> None:
    tools = (tool("read", path=TEXT), Tool(name="spawn", schema={}, namespace="agents"))

    with pytest.raises(NoShellTool, match=r"advertised tools: read, agents\.spawn$"):
        choose_shell_tool(tools)


def test_without_any_tool_the_refusal_says_none() -> None:
    with pytest.raises(NoShellTool, match=r"advertised tools: none$"):
        choose_shell_tool(())


def test_only_command_and_required_arguments_are_sent() -> None:
    assert shell_arguments(OPENCODE[1], "true") == {"command": "true"}
    assert shell_arguments(CODEX[1], "true") == {"cmd": "true"}


def test_a_required_description_and_timeout_are_filled() -> None:
    claude = tool(
        "Bash",
        ("command", "description", "timeout"),
        command=TEXT,
        description={"type": "string", "minLength": 1},
        timeout={"type": "number", "maximum": 600_000, "description": "in milliseconds"},
    )

    arguments = shell_arguments(claude, "true")

    assert arguments == {"command": "true", "description": "Scripted command", "timeout": 120_000}


@pytest.mark.parametrize(
    "command",
    [{"type": "array", "items": TEXT}, {"type": "array"}, {"items": {"type": ["string", "null"]}}],
    ids=["strings", "anything", "untyped"],
)
def test_a_list_of_words_gets_sh(command: dict[str, Any]) -> None:
    shell = tool("shell", ("command",), command=command)

    assert shell_arguments(shell, "a | b") == {"command": ["sh", "-c", "a | b"]}


def test_a_command_that_may_be_text_or_list_gets_text() -> None:
    either = {"anyOf": [{"type": "array", "items": TEXT}, TEXT]}

    assert shell_arguments(tool("shell", ("command",), command=either), "x") == {"command": "x"}


def test_a_local_shell_call_carries_its_action() -> None:
    local = Tool(name="local_shell", schema={}, form="local_shell")

    call = shell_call(choose_shell_tool((local,)), "c1", "true")

    assert json.loads(call.arguments)["command"] == ["sh", "-c", "true"]
    assert call.form == "local_shell"


def test_a_call_keeps_the_namespace() -> None:
    inner = Tool(name="bash", schema=OPENCODE[1].schema, namespace="box")

    assert shell_call(inner, "c1", "true").namespace == "box"


def test_references_unions_and_merges_are_followed() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "required": ["a", "b", "c"],
        "properties": {
            "a": {"$ref": "#/$defs/level"},
            "b": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 3}]},
            "c": {"allOf": [{"type": "string"}, {"maxLength": 3}]},
        },
        "$defs": {"level": {"enum": ["low", "high"]}},
    }

    assert fill(schema) == {"a": "low", "b": 3, "c": "Scr"}


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "required": ["child"],
        "properties": {"child": {"$ref": "#"}, "loop": {"$ref": "#/properties/loop"}},
    }

    assert fill({**schema, "required": ["loop"]}) == {"loop": "Scripted command"}
    assert "child" in fill(schema)


def test_a_folder_argument_is_the_current_one() -> None:
    assert value_for("workdir", {"type": "string"}, {}) == "."


# --- any schema -------------------------------------------------------------------------------

numbers = st.builds(
    lambda kind, low, span, exclusive: {
        "type": kind,
        ("exclusiveMinimum" if exclusive else "minimum"): low,
        ("exclusiveMaximum" if exclusive else "maximum"): low + span + 2 * exclusive,
    },
    st.sampled_from(["integer", "number"]),
    st.integers(-(10**6), 10**6),
    st.integers(0, 10**6),
    st.booleans(),
)
texts = st.builds(
    lambda low, span: {"type": "string", "minLength": low, "maxLength": low + span},
    st.integers(0, 40),
    st.integers(0, 40),
)
fixed = st.one_of(
    st.builds(lambda values: {"enum": values}, st.lists(st.integers() | st.text(), min_size=1)),
    st.builds(lambda value: {"const": value}, st.integers() | st.text() | st.none()),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"type": ["null", "string"]}),
)
names = st.sampled_from(["timeout_ms", "timeout", "description", "workdir", "mode", "count", "x"])


def inside(schemas: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.builds(
            lambda items, least: {"type": "array", "items": items, "minItems": least},
            schemas,
            st.integers(0, 3),
        ),
        st.builds(
            lambda properties: {
                "type": "object",
                "properties": properties,
                "required": list(properties),
            },
            st.dictionaries(names, schemas, max_size=4),
        ),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(schemas, min_size=1, max_size=3)),
    )


schemas = st.recursive(numbers | texts | fixed, inside, max_leaves=8)
CHECKS = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """A reader of its own, so that the filling is not checked by itself."""
    if "anyOf" in schema:
        return any(accepts(part, value) for part in schema["anyOf"])
    if "enum" in schema:
        return bool(value in schema["enum"])
    if "const" in schema:
        return bool(value == schema["const"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(CHECKS[kind](value) for kind in kinds):
        return False
    if isinstance(value, str):
        return bool(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9))
    if isinstance(value, list):
        fits = [accepts(schema["items"], item) for item in value]
        return bool(len(value) >= schema.get("minItems", 0)) and all(fits)
    if isinstance(value, dict):
        return all(accepts(schema["properties"][key], value[key]) for key in schema["required"])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        inside = schema.get("minimum", value) <= value <= schema.get("maximum", value)
        above = schema.get("exclusiveMinimum", value - 1) < value
        below = value < schema.get("exclusiveMaximum", value + 1)
        return bool(inside and above and below)
    return True


@given(st.dictionaries(names, schemas, min_size=1))
def test_any_required_argument_fits_its_schema(properties: dict[str, Any]) -> None:
    shell = tool("bash", ("command", *properties), command=TEXT, **properties)

    arguments = shell_arguments(shell, "true")

    assert arguments.pop("command") == "true"
    assert set(arguments) == set(properties)
    for name, value in arguments.items():
        assert accepts(properties[name], value), (name, properties[name], value)
    json.dumps(arguments, allow_nan=False)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(),
        lambda inner: st.dictionaries(
            st.sampled_from(["type", "properties", "required", "items", "anyOf", "$ref", "enum"]),
            inner | st.lists(inner, max_size=3),
        ),
        max_leaves=12,
    )
)
def test_nonsense_never_breaks_the_reading(schema: Any) -> None:
    offered = schema if isinstance(schema, dict) else {}

    fill(offered)
    type_names(resolve(offered, offered))
    with pytest.raises(NoShellTool):
        choose_shell_tool((Tool(name="odd", schema=offered),))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5}, 0.25),
        ({"type": "integer", "minimum": 1, "multipleOf": 5}, 5),
        ({"type": "integer", "default": 30}, 30),
        ({"minimum": -9007199254740991, "exclusiveMinimum": 0, "type": "integer"}, 1),
    ],
    ids=["narrow", "multiple", "default", "opencode"],
)
def test_numbers_keep_their_bounds(schema: dict[str, Any], value: float) -> None:
    assert value_for("count", schema, {}) == value
