"""What of an image can surprise whoever runs agents in it. Pure: facts in, notes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from sandbox.engine.facts import ImageFacts
from sandbox.engine.imagebuild.store import FoundImage
from sandbox.evidence.preflight import Note

# Files and folders that some coding agent takes instructions, settings or tools from.
PROJECT_FILES = (
    *("AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "HERMES.md"),
    *(
        ".agents",
        ".claude",
        ".codex",
        ".cursor",
        ".cursorrules",
        ".gemini",
        ".hermes",
        ".hermes.md",
    ),
    *(".kilo", ".kilocode", "kilo.json", "kilo.jsonc", ".mcp.json", ".openclaw"),
    *(".opencode", "opencode.json", "opencode.jsonc", ".pi", ".github/copilot-instructions.md"),
)
_SEEN_BY_TOOLS = "the harness does not get it, the task's tools do"
_VARIABLES = {
    "BASH_ENV": "every bash of a tool reads that file first",
    "ENV": "every interactive sh reads that file first",
    "LD_PRELOAD": "it is loaded into every program of a tool",
    "LD_LIBRARY_PATH": "programs of tools take libraries from there first",
    "NODE_OPTIONS": "it changes every Node of a tool",
    "NODE_PATH": "it changes where a tool's Node finds modules",
    "PYTHONHOME": "it moves the standard library of every Python of a tool",
    "PYTHONPATH": "it changes what a tool's Python imports",
    "SSL_CERT_FILE": "it replaces the certificates that a tool trusts",
    "NODE_EXTRA_CA_CERTS": "it adds to the certificates that a tool's Node trusts",
}
_PARTS = {
    "_API_KEY": "a credential in the image: whoever has the image has it",
    "_BASE_URL": "it points some client at an endpoint of its own",
    "_CONFIG_DIR": "it moves an agent's configuration",
    "_PROXY": "tools go through this proxy, which a sandbox cannot reach",
}
_AGENT_HOMES = (
    "CODEX_HOME",
    "CLAUDE_CONFIG_DIR",
    "HERMES_HOME",
    "OPENCODE_CONFIG",
    "XDG_CONFIG_HOME",
)
_HARMLESS_ENTRYPOINTS = {"tini", "dumb-init", "docker-init", "sh", "bash", "env"}


def notes(
    image: FoundImage, facts: ImageFacts, project: Sequence[str], at_home: Sequence[str]
) -> tuple[Note, ...]:
    """Give the notes of one image.

    Args:
        image: what the engine says of it.
        facts: what it is to a command.
        project: which of ``PROJECT_FILES`` are in the workdir.
        at_home: which are in HOME.
    """
    return (
        *_of_the_configuration(image, facts),
        *_of_the_environment(facts.env),
        *_of_the_user(facts),
        *_of_the_project(project, at_home, facts),
    )


def locale_of(env: Mapping[str, str]) -> str | None:
    """Give the locale that programs get (POSIX: LC_ALL, then LC_CTYPE, then LANG)."""
    return next((env[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(name)), None)


def _of_the_configuration(image: FoundImage, facts: ImageFacts) -> Iterator[Note]:
    if image.entrypoint:
        program = PurePosixPath(image.entrypoint[0]).name
        if program not in _HARMLESS_ENTRYPOINTS or len(image.entrypoint) > 2:
            yield Note(
                kind="entrypoint",
                subject=" ".join(image.entrypoint),
                text="it is not run in a sandbox: services, files and variables that it sets up "
                "are missing",
            )
    command = PurePosixPath(image.cmd[0]).name if image.cmd else ""
    if command and command not in {"sh", "bash", "ash", "dash", *facts.tools}:
        yield Note(
            kind="command",
            subject=" ".join(image.cmd),
            text="it is not run in a sandbox: a service that it starts is missing",
        )
    if image.healthcheck and image.healthcheck[0] != "NONE":
        yield Note(
            kind="healthcheck", subject=" ".join(image.healthcheck[1:]), text="it is switched off"
        )
    for volume in image.volumes:
        inside = PurePosixPath(facts.workdir).is_relative_to(volume)
        yield Note(
            kind="volume",
            subject=volume,
            text="the workdir is in it: its files are in no diff and no commit of the sandbox"
            if inside
            else "what is written there is in no diff and no commit of the sandbox",
        )


def _of_the_environment(env: Mapping[str, str]) -> Iterator[Note]:
    for name in sorted(env):
        text = _VARIABLES.get(name)
        if text is None and name in _AGENT_HOMES:
            text = "it moves an agent's configuration"
        if text is None:
            parts = (said for part, said in _PARTS.items() if name.upper().endswith(part))
            text = next(parts, None)
        if text is not None:
            yield Note(kind="environment", subject=name, text=f"{text} ({_SEEN_BY_TOOLS})")
    if "UTF-8" not in (locale_of(env) or "").upper().replace("UTF8", "UTF-8"):
        yield Note(
            kind="locale",
            subject=locale_of(env) or "none",
            text="no UTF-8 locale is set: older Pythons and other tools take text for ASCII",
        )


def _of_the_user(facts: ImageFacts) -> Iterator[Note]:
    if facts.user is None:
        yield Note(
            kind="user",
            subject=str(facts.uid),
            text=f"it has no entry in /etc/passwd, so HOME is {facts.home}: git and ssh complain",
        )
    writable = {place.path for place in facts.writable}
    for role, path in (("HOME", facts.home), ("the workdir", facts.workdir)):
        if path != "/" and path not in writable:
            yield Note(
                kind="place",
                subject=path,
                text=f"{role} is not there, or not writable for the user",
            )
    if facts.ca_file is None:
        yield Note(
            kind="tools", subject="CA certificates", text="there are none: tools' TLS cannot verify"
        )


def _of_the_project(
    project: Sequence[str], at_home: Sequence[str], facts: ImageFacts
) -> Iterator[Note]:
    for folder, found in ((facts.workdir, project), (facts.home, at_home)):
        for name in found:
            yield Note(
                kind="project",
                subject=f"{folder.rstrip('/')}/{name}",
                text="an agent's own configuration: harnesses are told not to read it, see what "
                "each one's capabilities say",
            )
