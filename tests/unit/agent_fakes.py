"""Fakes for the agents room: a folder of this machine as sandbox, a script as harness."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.engine.archive import PutFile
from sandbox.engine.facts import ImageFacts
from sandbox.errors import ContainerGone, InstallError, NotFound, SandboxError, Unsupported
from sandbox.evidence.observations import (
    AgentInvocation,
    InvocationStatus,
    MessageItem,
    ModelCallRef,
    Observations,
    ToolCall,
    ToolStatus,
)
from sandbox.evidence.records import InstallReceipt, ResourceUse
from sandbox.harnesses.base import (
    Capabilities,
    LaunchContext,
    LaunchPlan,
    NativeContext,
    PlannedFile,
)
from sandbox.runtimes.library import Bundle
from sandbox.runtimes.needs import Needs, Refusal, refusals


def facts(workdir: Path, home: Path, **changes: object) -> ImageFacts:
    tools = {tool: f"/usr/bin/{tool}" for tool in ("env", "setsid", "sleep", "tr", "sed", "bash")}
    said: dict[str, object] = {
        "libc": "glibc",
        "libc_version": "2.36",
        "loaders": (),
        "libraries": {},
        "architecture": "x64",
        "cpu": "x86-64-v3",
        "platform": "linux-x64-gnu",
        "uid": 0,
        "gid": 0,
        "user": "root",
        "home": str(home),
        "passwd_home": None,
        "workdir": str(workdir),
        "path": "/usr/local/bin:/usr/bin:/bin",
        "env": {"LANG": "C.UTF-8"},
        "sh": "dash",
        "tools": tools,
        "writable": (),
        "ca_file": None,
        "distribution": None,
    }
    return ImageFacts.model_validate(said | changes)


@dataclass
class Text:
    text: str


@dataclass
class Ran:
    exit_code: int | None
    stdout: Text
    stderr: Text
    timed_out: bool = False


@dataclass
class FolderPlace:
    """Runs commands on this machine; ``before`` may watch or break any call."""

    root: Path
    before: Callable[[str, Sequence[str]], None] = lambda verb, words: None
    image: dict[str, object] = field(default_factory=dict)
    id: str = "c0ffee"
    name: str = "box"
    gone: bool = False
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("work", "home", "tmp"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    @property
    def sessions(self) -> list[Path]:
        return sorted((self.root / "tmp").iterdir())

    def _enter(self, verb: str, words: Sequence[str]) -> None:
        self.calls.append(verb)
        self.before(verb, words)
        if self.gone:
            raise ContainerGone("the box is gone")

    def exec(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        apart: bool = False,
    ) -> Ran:
        self._enter("exec", argv)
        try:
            done = subprocess.run(
                argv,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                capture_output=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=deadline_s,
            )
        except subprocess.TimeoutExpired:
            return Ran(None, Text(""), Text(""), timed_out=True)
        return Ran(done.returncode, Text(done.stdout.decode()), Text(done.stderr.decode()))

    def put(self, files: Sequence[PutFile] | Path, dest: str) -> None:
        self._enter("put", [dest])
        assert not isinstance(files, Path)
        for file in files:
            path = Path(dest) / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data or b"")
            path.chmod(0o644 if file.mode is None else file.mode)

    def get(self, path: str, dest: Path) -> None:
        self._enter("get", [path])
        source = Path(path)
        if source.is_dir():
            shutil.copytree(source, dest)
        elif source.exists():
            shutil.copy(source, dest)
        else:
            raise NotFound(path)

    def read(self, path: str) -> bytes:
        self._enter("read", [path])
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise NotFound(path) from error

    def facts(self) -> ImageFacts:
        self._enter("facts", [])
        return facts(self.root / "work", self.root / "home", **self.image)

    def resources(self) -> ResourceUse:
        self._enter("resources", [])
        return ResourceUse(cpu_time_s=0.5, peak_memory_mib=1.0, oom_kills=0, source="fake")


@dataclass
class OwnedFolderPlace(FolderPlace):
    fails_to_start: SandboxError | None = None
    started: int = 0
    closed: int = 0

    def start(self) -> None:
        if self.fails_to_start is not None:
            raise self.fails_to_start
        self.started += 1

    def close(self) -> None:
        self.closed += 1


@dataclass
class FakeRuntimes:
    """Installs an empty folder; ``size`` is the bundle's, ``asks`` what its files need."""

    size: int = 1024
    platforms: tuple[str, ...] = ("linux-x64-gnu", "linux-x64-musl")
    says: str = "fake 1.0"
    asks: Needs = field(default_factory=Needs)
    fetched: list[str] = field(default_factory=list)
    fails: SandboxError | None = None
    while_installing: Callable[[], None] = lambda: None

    def refusals(self, harness: str, platform: str, facts: ImageFacts) -> tuple[Refusal, ...]:
        if platform not in self.platforms:
            raise Unsupported(f"{harness} has no pin for {platform}", cure="pin one")
        return refusals(self.asks, facts, libraries=facts.libraries)

    def room(self, bundle: Bundle) -> int:
        return bundle.size

    def bundle(self, harness: str, platform: str) -> Bundle:
        self.fetched.append(platform)
        return Bundle(
            harness=harness,
            version="1.0",
            platform=platform,
            path=Path("/nowhere"),
            sha256="0" * 64,
            size=self.size,
            version_argv=("bin/fake", "--version"),
            version_output="fake 1.0",
        )

    def install(self, place: object, bundle: Bundle, prefix: str) -> InstallReceipt:
        self.while_installing()
        Path(prefix).mkdir()
        if self.fails is not None:
            raise self.fails
        return InstallReceipt(
            harness=bundle.harness,
            version=bundle.version,
            platform=bundle.platform,
            bundle_sha256=bundle.sha256,
            prefix=prefix,
            version_output=self.says,
            already_installed=False,
        )


