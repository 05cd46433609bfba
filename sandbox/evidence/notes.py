"""Notes that a scripted command leaves beside its marker, for what its output must not say.

A note is an empty file below the workdir. The command's text names every note that it may leave,
so that one which is not there says something too.
"""

from __future__ import annotations

AT_ONCE = "at-once"
"""The other command of the same reply was at work while this one was."""
BASH = "bash"
"""The command ran in bash."""
KEY_SEEN = "key"
"""The command found the model's key in its environment."""


def note_of(marker: str, note: str) -> str:
    """Return the file of a note, beside the file ``marker``."""
    return f"{marker.removesuffix('.txt')}.{note}"
