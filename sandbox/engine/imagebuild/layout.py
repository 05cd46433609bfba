"""Small changes on top of a recipe's root file system: what stays, folders, files, links."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, BinaryIO

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from sandbox.engine.imagebuild.tree import Entry, Kind, Selection, read_small
from sandbox.errors import IntegrityError


def _plain_absolute(path: str) -> str:
    if not re.fullmatch(r"(/[^/\0]+)+", path) or {".", ".."} & set(path.split("/")):
        raise ValueError("must be an absolute path below / without . and .. in it")
    return path


AbsolutePath = Annotated[str, AfterValidator(_plain_absolute)]
Mode = Annotated[str, StringConstraints(pattern=r"^[0-7]{3,4}$")]
Owner = Annotated[str, StringConstraints(pattern=r"^[0-9]+:[0-9]+$")]


class Part(BaseModel):
    """A table of an ``image.toml``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Folder(Part):
    """A folder to be there; ``mode`` is octal, ``owner`` is ``uid:gid``."""

    mode: Mode = "0755"
    owner: Owner = "0:0"


class TextFile(Folder):
    """A file with exactly this text."""

    mode: Mode = "0644"
    text: str


class Layout(Part):
    """Changes to a root file system, in the order of the keys.

    Attributes:
        keep: patterns; when there are some, nothing else of the recipe's files stays. A star
            stands for any characters but a slash.
        folders: folders by path, made or changed.
        files: files by path, made or replaced.
        append: text to put at the end of a file that is there, by path.
        links: paths of symbolic links by their target.
    """

    keep: tuple[str, ...] = ()
    folders: dict[AbsolutePath, Folder] = Field(default_factory=dict)
    files: dict[AbsolutePath, TextFile] = Field(default_factory=dict)
    append: dict[AbsolutePath, str] = Field(default_factory=dict)
    links: dict[str, tuple[AbsolutePath, ...]] = Field(default_factory=dict)


def whole(entries: Iterable[Entry], layout: Layout, *, epoch: int) -> tuple[Entry, ...]:
    """Give the root file system with the changes in it.

    Raises:
        IntegrityError: a pattern keeps nothing, or a file to append to is not there.
    """
    held = {item.path: item for item in _kept(tuple(entries), layout.keep)}
    held |= changes(held, layout, epoch=epoch)
    for path in list(held):
        for above in _folders_above(path):
            held.setdefault(above, _folder(above, Folder(), epoch))
    return tuple(held.values())


def on_top(entries: Iterable[Entry], layout: Layout, *, epoch: int) -> tuple[Entry, ...]:
    """Give the changes alone, as a layer on top of ``entries``, with the folders they are in.

    A layer that leaves out a folder would give it the builder's mode, so each comes as it is.

    Raises:
        IntegrityError: a file to append to is not there, or files are to be left out.
    """
    if layout.keep:
        raise IntegrityError("a layer on top of another image cannot leave out its files")
    below = {item.path: item for item in entries}
    changed = changes(below, layout, epoch=epoch)
    for path in list(changed):
        for above in _folders_above(path):
            known = below.get(above) or _folder(above, Folder(), epoch)
            changed.setdefault(above, known)
    return tuple(changed.values())


def changes(below: Mapping[str, Entry], layout: Layout, *, epoch: int) -> dict[str, Entry]:
    """Give what the layout adds or replaces, by relative path."""
    made = [_folder(path, folder, epoch) for path, folder in layout.folders.items()]
    made += [_file(path, file, epoch) for path, file in layout.files.items()]
    made += [_appended(below, path, text, epoch) for path, text in layout.append.items()]
    made += [
        Entry(path=path.lstrip("/"), kind=Kind.SYMLINK, mode=0o777, mtime=epoch, target=target)
        for target, paths in layout.links.items()
        for path in paths
    ]
    return {item.path: item for item in made}


def _kept(entries: tuple[Entry, ...], patterns: tuple[str, ...]) -> tuple[Entry, ...]:
    if not patterns:
        return entries
    for pattern in patterns:
        if all(Selection(drop=[pattern]).has(item.path) for item in entries):
            raise IntegrityError(f"root file system: nothing is there to keep for {pattern!r}")
    others = Selection(drop=patterns)
    wanted = {item.path for item in entries if not others.has(item.path)}
    wanted |= {above for path in wanted for above in _folders_above(path)}
    return tuple(item for item in entries if item.path in wanted)


def _folders_above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _folder(path: str, folder: Folder, epoch: int) -> Entry:
    uid, _, gid = folder.owner.partition(":")
    return Entry(
        path=path.lstrip("/"),
        kind=Kind.FOLDER,
        mode=int(folder.mode, 8),
        uid=int(uid),
        gid=int(gid),
        mtime=epoch,
    )


def _file(path: str, file: TextFile, epoch: int) -> Entry:
    data = file.text.encode()
    return replace(
        _folder(path, file, epoch), kind=Kind.FILE, size=len(data), content=_opener(data)
    )


def _appended(below: Mapping[str, Entry], path: str, text: str, epoch: int) -> Entry:
    item = below.get(path.lstrip("/"))
    before = read_small(below.values(), path.lstrip("/"))
    if item is None or before is None:
        raise IntegrityError(f"root file system: there is no file {path} to append to")
    data = before + text.encode()
    return replace(item, mtime=epoch, size=len(data), content=_opener(data))


def _opener(data: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(data)
