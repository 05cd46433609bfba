"""Where the members of an artifact, or of a tree's packages, go in a bundle; pure."""

from __future__ import annotations

import posixpath
from fnmatch import fnmatchcase

from sandbox.runtimes.lock import LockedPackage
from sandbox.runtimes.pins import Content, TreeContent, is_below
from sandbox.runtimes.trees import NpmTreePin, PipTreePin


def content_place(name: str, content: Content) -> str | None:
    """Return where an archive member goes, or None when it is not wanted."""
    take = content.take.removeprefix("./")
    if take and not is_below(name, take):
        return None
    if not content.take.endswith("/"):
        return content.put
    rest = name.removeprefix(take)
    if _is_left(rest, content):
        return None
    return content.put + rest


def _is_left(name: str, content: Content | TreeContent) -> bool:
    return any(fnmatchcase(name, one) or is_below(name, one) for one in content.leave)


def package_places(
    name: str, package: LockedPackage, tree: NpmTreePin | PipTreePin, content: TreeContent
) -> tuple[str, ...]:
    """Return every place, relative to ``put``, of a package's member; none when it is left."""
    if isinstance(tree, NpmTreePin):
        rest = name.partition("/")[2]  # npm takes whatever the first folder is called
        found = [f"{path}/{rest}" for path in package.paths] if rest else []
    else:
        place = _wheel_place(name, f"lib/python{tree.python}/site-packages/")
        found = [place] if place else []
    return tuple(one for one in found if not _is_left(one, content))


def is_bin(place: str, package: LockedPackage) -> bool:
    """Whether the file at ``place`` is one of an npm package's programs."""
    files = package.bins.values()
    return any(place == f"{path}/{file}" for path in package.paths for file in files)


def bin_links(package: LockedPackage) -> dict[str, str]:
    """Return npm's links to a package's programs: place to target."""
    links = {}
    for path in package.paths:
        modules = path[: path.rindex("node_modules/") + len("node_modules/")]
        for name, file in package.bins.items():
            target = posixpath.relpath(f"{path}/{file}", f"{modules}.bin")
            links[f"{modules}.bin/{name}"] = target
    return links


def _wheel_place(name: str, site: str) -> str | None:
    """Place a wheel's member (PEP 427): ``*.data/`` folders are unpacked, C headers left."""
    head, _, rest = name.partition("/")
    if not head.endswith(".data"):
        return site + name
    kind, _, rest = rest.partition("/")
    folders = {"purelib": site, "platlib": site, "data": "", "scripts": "bin/"}
    return folders[kind] + rest if kind in folders else None
