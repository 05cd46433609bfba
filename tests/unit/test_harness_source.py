"""The hash of an adapter's source: everything that it reaches in its package, and its data."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from sandbox.harnesses.registry import registered
from sandbox.harnesses.source import source_sha256

FILES = {
    "__init__.py": "",
    "mine.py": "import json\nfrom {name} import helper\nclass Mine:\n    pass\n",
    "helper.py": "from {name}.deep import x\n",
    "deep.py": "x = 1\n",
    "mine_plugin.js": "// data\n",
    "other.py": "y = 2\n",
}


def made(folder: Path, name: str) -> Any:
    (folder / name).mkdir()
    for file, text in FILES.items():
        (folder / name / file).write_text(text.format(name=name))
    return importlib.import_module(f"{name}.mine").Mine()


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("mine.py", True),
        ("helper.py", True),
        ("deep.py", True),
        ("mine_plugin.js", True),
        ("other.py", False),
    ],
)
def test_what_an_adapter_reaches_counts(
    file: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"adapter_{file.partition('.')[0]}"
    adapter = made(tmp_path, name)
    before = source_sha256(adapter)
    assert before is not None
    assert source_sha256(adapter) == before
    with (tmp_path / name / file).open("a") as stream:
        stream.write("# or // changed\n" if file.endswith(".py") else "// changed\n")
    assert (source_sha256(adapter) != before) == counts


def test_every_adapter_has_a_hash_of_its_own() -> None:
    hashes = {name: source_sha256(one) for name, one in registered().harnesses.items()}
    assert None not in hashes.values()
    assert len(set(hashes.values())) == len(hashes)


def test_an_adapter_from_nowhere_has_none() -> None:
    nowhere = type("Nowhere", (), {"__module__": "nowhere"})()
    assert source_sha256(nowhere) is None
