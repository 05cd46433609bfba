"""Just enough JSON Schema to fill in the required arguments of an advertised tool.

Reads ``type``, ``enum``, ``const``, ``default``, bounds, lengths, ``items``, ``properties``,
``required``, ``anyOf``/``oneOf``/``allOf`` and local ``$ref`` (JSON Schema 2020-12 and draft 7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

Schema = Mapping[str, JsonValue]

_ORDER = ("string", "integer", "number", "boolean", "array", "object", "null")
_MAX_DEPTH = 16
_TIMEOUT_S = 120


def properties(schema: Schema) -> dict[str, Schema]:
    """The properties of an object schema that are schemas themselves."""
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: sub for name, sub in found.items() if isinstance(sub, dict)}


def required(schema: Schema) -> tuple[str, ...]:
    """Names of the required properties, in the schema's order."""
    found = schema.get("required")
    names = found if isinstance(found, list) else []
    return tuple(name for name in names if isinstance(name, str))


def resolve(schema: Schema, root: Schema, depth: int = 0) -> Schema:
    """A schema with ``$ref`` followed, ``allOf`` merged and the best alternative taken."""
    if depth > _MAX_DEPTH:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return resolve({**_target(reference, root), **rest}, root, depth + 1)
    for key in ("allOf", "anyOf", "oneOf"):
        parts = schema.get(key)
        if not isinstance(parts, list):
            continue
        rest = {name: value for name, value in schema.items() if name != key}
        schemas = [part for part in parts if isinstance(part, dict)]
        chosen = schemas if key == "allOf" else [_best(schemas, root, depth + 1)]
        merged: dict[str, Any] = {}
        for part in chosen:
            merged.update(resolve(part, root, depth + 1))
        return resolve({**merged, **rest}, root, depth + 1)
    return schema


def type_names(schema: Schema) -> tuple[str, ...]:
    """Types that a schema allows; guessed from its other keywords when it names none."""
    found = schema.get("type")
    if isinstance(found, str):
        return (found,)
    if isinstance(found, list):
        return tuple(name for name in found if isinstance(name, str))
    if "properties" in schema:
        return ("object",)
    if "items" in schema:
        return ("array",)
    if "enum" in schema or "const" in schema:
        return ()
    return ("string",)


def fill(schema: Schema, *, skip: frozenset[str] = frozenset()) -> dict[str, JsonValue]:
    """An object with every required property of ``schema`` but those in ``skip``."""
    root = schema
    return _object(resolve(schema, root), root, skip, 0)


def value_for(name: str, schema: Schema, root: Schema, depth: int = 0) -> JsonValue:
    """A value that ``schema`` accepts and that means nothing odd under the name ``name``."""
    schema = resolve(schema, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    allowed = type_names(schema)
    kind = next((kind for kind in _ORDER if kind in allowed), "string")
    makers: dict[str, Callable[[], JsonValue]] = {
        "string": lambda: _string(name, schema),
        "integer": lambda: _number(name, schema, whole=True),
        "number": lambda: _number(name, schema, whole=False),
        "boolean": lambda: False,
        "array": lambda: _array(name, schema, root, depth),
        "object": lambda: dict(_object(schema, root, frozenset(), depth + 1)),
    }
    return makers[kind]() if kind in makers else None


def _object(schema: Schema, root: Schema, skip: frozenset[str], depth: int) -> dict[str, JsonValue]:
    if depth > _MAX_DEPTH:
        return {}
    offered = properties(schema)
    return {
        name: value_for(name, offered.get(name, {}), root, depth)
        for name in required(schema)
        if name not in skip
    }


def _array(name: str, schema: Schema, root: Schema, depth: int) -> JsonValue:
    items = schema.get("items")
    least = schema.get("minItems")
    if not isinstance(least, int) or depth > _MAX_DEPTH:
        return []
    item = items if isinstance(items, dict) else {}
    return [value_for(name, item, root, depth + 1) for _ in range(least)]


def _string(name: str, schema: Schema) -> str:
    lowered = name.lower()
    is_folder = any(word in lowered for word in ("workdir", "cwd", "dir", "path"))
    text = "." if is_folder else "Scripted command"
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int):
        text = text.ljust(least, "." if is_folder else "x")
    return text[:most] if isinstance(most, int) else text


def _number(name: str, schema: Schema, *, whole: bool) -> int | float:
    wanted = _wanted_number(name, schema)
    low, high = _bounds(schema, whole=whole)
    value = min(max(wanted, low), high)
    step = schema.get("multipleOf")
    if isinstance(step, (int, float)) and step > 0:
        below = math.floor(value / step) * step
        value = below if below >= low else below + step
    return int(value) if whole or float(value).is_integer() else value


def _wanted_number(name: str, schema: Schema) -> float:
    text = f"{name} {schema.get('description', '')}".lower()
    if not any(word in text for word in ("timeout", "time_out", "deadline", "yield")):
        return 0
    in_ms = "millisecond" in text or "_ms" in text or name.endswith("Ms")
    return _TIMEOUT_S * 1000 if in_ms else _TIMEOUT_S


def _bounds(schema: Schema, *, whole: bool) -> tuple[float, float]:
    """Least and greatest value; open ends are moved inside."""
    low = max(_limit(schema, "minimum", -math.inf), _limit(schema, "exclusiveMinimum", -math.inf))
    high = min(_limit(schema, "maximum", math.inf), _limit(schema, "exclusiveMaximum", math.inf))
    inside = 1.0 if whole else min(1.0, (high - low) / 2)
    if low == _limit(schema, "exclusiveMinimum", -math.inf):
        low += inside
    if high == _limit(schema, "exclusiveMaximum", math.inf):
        high -= inside
    return low, high


def _limit(schema: Schema, key: str, otherwise: float) -> float:
    found = schema.get(key)
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return found if is_number else otherwise  # type: ignore[return-value]


def _best(schemas: list[dict[str, JsonValue]], root: Schema, depth: int) -> Schema:
    """The first alternative by the order of types, so that null is taken last."""

    def place(schema: Schema) -> int:
        names = type_names(resolve(schema, root, depth))
        return min((_ORDER.index(name) for name in names if name in _ORDER), default=len(_ORDER))

    return min(schemas, key=place, default={})


def _target(reference: str, root: Schema) -> Schema:
    """What a local reference (``#/$defs/name``) points at; empty when it points nowhere."""
    value: JsonValue = dict(root)
    for part in reference.removeprefix("#/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
