"""Replies for the dialect tests: any text, any calls, with or without usage."""

from hypothesis import strategies as st

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.dialect import Call, Reply

ids = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12)
counts = st.integers(0, 10**9)
usages = st.builds(
    TokenUsage,
    input_tokens=counts,
    output_tokens=counts,
    total_tokens=counts,
    reasoning_tokens=counts,
    cached_tokens=counts,
)
calls = st.builds(Call, call_id=ids, name=ids, arguments=st.text(max_size=120))
replies = st.builds(
    Reply,
    id=ids,
    model=st.text(min_size=1, max_size=10),
    created=counts,
    text=st.text(max_size=120),
    reasoning=st.text(max_size=60),
    calls=st.lists(calls, max_size=3).map(tuple),
    length_stop=st.booleans(),
    usage=st.none() | usages,
)
