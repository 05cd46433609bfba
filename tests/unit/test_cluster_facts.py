"""Which worker may not work on a run, told by its name."""

from __future__ import annotations

import pytest

from sandbox.conformance.cluster.facts import Facts, code_digest, refuse
from sandbox.errors import Unsupported
from sandbox.evidence.cell import RunConfiguration

OURS = Facts(
    package="0.1.0",
    code=code_digest(),
    python="3.11",
    architecture="x86_64",
    pins={"codex linux-x64-musl": "1.0 sha256:aa", "pi linux-x64-musl": "1.0 sha256:bb"},
    adapters={"codex": "11", "pi": "22"},
)
RUN = RunConfiguration(
    profile="quick",
    plan=("codex+legacy/alpine-3.23/tool_success",),
    pins={"codex linux-x64-musl": "1.0 sha256:aa"},
)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"python": "3.12"}, "its Python is 3.12, ours 3.11"),
        ({"architecture": "aarch64"}, "its engine is for aarch64"),
        ({"code": "other", "package": "0.2"}, r"its package is 0.2 \(other\), ours 0.1.0"),
        ({"pins": {}}, "its pin of codex linux-x64-musl is missing, ours 1.0 sha256:aa"),
        ({"pins": {"codex linux-x64-musl": "1.1 sha256:cc"}}, "is 1.1 sha256:cc, ours"),
        ({"adapters": {"codex": "33"}}, "its adapter of codex is 33, ours 11"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_another_worker_is_refused_by_name(change: dict[str, object], says: str) -> None:
    with pytest.raises(Unsupported, match=f"worker w7: .*{says}"):
        refuse("w7", OURS.model_copy(update=change), OURS, RUN)


def test_what_the_run_does_not_use_may_differ() -> None:
    theirs = OURS.model_copy(update={"pins": RUN.pins, "adapters": {"codex": "11"}})
    refuse("w7", theirs, OURS, RUN)
