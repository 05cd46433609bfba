"""Shell commands that try to reach something with what the task images have."""

from __future__ import annotations

SHELL = {"debian": "bash", "alpine": "sh"}


def dial(kind: str, host: str, port: int, said: str = "") -> str:
    """Return a command that connects, says ``said`` (a format of printf), waits for the end.

    Whatever happens, it says nothing and succeeds.
    """
    if kind == "debian":
        talk = f"exec 3<>/dev/tcp/{host}/{port} && printf '{said}' >&3 && timeout 30 cat <&3"
        return f"( {talk} ) >/dev/null 2>&1 || :"
    return f"printf '{said}' | nc -w 30 {host} {port} >/dev/null 2>&1 || :"


def octal(data: bytes) -> str:
    """Write octets as a format of printf, of any shell."""
    return "".join(f"\\{octet:03o}" for octet in data)
