"""A pins file, its lock and its trees' sources in a folder of their own, to be tried there."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import UsageError
from sandbox.runtimes.lock import lock_path_for
from sandbox.runtimes.pins import Pins
from sandbox.runtimes.treesource import companions


@dataclass(frozen=True)
class WorkingCopy:
    """The copy of ``original`` at ``pins_path``; ``before`` is what was copied, by its name."""

    original: Path
    pins_path: Path
    before: Mapping[str, bytes]

    def changed(self) -> tuple[str, ...]:
        """Return the files that are others now, relative to the pins file's folder."""
        return tuple(sorted(name for name in self._names() if self._copied(name)))

    def write_back(self) -> tuple[Path, ...]:
        """Put what changed in place of the original files; return their paths.

        Raises:
            UsageError: an original changed meanwhile; nothing was written.
        """
        for name in self.changed():
            path = self.original.parent / name
            if (path.read_bytes() if path.is_file() else None) != self.before.get(name):
                raise UsageError(
                    f"{path} changed meanwhile", cure="nothing was written: run the command again"
                )
        return tuple(self._replaced(name) for name in self.changed())

    def _names(self) -> set[str]:
        here = self.pins_path.parent
        return {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()}

    def _copied(self, name: str) -> bool:
        return (self.pins_path.parent / name).read_bytes() != self.before.get(name)

    def _replaced(self, name: str) -> Path:
        path = self.original.parent / name
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            shutil.copyfile(self.pins_path.parent / name, temporary)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        return path


@contextmanager
def working_copy(pins: Pins, pins_path: Path) -> Iterator[WorkingCopy]:
    """Copy a pins file with all that belongs to it; the copy is gone at the end."""
    home = pins_path.resolve().parent
    files = [pins_path.resolve(), lock_path_for(pins_path.resolve())]
    for tree in pins.tree.values():
        files += companions(tree, home / pins_path.name)
    before = {
        path.relative_to(home).as_posix(): path.read_bytes() for path in files if path.is_file()
    }
    with tempfile.TemporaryDirectory(prefix="sandbox-pins-") as folder:
        for name, data in before.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        yield WorkingCopy(home / pins_path.name, Path(folder) / pins_path.name, before)
