"""Output frames and bounds, whatever chunks they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.engine.output import BoundedOutput, Demultiplexer, Stream
from sandbox.errors import EngineFailure

FRAMES = st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.binary(max_size=40)), max_size=12)


def encode(frames: list[tuple[int, bytes]]) -> bytes:
    return b"".join(
        bytes([number, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for number, data in frames
    )


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


def collect(pieces: list[bytes]) -> tuple[bytes, bytes, Demultiplexer]:
    out, err = bytearray(), bytearray()
    demultiplexer = Demultiplexer(stdout=out.extend, stderr=err.extend)
    for piece in pieces:
        demultiplexer.feed(memoryview(piece))
    return bytes(out), bytes(err), demultiplexer


@given(FRAMES, st.lists(st.integers(0, 30), max_size=20))
def test_streams_are_taken_apart_in_any_chunks(
    frames: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    out, err, demultiplexer = collect(cut(encode(frames), sizes))
    assert out == b"".join(data for number, data in frames if number != 2)
    assert err == b"".join(data for number, data in frames if number == 2)
    assert demultiplexer.finished()


@given(FRAMES.filter(lambda frames: encode(frames) != b""), st.data())
def test_a_cut_stream_is_a_prefix(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = encode(frames)
    out, err, _ = collect([whole[: data.draw(st.integers(0, len(whole) - 1))]])
    full_out, full_err, _ = collect([whole])
    assert full_out.startswith(out)
    assert full_err.startswith(err)


@pytest.mark.parametrize(
    "broken", [b"HTTP/1.1", b"\x01\x00\x01\x00\x00\x00\x00\x01", b"\x04" + bytes(7)]
)
def test_what_is_no_frame_is_an_engine_failure(broken: bytes) -> None:
    with pytest.raises(EngineFailure, match="stream is broken"):
        collect([broken])


def test_an_error_frame_is_an_engine_failure() -> None:
    with pytest.raises(EngineFailure, match="the engine says: it broke"):
        collect(cut(encode([(1, b"x"), (3, b"it broke")]), [3, 9, 7]))


@given(st.lists(st.binary(max_size=30), max_size=30), st.integers(0, 80))
def test_ends_are_kept_within_the_bound(chunks: list[bytes], cap: int) -> None:
    bounded, whole = BoundedOutput(cap), b"".join(chunks)
    for chunk in chunks:
        bounded.write(memoryview(chunk))
    stream = bounded.stream()
    assert stream.total == len(whole)
    assert stream.truncated == (len(whole) > cap)
    assert whole.startswith(stream.head)
    assert whole.endswith(stream.tail)
    assert len(stream.data) == min(cap, len(whole))
    assert stream.truncated or stream.data == stream.head == whole


@given(st.text(min_size=1, max_size=60), st.integers(0, 40))
def test_text_cuts_no_character(text: str, cap: int) -> None:
    whole = text.encode("utf-8", "replace")
    bounded = BoundedOutput(cap)
    bounded.write(memoryview(whole))
    stream = bounded.stream()
    if stream.truncated:
        head, _, tail = stream.text.partition("\n[... ")
        assert whole.decode().startswith(head)
        assert whole.decode().endswith(tail.partition(" bytes left out ...]\n")[2])
    else:
        assert stream.text == whole.decode()


def test_an_empty_stream() -> None:
    assert (Stream().data, Stream().text, Stream().truncated) == (b"", "", False)
