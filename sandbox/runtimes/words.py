"""The words that pins and lock are written in: what each may look like, checked when read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Platform = Literal["linux-x64-gnu", "linux-x64-musl", "linux-arm64-gnu", "linux-arm64-musl"]

# What an x64 CPU must be able to do beyond the first ones: the levels of the x86-64 psABI, 3.1.1.
Cpu = Literal["x86-64-v2", "x86-64-v3", "x86-64-v4"]


def _inside(path: str) -> str:
    parts = path.removesuffix("/").split("/")
    if not path or path.startswith("/") or any(part in {"", ".", ".."} for part in parts):
        raise ValueError("must be a relative path without '.' or '..'")
    return path


def _file(path: str) -> str:
    if path.endswith("/"):
        raise ValueError("must name a file, not a folder")
    return _inside(path)


def _free(variable: str) -> str:
    if variable in {"HOME", "PATH", "TMPDIR"}:
        raise ValueError("is set by the installer itself")
    return variable


# These words travel through a POSIX shell into JSON: what would need escaping is not allowed.
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
Line = Annotated[str, Field(pattern=r'^[^"\\\x00-\x1f\x7f]+$')]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
# A variable that a version check may set.
Variable = Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$"), AfterValidator(_free)]
# Debian's own rules (policy 5.6.12) without the epoch, which its file names leave out.
DebianVersion = Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.+~-]*$")]
PackageName = Annotated[str, Field(pattern=r"^(@[a-z0-9._-]+/)?[A-Za-z0-9][A-Za-z0-9._-]*$")]
Inside = Annotated[str, AfterValidator(_inside)]
File = Annotated[str, AfterValidator(_file)]
# Where a loader looks for libraries, from the folder that the program is in.
Runpath = Annotated[str, Field(pattern=r"^\$ORIGIN(/[A-Za-z0-9._-]+)*$")]
# A file that a launcher names in sh.
PlainFile = Annotated[File, Field(pattern=r"^[A-Za-z0-9@._+/-]+$")]


class Said(BaseModel):
    """A table of a pins file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
