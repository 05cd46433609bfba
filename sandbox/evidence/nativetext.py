"""Native files of a cell as bounded texts: no link is followed, nothing is read whole for nothing.

What a harness left may be anything: a symlink out of the folder, a device's name, gigabytes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_FILES = 40


def native_texts(folder: Path, names: tuple[str, ...], *, most: int) -> dict[str, str]:
    """Return the texts of the named files below ``native/``, each of about ``most`` bytes.

    Longer files give their head and tail with the number of bytes between them. Files that are
    empty are left out; what is no plain text says what it is instead.
    """
    texts = {}
    for name in names[:_FILES]:
        text = _text(folder / "native" / name, most)
        if text:
            texts[name] = text
    if len(names) > _FILES:
        texts["(more)"] = f"[... {len(names) - _FILES} more files cut ...]"
    return texts


def _text(path: Path, most: int) -> str:
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return f"[a symlink to {path.readlink()}]"
        if not stat.S_ISREG(status.st_mode):
            return "[no regular file]"
        with path.open("rb") as file:
            head = file.read(most * 2 // 3 if status.st_size > most else most)
            if status.st_size <= most:
                return _decoded(head, status.st_size)
            tail = most - len(head)
            file.seek(-tail, os.SEEK_END)
            last = file.read(tail)
    except OSError as error:
        return f"[cannot be read: {error.strerror}]"
    left_out = status.st_size - len(head) - len(last)
    middle = f"\n[... {left_out} bytes cut ...]\n"
    return _decoded(head, status.st_size, rest=middle + last.decode("utf-8", "replace"))


def _decoded(head: bytes, size: int, rest: str = "") -> str:
    if b"\0" in head[:8192]:
        return f"[no text: {size} bytes]"
    return head.decode("utf-8", "replace") + rest
