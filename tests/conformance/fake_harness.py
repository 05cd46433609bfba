"""A harness in sh for planted defects: it speaks Chat Completions with wget, and can misbehave.

What it sends and claims is planned beforehand from the scenario's script, so it needs only sh and
wget in the image; what it *does* is real: requests, commands, processes, files.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from sandbox.conformance.scenario import Scenario
from sandbox.engine.facts import ImageFacts
from sandbox.evidence.observations import (
    AgentInvocation,
    InvocationStatus,
    MessageItem,
    Observations,
    ToolCall,
    ToolRequestItem,
    ToolResultItem,
    ToolStatus,
)
from sandbox.harnesses.base import (
    Capabilities,
    LaunchContext,
    LaunchPlan,
    NativeContext,
    PlannedFile,
)
from sandbox.model.script import ScriptedCall, ToolStep
from sandbox.progress import PlainProgress
from sandbox.runtimes.library import Bundle
from sandbox.runtimes.needs import Refusal
from sandbox.runtimes.proofs import Proofs
from sandbox.runtimes.unpacked import ensure_unpacked

Defect = Literal[
    "none", "no_call", "skips_a_tool", "leaves_a_process", "claims_success", "wrong_home",
    "prints_its_key", "shows_its_key", "litters",
]  # fmt: skip
SESSION = "fakesession"
ENTRY = '#!/bin/sh\n[ "${1-}" = --version ] && echo "fake 1.0" && exit\nexec sh "$@"\n'
SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}
RUN = """\
set -u
ask() { # NUMBER
    wget -q -O "$1.reply" --header 'content-type: application/json' \\
        --header 'x-session-id: fakesession' --post-file "ask-$1.json" "$URL/chat/completions"
}
cd "$SESSION_DIR"
[ "$DEFECT" = no_call ] && exit 0
for number in $STEPS; do
    ask "$number" || { cp failed.json transcript.json; exit 1; }
    [ -e "tool-$number.sh" ] || break
    [ "$DEFECT" = skips_a_tool ] && [ "$number" = 1 ] && continue
    [ "$DEFECT" = wrong_home ] && export HOME="$SESSION_DIR"
    (cd "$WORKDIR" && sh "$SESSION_DIR/tool-$number.sh") >"$number.out" 2>&1
