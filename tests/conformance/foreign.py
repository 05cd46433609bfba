"""Installs the harness package of tests/fixtures/foreign as its user would, without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "fixtures" / "foreign"
_TOUCHED = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Foreign:
    """An installed package: ``site`` is its folder, ``wheels`` where pip finds its artifact."""

    site: Path
    wheels: Path

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to see the package, and pip to see nothing but the artifact."""
        return {
            "PYTHONPATH": str(self.site),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
        }

    @property
    def pins(self) -> Path:
        return self.site / "pocket_harness" / "pins.toml"


def install(folder: Path) -> Foreign:
    """Build and install the package below ``folder``, with its artifact beside it."""
    copy = folder / "source"
    shutil.copytree(SOURCE, copy)  # building leaves files beside the sources
    found = Foreign(site=folder / "site", wheels=folder / "wheels")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(found.site)]
    subprocess.run([*pip, *offline, str(copy)], check=True, timeout=120)
    found.wheels.mkdir()
    write_artifact(found.wheels)
    return found


def write_artifact(folder: Path) -> Path:
    """Write the wheel that the package's pins name; the same bytes every time."""
    info = "pocket_runtime-1.0.dist-info"
    files = {
        "pocket_runtime/pocket.sh": (SOURCE / "runtime" / "pocket.sh").read_text(),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: pocket-runtime\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    path = folder / "pocket_runtime-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for name, text in files.items():
            wheel.writestr(zipfile.ZipInfo(name, _TOUCHED), text)
    return path
