"""Server-sent events: what is framed comes back, however the bytes are cut."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.model.sse import events, frame, json_events, json_frame

cuts = st.lists(st.integers(1, 9), max_size=60)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    parts = []
    for size in sizes:
        parts.append(data[:size])
        data = data[size:]
    return [*parts, data]


def test_a_frame_has_event_data_and_an_empty_line() -> None:
    assert frame("a", event="e") == b"event: e\ndata: a\n\n"
    assert frame("a\nb") == b"data: a\ndata: b\n\n"


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r"))), cuts)
def test_data_comes_back_however_it_is_cut(texts: list[str], sizes: list[int]) -> None:
    stream = b"".join(frame(text, event="x") for text in texts)

    assert list(events(cut(stream, sizes))) == texts


words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=4,
)


@given(st.lists(st.dictionaries(words, json_values, max_size=3), max_size=4), cuts)
def test_json_comes_back_however_it_is_cut(
    values: list[dict[str, object]], sizes: list[int]
) -> None:
    stream = b"".join(json_frame(value) for value in values)  # type: ignore[arg-type]

    assert list(json_events(cut(stream, sizes))) == values


def test_end_marks_malformed_and_unfinished_events_are_passed_over() -> None:
    stream = [frame("[DONE]"), frame('{"malformed": '), json_frame({"a": 1}), b'data: {"b": 2}']

    assert list(json_events(stream)) == [{"a": 1}]
