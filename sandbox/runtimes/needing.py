"""The needs of a bundle, gathered from the ELF files among its entries."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox.runtimes.elf import ElfFile, read_elf
from sandbox.runtimes.entries import Entry, LoaderEntry
from sandbox.runtimes.needs import Needs, ordered
from sandbox.runtimes.staging import Staged
from sandbox.runtimes.words import Cpu

# What every libc of either family brings itself.
_LIBC = (
    *("libc.so", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"),
    *("libutil.so.1", "libresolv.so.2", "libanl.so.1"),
)
_LIBC_STARTS = ("libc.musl-", "ld-linux", "ld-musl-")


def needs_of(
    entries: Mapping[str, Staged], entry: Entry, *, platform: str, cpu: Cpu | None = None
) -> Needs:
    """Return what the ELF files of a bundle need that it does not hold.

    Args:
        entries: everything in the bundle, by name.
        entry: how it is started: what its program needs is needed, the rest is optional.
        platform: whose bundle it is; files for another machine or libc are not counted.
        cpu: what its pin states that its program needs; a file that notes more counts too.
    """
    files = {name: elf for name, elf in _elf_files(entries).items() if _ours(elf, platform)}
    shelf = _Shelf(entries, files, (entry.libraries,) if isinstance(entry, LoaderEntry) else ())
    program = {entry.program} & files.keys()
    started, missing = shelf.closure(program, shelf.folders)
    folders = [folder for name in program for folder in _search(name, files[name])]
    others = files.keys() - started
    _, optional = shelf.closure(others, (*shelf.folders, *folders))
    loader = next((files[name].interpreter for name in program), None)
    optional |= {elf.interpreter for name in others if (elf := files[name]).interpreter}
    versions = [version for elf in files.values() for version in elf.versions]
    asked = [version for name in started for version in files[name].versions]
    return Needs(
        interpreter=loader,
        glibc=_newest(versions, "GLIBC") if loader and platform.endswith("-gnu") else None,
        glibcxx=_newest(asked, "GLIBCXX") if "libstdc++.so.6" in missing else None,
        libraries=tuple(sorted(missing)),
        optional=tuple(sorted(optional - missing - {loader})),
        cpu=max(
            [one for one in (cpu, *(files[name].cpu for name in started)) if one], default=None
        ),
    )


@dataclass(frozen=True)
class _Shelf:
    """The libraries of a bundle."""

    entries: Mapping[str, Staged]
    files: Mapping[str, ElfFile]
    folders: tuple[str, ...]  # searched first by the loader that the launcher starts

    def closure(
        self, roots: Iterable[str], inherited: tuple[str, ...]
    ) -> tuple[set[str], set[str]]:
        """Return every file that ``roots`` load, themselves included, and what is not here."""
        loaded: set[str] = set()
        missing: set[str] = set()
        waiting = [(name, inherited) for name in sorted(roots)]
        while waiting:
            name, inherited = waiting.pop()
            if name in loaded:
                continue
            loaded.add(name)
            folders = (*_search(name, self.files[name]), *inherited)
            for needed in self.files[name].needed:
                found = self._find(_expanded(needed, name), folders)
                if found:
                    waiting.append((found, folders))
                elif needed not in _LIBC and not needed.startswith(_LIBC_STARTS):
                    missing.add(needed)
        sonames = {self.files[name].soname for name in loaded}
        return loaded, missing - {soname for soname in sonames if soname}

    def _find(self, needed: str, folders: Iterable[str]) -> str | None:
        for folder in ("",) if "/" in needed else folders:
            name = posixpath.normpath(posixpath.join(folder, needed))
            for _ in range(8):  # links to links
                target = self.entries[name].target if name in self.entries else None
                if target is None:
                    break
                name = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if name in self.files:
                return name
        return None


def _search(name: str, elf: ElfFile) -> list[str]:
    return [_expanded(part, name) for part in elf.runpath if "ORIGIN" in part]


def _expanded(path: str, name: str) -> str:
    """Expand the loader's word for the folder that the file ``name`` is in."""
    here = posixpath.dirname(name)
    if "ORIGIN" not in path:
        return path
    return posixpath.normpath(path.replace("${ORIGIN}", here).replace("$ORIGIN", here))


def _elf_files(entries: Mapping[str, Staged]) -> dict[str, ElfFile]:
    found = {}
    for name, staged in entries.items():
        if staged.path is None or not staged.elf:
            continue
        with staged.path.open("rb") as stream:
            try:
                found[name] = read_elf(stream)
            except ValueError:  # 32 bits, big endian, or a test file: nothing that starts here
                continue
    return found


def _ours(elf: ElfFile, platform: str) -> bool:
    """Whether the file is for that machine and may be for that libc."""
    _, machine, libc = platform.split("-")
    names = {*elf.needed, elf.interpreter or ""}
    musl = any("musl" in name or name == "libc.so" for name in names)
    gnu = any(name == "libc.so.6" or "ld-linux" in name for name in names)
    return elf.machine == machine and not (gnu if libc == "musl" else musl)


def _newest(versions: Iterable[tuple[str, str]], family: str) -> str | None:
    found = [version for name, version in versions if name == family]
    return max(found, key=ordered, default=None)
