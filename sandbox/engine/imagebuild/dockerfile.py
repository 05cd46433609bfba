"""Which images a Dockerfile starts from, and whether each is pinned by its digest.

Follows the grammar of the classic builder (Dockerfile reference: parser directives, line
continuation, ARG before the first FROM, variable expansion, stages, ``COPY --from``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sandbox.errors import UsageError

_DIRECTIVE = re.compile(r"^#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*$")
_PINNED = re.compile(r"^([^\s@]+@)?sha256:[0-9a-f]{64}$")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)((?P<operator>:?[-+])(?P<word>.*))?", re.DOTALL
)
_NO_IMAGE = "scratch"


@dataclass(frozen=True, kw_only=True)
class BaseImage:
    """An image from outside that a Dockerfile uses: what it is called and where it says so."""

    reference: str
    line: int
    instruction: str

    @property
    def is_pinned(self) -> bool:
        """Say whether the reference names bytes: ``name@sha256:..`` or an image ID."""
        return _PINNED.match(self.reference) is not None

    @property
    def is_local_id(self) -> bool:
        """Say whether it is the ID of an image the engine has, which no registry can give."""
        return self.reference.startswith("sha256:")


@dataclass(frozen=True, kw_only=True)
class _Instruction:
    line: int
    keyword: str
    rest: str


def base_images(text: str, build_args: Mapping[str, str]) -> tuple[BaseImage, ...]:
    """List the outside images of the Dockerfile ``text``, in order.

    Args:
        text: the Dockerfile.
        build_args: values for ARG names; they win over the defaults in the file.

    Raises:
        UsageError: the file has no FROM, or a FROM that cannot be understood.
    """
    found: list[BaseImage] = []
    stages: list[str] = []
    args: dict[str, str] = {}
    for item in _instructions(text):
        if item.keyword == "ARG" and not stages:
            args |= _declared(item, args, build_args)
        elif item.keyword == "FROM":
            reference, alias = _from(item, args)
            if reference.lower() not in {*stages, _NO_IMAGE}:
                found.append(BaseImage(reference=reference, line=item.line, instruction="FROM"))
            stages.append(alias.lower() or f"\0{len(stages)}")
        elif item.keyword in {"COPY", "ADD", "ONBUILD"}:
            found.extend(_copied_from(item, stages))
    if not stages:
        raise UsageError("the Dockerfile has no FROM line")
    return tuple(found)


def _instructions(text: str) -> Iterator[_Instruction]:
    """Give the logical lines: continuation joined, comments and empty lines gone."""
    lines = text.lstrip("\N{BOM}").splitlines()
    escape = _escape(lines)
    parts: list[str] = []
    start = 0
    for number, line in enumerate([*lines, ""], start=1):
        last = number > len(lines)
        if not last and (not line.strip() or line.lstrip().startswith("#")):
            continue  # also inside a continued instruction, as the builder does it
        start = start if parts else number
        body = line.rstrip()
        continued = body.endswith(escape) and not last
        parts.append(body[: -len(escape)] if continued else line)
        if not continued:
            whole = "".join(parts).strip()
            parts = []
            if whole:
                keyword, _, rest = whole.replace("\t", " ").partition(" ")
                yield _Instruction(line=start, keyword=keyword.upper(), rest=rest.strip())


def _escape(lines: list[str]) -> str:
    for line in lines:
        directive = _DIRECTIVE.match(line.strip())
        if directive is None:
            break  # directives stand before everything else
        if directive[1].lower() == "escape":
            if directive[2] not in {"\\", "`"}:
                raise UsageError(f"Dockerfile: the escape directive is {directive[2]!r}")
            return directive[2]
    return "\\"


def _words(item: _Instruction) -> list[str]:
    try:
        return shlex.split(item.rest)
    except ValueError as error:
        raise UsageError(f"Dockerfile line {item.line}: {error}") from error


def _declared(
    item: _Instruction, args: Mapping[str, str], build_args: Mapping[str, str]
) -> dict[str, str]:
    """Read ``ARG NAME[=default] ...``; a name without any value stays undefined."""
    known = dict(args)
    for word in _words(item):
        name, equals, default = word.partition("=")
        if name in build_args:
            known[name] = build_args[name]
        elif equals:
            known[name] = _expand(default, known, item.line)
    return known


def _from(item: _Instruction, args: Mapping[str, str]) -> tuple[str, str]:
    """Read ``FROM [--platform=..] image [AS name]``: the image and the stage's name or ''."""
    words = [_expand(word, args, item.line) for word in _words(item)]
    while words and words[0].startswith("--"):
        words.pop(0)
    match words:
        case [image] if image:
            return image, ""
        case [image, keyword, alias] if image and keyword.upper() == "AS":
            return image, alias
    raise UsageError(f"Dockerfile line {item.line}: cannot read FROM {item.rest!r}")


def _copied_from(item: _Instruction, stages: list[str]) -> Iterator[BaseImage]:
    for word in item.rest.split():
        if word.startswith("--from="):
            source = word.removeprefix("--from=").strip("\"'")
            if source.lower() in stages or (source.isdigit() and int(source) < len(stages)):
                continue
            yield BaseImage(reference=source, line=item.line, instruction="COPY --from")


def _expand(text: str, args: Mapping[str, str], line: int) -> str:
    """Put in the values of ``$NAME``, ``${NAME}``, ``${NAME:-word}`` and ``${NAME:+word}``."""
    done: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        done.append(text[at:dollar])
        if text.startswith("{", dollar + 1):
            end = _closing_brace(text, dollar + 1)
            inner = _BRACED.fullmatch(text[dollar + 2 : end]) if end else None
            value = _braced(inner, args, line) if inner else None
            at = end + 1
        else:
            bare = _NAME.match(text, dollar + 1)
            value = _value(bare[0], args, line) if bare else None
            at = bare.end() if bare else 0
        if value is None:
            raise UsageError(f"Dockerfile line {line}: cannot expand {text!r}")
        done.append(value)
    return "".join([*done, text[at:]])


def _closing_brace(text: str, opening: int) -> int:
    """Give the index of the brace that closes the one at ``opening``; 0 when there is none."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return 0


def _braced(inner: re.Match[str], args: Mapping[str, str], line: int) -> str:
    name, operator = inner["name"], inner["operator"]
    if operator is None:
        return _value(name, args, line)
    present = bool(args.get(name)) if operator.startswith(":") else name in args
    if operator.endswith("-"):
        return args[name] if present else _expand(inner["word"], args, line)
    return _expand(inner["word"], args, line) if present else ""


def _value(name: str, args: Mapping[str, str], line: int) -> str:
    try:
        return args[name]
    except KeyError:
        raise UsageError(
            f"Dockerfile line {line}: {name} has no value",
            cure=f"declare ARG {name} with a value before the first FROM",
        ) from None
