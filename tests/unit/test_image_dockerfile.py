"""Which images a Dockerfile starts from: the grammar, and what counts as pinned."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.engine.imagebuild.dockerfile import BaseImage, base_images
from sandbox.errors import UsageError

D = "sha256:" + "1" * 64
E = "sha256:" + "2" * 64


def references(text: str, **args: str) -> list[str]:
    return [item.reference for item in base_images(text, args)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"FROM a@{D}", [f"a@{D}"]),
        (f"from a@{D}", [f"a@{D}"]),
        (f"FROM\ta@{D}", [f"a@{D}"]),
        (f"FROM --platform=linux/amd64 a@{D} AS base", [f"a@{D}"]),
        (f"ARG P\nFROM --platform=$P a@{D}", [f"a@{D}"]),
        (f"FROM a@{D} AS One\nFROM one\nFROM b@{E}", [f"a@{D}", f"b@{E}"]),
        (f"FROM a@{D}\nFROM scratch\nCOPY --from=0 / /", [f"a@{D}"]),
        (f"FROM a@{D} AS x\nFROM scratch\nCOPY --from=x / /", [f"a@{D}"]),
        (f"FROM a@{D}\nCOPY --from=b:1 / /", [f"a@{D}", "b:1"]),
        (f"FROM a@{D}\nCOPY --chown=1:1 --from=b@{E} / /", [f"a@{D}", f"b@{E}"]),
        (f"FROM a@{D}\nCOPY --from=1 / /", [f"a@{D}", "1"]),
        (f"FROM a@{D}\nCOPY --from=$X / /", [f"a@{D}", "$X"]),
        (f"FROM a@{D}\nONBUILD COPY --from=b / /", [f"a@{D}", "b"]),
        (f"# FROM b\n\n  # c\nFROM \\\n# inside\n\n  a@{D} \\\n  AS x", [f"a@{D}"]),
        (f"# escape=`\nFROM `\n a@{D}", [f"a@{D}"]),
        (f"#syntax=x\n# Escape = `\nFROM `\n a@{D}", [f"a@{D}"]),
        (f"# note\n# escape=`\nFROM \\\n a@{D}", [f"a@{D}"]),
        (f"FROM a@{D}\nRUN echo \\\nFROM b", [f"a@{D}"]),
        (f"\ufeffFROM a@{D}\r\nRUN true\r\n", [f"a@{D}"]),
        (f"FROM a@{D} \\", [f"a@{D}"]),
        (f"FROM {D}", [D]),
        (f"ARG I=a@{D}\nFROM $I", [f"a@{D}"]),
        (f'ARG I="a@{D}"\nFROM "$I"', [f"a@{D}"]),
        (f"ARG N=a\nARG G={D}\nFROM ${{N}}@${{G}}", [f"a@{D}"]),
        (f"ARG N=a G={D}\nFROM $N@$G", [f"a@{D}"]),
        (f"ARG N=a\nARG I=$N@{D}\nFROM ${{I}}", [f"a@{D}"]),
        (f"ARG E=\nFROM ${{E:-a@{D}}}", [f"a@{D}"]),
        (f"FROM ${{E-a@{D}}}", [f"a@{D}"]),
        (f"ARG E=\nFROM a@{D}${{E:+x}}", [f"a@{D}"]),
        (f"ARG B=b@{D}\nFROM ${{A:-${{B}}}}", [f"b@{D}"]),
        (f"FROM a@{D}\nARG X=y\nFROM b@{E}", [f"a@{D}", f"b@{E}"]),
    ],
)
def test_what_it_starts_from(text: str, expected: list[str]) -> None:
    assert references(text, P="linux/arm64") == expected


def test_a_build_argument_wins_only_when_it_is_declared() -> None:
    text = f"ARG BASE=a@{D}\nFROM $BASE"
    assert references(text, BASE=f"b@{E}") == [f"b@{E}"]
    with pytest.raises(UsageError, match="line 1: BASE has no value"):
        references("FROM $BASE", BASE=f"b@{E}")
    with pytest.raises(UsageError, match="line 2: BASE has no value"):
        references("ARG BASE\nFROM ${BASE}")


def test_a_value_is_not_expanded_again() -> None:
    assert references("ARG A\nFROM $A", A="$A") == ["$A"]


def test_an_argument_after_the_first_from_is_not_for_from() -> None:
    with pytest.raises(UsageError, match="line 3: X has no value"):
        references(f"FROM a@{D}\nARG X=b\nFROM $X")


@pytest.mark.parametrize(
    "text",
    ["", "# only a comment", "RUN true", "FROM", "FROM a b", "FROM a AS", "FROM a AS b c",
     "FROM ''", "FROM 'a", "FROM ${A", "FROM ${A%b}", "FROM $", "FROM ${}", "# escape=x\nFROM a"],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        references(text, A="a")


@pytest.mark.parametrize(
    ("reference", "pinned"),
    [
        (f"a@{D}", True),
        (f"a:1@{D}", True),
        (f"localhost:5000/x/a@{D}", True),
        (D, True),
        ("a", False),
        ("a:latest", False),
        ("a@sha256:123", False),
        (f"a@{D}0", False),
        (f"a@{D.upper()}", False),
        ("a@sha512:" + "1" * 128, False),
        ("1" * 64, False),
    ],
)
def test_pinned_means_named_by_its_bytes(reference: str, pinned: bool) -> None:
    image = BaseImage(reference=reference, line=1, instruction="FROM")
    assert image.is_pinned is pinned
    assert image.is_local_id is (reference == D)


def test_the_line_is_where_the_instruction_starts() -> None:
    (first, second) = base_images(
        f"# c\nARG A=a\nFROM \\\n $A@{D}\nRUN true\nCOPY --from=b / /", {}
    )
    assert (first.line, second.line) == (3, 6)
    assert second.instruction == "COPY --from"


@given(st.text(alphabet="FROMas AC@$\\{}:-+\n\t#`'\"=1ARG", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        base_images(text, {"A": "a"})
