"""The source of a dependency tree, written anew for another version of its root package.

npm: the vendor's own shrinkwrap, below the package as npm puts it, without addresses; a package
without one is resolved by npm itself. Python: ``uv pip compile`` of the ``.in`` file beside the
requirements, with the hashes of all wheels. No install script runs in either.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.errors import FetchError, IntegrityError, PrerequisiteMissing, UsageError
from sandbox.progress import Step
from sandbox.runtimes.archive import members
from sandbox.runtimes.client import run_client
from sandbox.runtimes.integrity import verify_file
from sandbox.runtimes.npm import NpmRegistry
from sandbox.runtimes.sources import Sources
from sandbox.runtimes.trees import NpmTreePin, PipTreePin, TreePin, source_of

_NPM = ("install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund")
_WITHOUT = {"resolved", "funding"}


def companions(tree: TreePin, pins_path: Path) -> tuple[Path, ...]:
    """Return the files of a tree: its source, and what that was made from."""
    source = source_of(tree, pins_path)
    made_from = (
        source.with_name("package.json")
        if isinstance(tree, NpmTreePin)
        else source.with_suffix(".in")
    )
    return tuple(path for path in (source, made_from) if path.is_file())


def asked_versions(tree: TreePin, pins_path: Path) -> dict[str, str]:
    """Return the packages that the source was made for: name to version, as asked by hand."""
    source = source_of(tree, pins_path)
    if isinstance(tree, PipTreePin):
        asked = source.with_suffix(".in")
        lines = asked.read_text("utf-8").splitlines() if asked.is_file() else []
        pairs = (line.partition("==") for line in lines if not line.startswith("#"))
        return {name.strip(): version.strip() for name, _, version in pairs if version}
    project = source.with_name("package.json")
    if project.is_file():
        return dict(json.loads(project.read_text("utf-8"))["dependencies"])
    return dict(json.loads(source.read_text("utf-8"))["packages"][""]["dependencies"])


def renew(
    tree: TreePin, pins_path: Path, *, old: str, new: str, clients: Sources, step: Step
) -> None:
    """Write the files of a tree for ``new`` in place of ``old``, beside ``pins_path``.

    Raises:
        UsageError: nothing in its files asks for ``old``.
        FetchError: the registry cannot be asked, or the versions cannot be resolved.
        PrerequisiteMissing: this machine has no uv.
    """
    source = source_of(tree, pins_path)
    if isinstance(tree, NpmTreePin):
        _renew_npm(source, old, new, clients, step)
    else:
        _renew_pip(tree, source, old, new, clients)


def _renew_npm(source: Path, old: str, new: str, clients: Sources, step: Step) -> None:
    lock = json.loads(source.read_text("utf-8"))
    root = lock["packages"][""]
    names = [name for name, asked in root["dependencies"].items() if asked in {old, new}]
    if not names:
        raise UsageError(f"{source}: it asks for no package of version {old}")
    root["dependencies"] |= dict.fromkeys(names, new)
    project = source.with_name("package.json")
    if project.is_file():
        said = json.loads(project.read_text("utf-8"))
        said["dependencies"] |= dict.fromkeys(names, new)
        project.write_text(json.dumps(said, indent=2) + "\n", "utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        shrinkwraps = [
            packages_below(name, new, clients.registry(), Path(scratch), step) for name in names
        ]
        if all(shrinkwraps):
            merged = {key: value for each in shrinkwraps for key, value in (each or {}).items()}
            lock["packages"] = {"": root} | merged
            text = json.dumps(lock, indent=2, ensure_ascii=False) + "\n"
        else:
            text = _resolved_by_npm(root, clients, Path(scratch))
    source.write_text(text, "utf-8")


def packages_below(
    name: str, version: str, registry: NpmRegistry, scratch: Path, step: Step
) -> dict[str, Any] | None:
    """Return the entries of a package and its shrinkwrap; None when it has no shrinkwrap."""
    file = scratch / "tarball"
    integrity, _, _ = registry.download(name, version, file, integrity=None, size=None, step=step)
    verify_file(file, integrity, size=None, what=f"{name} {version}")
    with members(file, what=f"{name} {version}", repeats=True) as found:
        texts = [
            member.data.read()
            for member in found
            if member.name == "package/npm-shrinkwrap.json" and member.data
        ]
    file.unlink()
    if not texts:
        return None
    return _below(name, version, integrity.text, json.loads(texts[-1])["packages"])


def _below(
    name: str, version: str, integrity: str, packages: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    home = f"node_modules/{name}"
    said = _kept(packages[""]) | {"hasShrinkwrap": True}
    for key in ("name", "version", "devDependencies"):
        said.pop(key, None)
    found = {home: {"version": version, "integrity": integrity} | said}
    for folder, entry in packages.items():
        if not folder.startswith("node_modules/") or entry.get("link"):
            if folder:
                raise IntegrityError(
                    f"{name} {version}: its shrinkwrap names {folder!r}, no folder of node_modules",
                    cure="this version cannot be pinned as a tree",
                )
            continue
        found[f"{home}/{folder}"] = _kept(entry)
    return found


def _kept(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in _WITHOUT}


def _resolved_by_npm(root: Mapping[str, Any], clients: Sources, scratch: Path) -> str:
    project = scratch / "project"
    project.mkdir()
    said = {"name": root.get("name", "runtime"), "private": True, **root}
    (project / "package.json").write_text(json.dumps(said), "utf-8")
    host = shutil.which("npm", path=clients.env.get("PATH", ""))
    argv = [*((host,) if host else clients.pinned_npm()), *_NPM]
    argv += ["--omit-lockfile-registry-resolved", "--loglevel=error"]
    code, _, errors = run_client(argv, env=clients.env, deadline_s=600, cwd=project)
    if code:
        raise FetchError(f"npm cannot resolve {dict(root['dependencies'])}: {errors[-500:]}")
    return (project / "package-lock.json").read_text("utf-8")


def _renew_pip(tree: PipTreePin, source: Path, old: str, new: str, clients: Sources) -> None:
    asked = source.with_suffix(".in")
    text = asked.read_text("utf-8") if asked.is_file() else ""
    if f"=={old}\n" not in text and f"=={new}\n" not in text:
        raise UsageError(f"{asked}: it asks for no package of version {old}")
    asked.write_text(text.replace(f"=={old}\n", f"=={new}\n"), "utf-8")
    before = source.read_text("utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / source.name
        out.write_text(before, "utf-8")  # what it names and still fits stays
        argv = [_uv(clients), "pip", "compile", "--quiet", "--generate-hashes", "--no-header"]
        argv += ["--no-annotate", "--python-version", tree.python]
        argv += ["--output-file", str(out), str(asked)]
        code, _, errors = run_client(argv, env=clients.env, deadline_s=600, cwd=asked.parent)
        if code:
            raise FetchError(
                f"uv cannot resolve what {asked} asks for: {errors[-1000:]}",
                cure="see the message; uv's own configuration says where its index is",
            )
        lines = before.splitlines(keepends=True)
        head = "".join(lines[: _first_package(lines)])
        source.write_text(head + out.read_text("utf-8"), "utf-8")


def _first_package(lines: list[str]) -> int:
    """How many lines of comment stand at the top."""
    return next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))


def _uv(clients: Sources) -> str:
    beside = Path(sys.executable).with_name("uv")
    found = shutil.which("uv", path=clients.env.get("PATH", ""))
    if found or beside.is_file():
        return found or str(beside)
    raise PrerequisiteMissing(
        "this machine has no uv, which resolves Python trees",
        cure=f"run `{sys.executable} -m pip install uv`",
    )
