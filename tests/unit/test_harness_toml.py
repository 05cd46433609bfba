"""The TOML writer, read back by Python's own parser."""

from __future__ import annotations

import math
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.harnesses.toml import dumps

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALAR = st.one_of(
    TEXT,
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(allow_nan=False),
)
VALUE = SCALAR | st.lists(SCALAR)
DOCUMENT = st.recursive(
    st.dictionaries(TEXT, VALUE, max_size=4),
    lambda inner: st.dictionaries(TEXT, VALUE | inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(document=DOCUMENT)
def test_what_is_written_is_read_back(document: dict[str, object]) -> None:
    assert tomllib.loads(dumps(document)) == document


def test_not_a_number_is_written() -> None:
    read = tomllib.loads(dumps({"x": math.nan}))
    assert math.isnan(read["x"])


def test_types_are_kept_apart() -> None:
    read = tomllib.loads(dumps({"flag": True, "one": 1, "real": 1.0, "text": "1"}))
    assert [type(value) for value in read.values()] == [bool, int, float, str]


def test_keys_with_dots_spaces_and_quotes_stay_one_key() -> None:
    document = {"projects": {"/a b.c/\"d'": {"trust_level": "untrusted"}}, "": "empty"}
    assert tomllib.loads(dumps(document)) == document


def test_a_value_after_a_table_does_not_fall_into_it() -> None:
    document = {"table": {"inner": 1}, "after": 2}
    assert tomllib.loads(dumps(document)) == document


@pytest.mark.parametrize("value", [None, b"bytes", object()], ids=["none", "bytes", "object"])
def test_what_toml_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be written as TOML"):
        dumps({"x": value})