done
[ "$DEFECT" = leaves_a_process ] && setsid sleep 4711 </dev/null >/dev/null 2>&1 &
[ "$DEFECT" = prints_its_key ] && printf '%s\\n' "$KEY"
[ "$DEFECT" = shows_its_key ] && sh -c 'sleep 3; exit' sh "$KEY"
[ "$DEFECT" = litters ] && : >/usr/local/bin/litter
cp done.json transcript.json
"""


@dataclass(frozen=True)
class FakeHarness:
    """The adapter; ``scenario`` is the one that is played, ``defect`` what goes wrong.

    ``run`` is the harness itself, a shell script.
    """

    scenario: Scenario
    defect: Defect = "none"
    name: str = "fake"
    run: str = RUN
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(
            dialect="chat",
            session_header="x-session-id",
            response_ids=False,
            parallel_tools=False,
            subagents=False,
            compaction=False,
            needs_bash=False,
            request_deadline=False,
            project_instructions="none",
            tools_see_key=False,
        )
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        script = self.scenario.script(ctx.rollout_id)
        calls = script.all_calls()
        files = {"run.sh": self.run.encode()}
        for number in range(len(script.steps)):
            files[f"ask-{number}.json"] = _ask(calls[:number])
        for number, call in enumerate(calls):
            files[f"tool-{number}.sh"] = _spec(call).command.encode()
        files["done.json"] = self._told(calls, InvocationStatus.COMPLETED).encode()
        status = "COMPLETED" if self.defect == "claims_success" else "FAILED"
        files["failed.json"] = self._told((), InvocationStatus[status]).encode()
        base = ctx.session_dir
        return LaunchPlan(
            argv=(f"{ctx.prefix}/bin/fake", f"{base}/run.sh"),
            env={
                **ctx.task_env,
                "URL": ctx.base_url,
                "PREFIX": ctx.prefix,
                "KEY": ctx.api_key,
                "SESSION_DIR": base,
                "WORKDIR": ctx.workdir,
                "STEPS": " ".join(str(number) for number in range(len(script.steps))),
                "DEFECT": self.defect,
            },
            files=tuple(
                PlannedFile(path=f"{base}/{name}", data=data) for name, data in files.items()
            ),
            native=(f"{base}/transcript.json",),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        path = native / "transcript.json"
        if not path.is_file():
            return Observations(source=self.name)
        return Observations.model_validate_json(path.read_text())

    def _told(self, calls: tuple[ScriptedCall, ...], status: InvocationStatus) -> str:
        items: list[MessageItem | ToolRequestItem | ToolResultItem] = [
            MessageItem(role="user", text="go")
        ]
        tools = []
        for call in calls:
            spec = _spec(call)
            items.append(_request(call))
            items.append(
                ToolResultItem(
                    tool_call_id=call.call_id, output=spec.output, exit_code=spec.exit_code
                )
            )
            ended = ToolStatus.FAILED if spec.exit_code else ToolStatus.COMPLETED
            tools.append(
                ToolCall(
                    invocation_id=SESSION,
                    tool_call_id=call.call_id,
                    tool_name="shell",
                    status=ended,
                )
            )
        root = AgentInvocation(invocation_id=SESSION, status=status, conversation=tuple(items))
        return Observations(source=self.name, records=(root, *tools)).model_dump_json()


def _spec(call: ScriptedCall) -> ToolStep:
    assert isinstance(call.spec, ToolStep)
    return call.spec


def _request(call: ScriptedCall) -> ToolRequestItem:
    arguments = json.dumps({"command": _spec(call).command})
    return ToolRequestItem(tool_call_id=call.call_id, tool_name="shell", arguments=arguments)


def _ask(done: tuple[ScriptedCall, ...]) -> bytes:
    messages: list[dict[str, object]] = [{"role": "user", "content": "go"}]
    for call in done:
        request = _request(call)
        function = {"name": "shell", "arguments": request.arguments}
        asked = {"id": call.call_id, "type": "function", "function": function}
        said = f"exit code {_spec(call).exit_code}\n{_spec(call).output}"
        messages.append({"role": "assistant", "content": None, "tool_calls": [asked]})
        messages.append({"role": "tool", "tool_call_id": call.call_id, "content": said})
    return json.dumps({"model": "m", "messages": messages, "tools": [SHELL]}).encode()


class FakeLibrary:
    """Gives the one bundle that the fake harness needs: a link to sh that knows ``--version``.

    ``programs`` are other shell scripts in its ``bin``, by name; ``entry`` replaces the link.
    """

    def __init__(
        self,
        folder: Path,
        platform: str,
        *,
        entry: str = ENTRY,
        programs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self._bundle = make_bundle(folder, platform, {"fake": entry, **programs})

    def refusals(self, harness: str, platform: str, facts: ImageFacts) -> tuple[Refusal, ...]:
        assert (harness, platform) == ("fake", facts.platform)
        return ()

    def ensure_tree(self, bundle: Bundle) -> Path:
        return ensure_unpacked(bundle, self._folder / "tree", PlainProgress(quiet=True))

    def proofs(self, image_id: str) -> Proofs:
        return Proofs(folder=self._folder / "proofs", image_id=image_id)

    def ensure_bundle(self, harness: str, platform: str) -> Bundle:
        assert (harness, platform) == ("fake", self._bundle.platform)
        return self._bundle


def make_bundle(folder: Path, platform: str, programs: Mapping[str, str]) -> Bundle:
    """Write the bundle of the fake harness, with these programs in its ``bin``."""
    path = folder / "fake.tar"
    manifest = json.dumps({"harness": "fake", "version": "1.0", "platform": platform}).encode()
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        below = tarfile.TarInfo("bin")
        below.type, below.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(below)
        scripts = [(f"bin/{name}", text.encode(), 0o755) for name, text in programs.items()]
        for name, data, mode in (("MANIFEST.json", manifest, 0o644), *scripts):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            tar.addfile(member, io.BytesIO(data))
    digest = sha256(path.read_bytes()).hexdigest()
    final = folder / f"{digest}.tar"
    shutil.move(path, final)
    return Bundle(
        harness="fake",
        version="1.0",
        platform=platform,
        path=final,
        sha256=digest,
        size=final.stat().st_size,
        version_argv=("--version",),
        version_output="fake 1.0",
    )