ANSWERS = '{"status": "completed", "text": "done"}'


@dataclass
class ScriptHarness:
    """Runs ``script`` with sh; its transcript is the JSON that the script writes to $TRANSCRIPT."""

    script: str = f"echo '{ANSWERS}' >\"$TRANSCRIPT\"; echo working"
    name: str = "fake"
    needs_bash: bool = False
    proof: bool = False
    stray: str | None = None
    planned: list[LaunchContext] = field(default_factory=list)
    parsed: list[list[str]] = field(default_factory=list)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            dialect="responses",
            session_header=None,
            response_ids=True,
            parallel_tools=False,
            subagents=False,
            compaction=False,
            needs_bash=self.needs_bash,
            request_deadline=True,
            project_instructions="none",
            tools_see_key=False,
        )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        self.planned.append(ctx)
        home = f"{ctx.session_dir}/home"
        files = [PlannedFile(path=f"{home}/config.json", data=json.dumps(ctx.prompt).encode())]
        if self.stray:
            files.append(PlannedFile(path=self.stray, data=b""))
        return LaunchPlan(
            argv=("sh", "-c", self.script),
            env={
                "PATH": ctx.task_env["PATH"],
                "HOME": home,
                "TASK_HOME": ctx.task_env["HOME"],
                "TRANSCRIPT": f"{home}/transcript.json",
            },
            files=tuple(files),
            native=(f"{home}/transcript.json",),
            proof=(f"{home}/proof",) if self.proof else (),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        found = sorted(str(p.relative_to(native)) for p in native.rglob("*") if p.is_file())
        self.parsed.append(found)
        path = native / "home/transcript.json"
        if not path.exists():
            return Observations(source=self.name)
        told = json.loads(path.read_text())
        root = AgentInvocation(
            invocation_id="root",
            status=InvocationStatus(told["status"]),
            model_calls=(ModelCallRef(model_call_id="m1"),),
            conversation=(MessageItem(role="assistant", text=told["text"]),),
        )
        tool = ToolCall(
            invocation_id="root", tool_call_id="t1", tool_name="sh", status=ToolStatus.COMPLETED
        )
        return Observations(source=self.name, records=(root, tool))


def when(event: threading.Event, verb: str) -> Callable[[str, Sequence[str]], None]:
    """Make a ``before`` that sets ``event`` at the first call of ``verb``."""

    def watch(called: str, _words: Sequence[str]) -> None:
        if called == verb:
            event.set()

    return watch


def install_error() -> InstallError:
    return InstallError("the installer refused")
