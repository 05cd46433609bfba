"""What is pinned, by hand: the models of ``pins.toml`` and its loader.

A pins file has four kinds of table: ``[artifact.ID]`` is one downloaded file, ``[tree.ID]`` a whole
dependency tree, ``[harness.NAME]`` says which files of which of them make its runtime on which
platform, ``[[tool.NAME]]`` names a program that this side runs. Unknown keys, dangling names,
platforms named twice and platforms left out are errors that name the file and the key. Other
packages ship pins files of their own.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from sandbox.errors import PrerequisiteMissing, Unsupported, UsageError
from sandbox.runtimes.artifacts import ArtifactPin
from sandbox.runtimes.entries import Entry
from sandbox.runtimes.trees import TreePin
from sandbox.runtimes.words import (
    Cpu,
    File,
    Inside,
    Line,
    Name,
    Platform,
    Runpath,
    Said,
    Variable,
    Word,
)

INSTALLERS = Path(__file__).resolve().parents[2] / "installers"


class _Placed(Said):
    """Where things go in the bundle, and what is done to them on the way.

    Attributes:
        put: a folder (ending in "/") or a file of the bundle.
        leave: what is not taken, relative to ``take`` (for a tree, to ``put``): files, folders
            (ending in "/"), and globs over whole names such as "*.map".
        executable: files (below ``put``, or the name of ``put`` itself) whose archive lost the x
            bit, as wheels do.
        runpath: search paths for libraries to write into such files (runpath.py).
        links: symlinks to add below ``put``: name to sibling.
    """

    put: Inside
    leave: tuple[Inside, ...] = ()
    executable: tuple[File, ...] = ()
    runpath: dict[File, Runpath] = Field(default_factory=dict)
    links: dict[File, File] = Field(default_factory=dict)


class Content(_Placed):
    """Which members of an artifact go where.

    ``take`` is a file, or a folder when it ends in "/" ("./" is everything); ``put`` is of the
    same kind. ``within`` names the member, an archive itself, that ``take`` is looked for in.
    """

    artifact: Name
    within: File | None = None
    take: Literal["./"] | Inside

    @model_validator(mode="after")
    def _same_kind(self) -> Self:
        if self.take.endswith("/") != self.put.endswith("/"):
            raise ValueError("take and put must both be files, or both folders (ending in '/')")
        if not self.take.endswith("/") and (self.leave or self.links):
            raise ValueError("leave and links need a folder in take")
        return self


class TreeContent(_Placed):
    """A whole dependency tree, below the folder ``put``.

    ``bytecode``: every Python file below ``put`` comes compiled, whatever brought it there; the
    pinned tool ``python`` does that.
    """

    tree: Name
    bytecode: bool = False

    @model_validator(mode="after")
    def _a_folder(self) -> Self:
        if not self.put.endswith("/"):
            raise ValueError("put must be a folder (ending in '/')")
        return self


class Runtime(Said):
    """One bundle, for every platform named; ``version*`` override the harness's own.

    ``cpu`` says what its program needs of an x64 CPU, where its files do not say it themselves.
    """

    platforms: Annotated[tuple[Platform, ...], Field(min_length=1)]
    entry: Entry
    content: Annotated[tuple[Content, ...], Field(min_length=1)]
    tree: tuple[TreeContent, ...] = ()
    version: Word | None = None
    version_output: Line | None = None
    cpu: Cpu | None = None

    @model_validator(mode="after")
    def _cpu_of_x64(self) -> Self:
        if self.cpu and not all("-x64-" in platform for platform in self.platforms):
            raise ValueError(f"cpu {self.cpu} is a word for linux-x64-* only")
        return self


class HarnessPin(Said):
    """A harness, and its runtime for each of the ``platforms`` that it promises.

    ``version_argv`` follows the entry; ``version_output`` is all that it must print to stdout, or
    its first line where ``version_first_line`` says so; ``version_env`` is set for that alone.
    ``unavailable`` says why there is no runtime for a platform.
    """

    licence: Line
    version: Word
    version_argv: tuple[Line, ...] = ("--version",)
    version_output: Line
    version_first_line: bool = False
    version_env: dict[Variable, Line] = Field(default_factory=dict)
    platforms: Annotated[tuple[Platform, ...], Field(min_length=1)]
    unavailable: dict[Platform, Line] = Field(default_factory=dict)
    runtime: tuple[Runtime, ...]

    @model_validator(mode="after")
    def _each_platform_once(self) -> Self:
        served = Counter(platform for runtime in self.runtime for platform in runtime.platforms)
        promised = Counter(self.platforms)
        if twice := sorted(p for p in served if served[p] > 1 or promised[p] > 1):
            raise ValueError(f"platform named twice: {', '.join(twice)}")
        if missing := sorted(promised.keys() - served.keys()):
            raise ValueError(f"no runtime for the promised platform: {', '.join(missing)}")
        if both := sorted(promised.keys() & self.unavailable.keys()):
            raise ValueError(f"promised and unavailable: {', '.join(both)}")
        if extra := sorted(served.keys() - promised.keys()):
            raise ValueError(f"runtime for a platform that is not promised: {', '.join(extra)}")
        return self

    def runtime_for(self, platform: str) -> Runtime:
        """Return the runtime for ``platform``; ``Unsupported`` names the platforms there are."""
        for runtime in self.runtime:
            if platform in runtime.platforms:
                return runtime
        reasons = {str(key): reason for key, reason in self.unavailable.items()}
        why = f" ({reasons[platform]})" if platform in reasons else ""
        raise Unsupported(
            f"no pin for platform {platform}{why}; pinned: {', '.join(self.platforms)}",
            cure="use an image of a pinned platform, or add a runtime table to pins.toml",
        )


class ToolPin(Said):
    """A program that this side runs on its own ``platform``: ``program [script] ARG...``.

    ``within`` names the member, an archive itself, that holds it.
    """

    platform: Platform
    artifact: Name
    within: File | None = None
    program: File
    script: File | None = None


class Pins(Said):
    """A whole pins file."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    artifact: dict[Name, ArtifactPin]
    tree: dict[Name, TreePin] = Field(default_factory=dict)
    harness: dict[Name, HarnessPin]
    tool: dict[Name, tuple[ToolPin, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_meet(self) -> Self:
        used = set(self._used_artifacts())
        if dangling := sorted(used - self.artifact.keys()):
            raise ValueError(f"no [artifact.{dangling[0]}] table, but it is used")
        if unused := sorted(self.artifact.keys() - used):
            raise ValueError(f"[artifact.{unused[0]}] is used by nothing")
        trees = {tree.tree for runtime in self._runtimes() for tree in runtime.tree}
        if odd := sorted(trees ^ self.tree.keys()):
            raise ValueError(f"[tree.{odd[0]}] is used by nothing, or used and not there")
        for one in (tree for runtime in self._runtimes() for tree in runtime.tree if tree.bytecode):
            if self.tree[one.tree].client != "pip" or "python" not in self.tool:
                raise ValueError(
                    f"tree {one.tree}: bytecode needs a tree of pip and [[tool.python]]"
                )
        for name, tools in self.tool.items():
            if len({tool.platform for tool in tools}) < len(tools):
                raise ValueError(f"tool {name}: a platform is named twice")
        return self

    def _used_artifacts(self) -> Iterator[str]:
        for runtime in self._runtimes():
            yield from (content.artifact for content in runtime.content)
        for tools in self.tool.values():
            yield from (tool.artifact for tool in tools)

    def _runtimes(self) -> Iterator[Runtime]:
        for harness in self.harness.values():
            yield from harness.runtime

    def platforms_of_tree(self, name: str) -> tuple[Platform, ...]:
        """Return the platforms whose bundles hold that tree, sorted."""
        using = (r for r in self._runtimes() if any(one.tree == name for one in r.tree))
        return tuple(sorted({platform for runtime in using for platform in runtime.platforms}))

    def bringing(self, platform: str) -> dict[str, str]:
        """Return the artifact that brings each library that some runtime of a platform is given."""
        return {
            link.rpartition("/")[2]: content.artifact
            for runtime in self._runtimes()
            for content in runtime.content
            for link in content.links
            if platform in runtime.platforms and ".so" in link
        }

    def digest(self) -> str:
        """Return the sha256 of what the file says; comments and layout do not count.

        Neither does a key with its default value: one that this project adds later must not make
        the locks of other packages stale.
        """
        said = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        text = json.dumps(said, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def digest_of(self, harness: str) -> str:
        """Return the sha256 of all that is said of one harness, its artifacts and trees."""
        pin = self.harness[harness]
        artifacts = {one.artifact for runtime in pin.runtime for one in runtime.content}
        trees = {one.tree for runtime in pin.runtime for one in runtime.tree}
        said = {
            "harness": _given(pin),
            "artifact": {one: _given(self.artifact[one]) for one in artifacts},
            "tree": {one: _given(self.tree[one]) for one in trees},
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def harness_pin(self, name: str) -> HarnessPin:
        """Return the pin of harness ``name``; ``UsageError`` names the ones there are."""
        try:
            return self.harness[name]
        except KeyError:
            raise UsageError(
                f"no pin for harness {name!r}", cure=f"one of: {', '.join(sorted(self.harness))}"
            ) from None


def _given(said: Said) -> object:
    return said.model_dump(mode="json", exclude_defaults=True)


def default_pins_path() -> Path:
    """Return the path of this project's own pins file."""
    return INSTALLERS / "pins.toml"


def load_pins(path: Path | None = None) -> Pins:
    """Read and check a pins file (this project's own when ``path`` is None).

    Raises:
        PrerequisiteMissing: there is no such file.
        UsageError: it is not TOML, or says something that is not a pin; names file and key.
    """
    path = path or default_pins_path()
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise PrerequisiteMissing(
            f"no pins file {path}", cure="run from a checkout of the repository, or name the file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}", cure="correct that line") from error
    try:
        return Pins.model_validate(data)
    except ValidationError as error:
        raise UsageError(explain(path, error), cure="correct these keys") from error


def explain(path: Path, error: ValidationError) -> str:
    """Say what is wrong in ``path``, one line for each key."""
    lines = [f"{_key(item['loc'])}: {item['msg']}" for item in error.errors()]
    return "\n  ".join([f"{path} is not valid:", *lines])


def _key(location: Iterable[int | str]) -> str:
    return ".".join(str(part) for part in location) or "(whole file)"


def is_below(name: str, folder_or_file: str) -> bool:
    """Whether ``name`` is that file, or lies in that folder (which ends in "/")."""
    if folder_or_file.endswith("/"):
        return name.startswith(folder_or_file)
    return PurePosixPath(name) == PurePosixPath(folder_or_file)
