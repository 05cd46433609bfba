"""Which images a user means: names and globs, ``all``, references, files with one of these a line.

A cell id has a part for the image, so a reference is written there with ``+`` for ``/``: no
reference holds a plus, so the name tells the reference again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sandbox.engine.imagebuild.definition import ImageDef
from sandbox.errors import UsageError
from sandbox.evidence.records import Record

ALL = "all"
_WILD = frozenset("*?[")
_OF_A_REFERENCE = frozenset(":/@")


class ImageWords(Record):
    """What was meant: every image that exists for this run, and globs that choose of them."""

    known: tuple[str, ...]
    globs: tuple[str, ...]


def image_name(reference: str) -> str:
    """Give the name that cells know a reference by."""
    return reference.replace("/", "+")


def reference_of(name: str) -> str | None:
    """Give the reference that a cell's image stands for; None for a defined image."""
    if not (_OF_A_REFERENCE | {"+"}) & set(name):
        return None
    return name.replace("+", "/")


def read_image_words(words: Sequence[str], defined: Mapping[str, ImageDef]) -> ImageWords:
    """Read the words of ``--image``; without one the default images are meant.

    A word with ``:``, ``/`` or ``@`` that is no file is a reference; ``all`` means all images that
    can be made here: with a recipe, or with a locked base. An emulated image is meant by its name
    only.

    Raises:
        UsageError: a file cannot be read, or names an image that is not defined.
        PrerequisiteMissing: a defined image is named whose base is not locked.
    """
    lines = tuple(_lines_of_files(words, defined))
    obtainable = tuple(
        name
        for name, item in defined.items()
        if item.is_obtainable and (name in lines or not item.emulated)
    )
    if not words:
        return ImageWords(
            known=obtainable, globs=tuple(name for name in obtainable if defined[name].default)
        )
    known = dict.fromkeys(obtainable)
    globs: list[str] = []
    for word in lines:
        if word == ALL:
            globs.append("*")
        elif word in defined or _WILD & set(word) or not _OF_A_REFERENCE & set(word):
            globs.append(word)
            _expect_locked(word, defined)
        else:
            known[image_name(word)] = None
            globs.append(image_name(word))
    return ImageWords(known=tuple(known), globs=tuple(globs))


def _expect_locked(word: str, defined: Mapping[str, ImageDef]) -> None:
    item = defined.get(word)
    if item is not None and item.registry is not None and not item.is_obtainable:
        item.registry.reference  # noqa: B018 - says that it is not locked, and the cure


def _lines_of_files(words: Iterable[str], defined: Mapping[str, ImageDef]) -> Iterator[str]:
    for word in words:
        if word in defined or not Path(word).is_file():
            yield word
            continue
        yield from image_lines(Path(word))


def image_lines(path: Path) -> tuple[str, ...]:
    """Read a file with one image a line; empty lines and what follows a ``#`` do not count.

    Raises:
        UsageError: it cannot be read, or has no image.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the images in {path}: {error}") from error
    found = tuple(word for line in lines if (word := line.partition("#")[0].strip()))
    if not found:
        raise UsageError(f"{path} names no image", cure="write one image a line")
    return found
