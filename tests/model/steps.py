"""Scripted steps that really run in a folder."""

from sandbox.model.script import ToolStep


def tool(number: int, exit_code: int | None = 0) -> ToolStep:
    """A command that writes marker ``m<number>``, prints multibyte text and exits."""
    return ToolStep(
        command=f"printf '%s' text{number} > m{number}; echo 'äöü 漢字 {number}'; exit {exit_code}",
        marker=f"m{number}",
        marker_text=f"text{number}",
        output=f"äöü 漢字 {number}\n",
        exit_code=exit_code,
    )
