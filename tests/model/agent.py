"""A small honest agent: speaks every dialect, runs the tool, sends the result back."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from sandbox.model.chat import Chat
from sandbox.model.dialect import Dialect
from sandbox.model.messages import Messages
from sandbox.model.responses import Responses

Name = Literal["chat", "responses", "messages"]
DIALECTS: dict[Name, Dialect] = {
    "chat": Chat(),
    "responses": Responses(),
    "messages": Messages(),
}
ROUTES: dict[Name, str] = {
    "chat": "chat/completions",
    "responses": "responses",
    "messages": "messages?beta=true",
}
TOOL_NAMES: dict[Name, str] = {"chat": "bash", "responses": "exec_command", "messages": "Bash"}


def shell_tool(dialect: Name) -> dict[str, Any]:
    """The shell tool as each dialect advertises one."""
    name = TOOL_NAMES[dialect]
    if dialect == "responses":
        schema = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
        return {"type": "function", "name": name, "parameters": schema}
    schema = {
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
        "required": ["command"],
    }
    if dialect == "messages":
        return {"name": name, "input_schema": schema}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


@dataclass
class Agent:
    """Asks until the model says a text; ``history`` is what each request carries."""

    client: httpx.Client
    workdir: Path
    dialect: Name = "chat"
    stream: bool = True
    runs_tools: bool = True
    history: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history.append({"type": "message", "role": "user", "content": "do the task"})

    def request(self, **changes: Any) -> dict[str, Any]:
        """The body of the next request."""
        body: dict[str, Any] = {
            "model": "m",
            "stream": self.stream,
            "tools": [shell_tool(self.dialect)],
        }
        if self.dialect == "responses":
            return {**body, "input": self.history, **changes}
        if self.dialect == "messages":
            return {**body, "messages": self.history, "max_tokens": 100, **changes}
        return {
            **body,
            "messages": self.history,
            "stream_options": {"include_usage": True},
            **changes,
        }

    def ask(self, **changes: Any) -> httpx.Response:
        """Ask once, without touching the history."""
        return self.client.post(ROUTES[self.dialect], json=self.request(**changes))

    def read(self, response: httpx.Response) -> Any:
        """The reply body, assembled when it was streamed."""
        response.raise_for_status()
        if self.stream:
            return DIALECTS[self.dialect].assemble([response.content])
        return response.json()

    def run(self, *, most: int = 10) -> str:
        """Work until the model says a text; returns it."""
        for _ in range(most):
            body = self.read(self.ask())
            text, calls = self._said(body)
            if not calls:
                return text
            for call_id, command in calls:
                self._note_result(call_id, self._run_tool(command))
        raise AssertionError("the model never came to an end")

    def _run_tool(self, command: str) -> str:
        if not self.runs_tools:
            return "I ran it"
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.workdir, capture_output=True, text=True, check=False
        )
        return f"exit {done.returncode}\n{done.stdout}"

    def _said(self, body: Any) -> tuple[str, list[tuple[str, str]]]:
        """Text and calls of a reply, which join the history."""
        if self.dialect == "messages":
            self.history.append({"role": "assistant", "content": body["content"]})
            return "".join(block.get("text", "") for block in body["content"]), [
                (block["id"], block["input"]["command"])
                for block in body["content"]
                if block["type"] == "tool_use"
            ]
        if self.dialect == "responses":
            self.history += body["output"]
            texts = [part["text"] for item in body["output"] for part in item.get("content", [])]
            calls = [item for item in body["output"] if item["type"] == "function_call"]
            return "".join(texts), [
                (call["call_id"], json.loads(call["arguments"])["cmd"]) for call in calls
            ]
        message = body["choices"][0]["message"]
        self.history.append(message)
        return message["content"] or "", [
            (call["id"], json.loads(call["function"]["arguments"])["command"])
            for call in message.get("tool_calls", [])
        ]

    def _note_result(self, call_id: str, output: str) -> None:
        if self.dialect == "responses":
            self.history.append(
                {"type": "function_call_output", "call_id": call_id, "output": output}
            )
        elif self.dialect == "messages":
            block = {"type": "tool_result", "tool_use_id": call_id, "content": output}
            self.history.append({"role": "user", "content": [block]})
        else:
            self.history.append({"role": "tool", "tool_call_id": call_id, "content": output})
