"""What ``sandbox doctor`` says of one thing it looked at."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.errors import ExitCode, SandboxError


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    ``ok``: True, it is as it should be; False, a command that needs it ends with ``exit_code``;
    None, it works in a lesser way, or could not be looked at. Unless it is True there is a cure.
    """

    name: str
    ok: bool | None
    detail: str
    cure: str | None = None
    exit_code: ExitCode = ExitCode.OK

    @classmethod
    def of_error(cls, name: str, error: SandboxError) -> Finding:
        """Tell an error that was met while looking."""
        return cls(
            name=name,
            ok=False,
            detail=error.message,
            cure=error.cure or "run the command that failed with --debug",
            exit_code=error.exit_code,
        )
