"""Damage done to recorded evidence, for the adapters' tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
"""Any JSON value."""


def put_anything_anywhere(record: dict[str, Any], data: st.DataObject) -> None:
    """Replace one value of a record, at any depth, by any other."""
    target, key = record, data.draw(st.sampled_from(sorted(record)))
    while isinstance(target[key], dict) and target[key] and data.draw(st.booleans()):
        target = target[key]
        key = data.draw(st.sampled_from(sorted(target)))
    target[key] = data.draw(JSON)
