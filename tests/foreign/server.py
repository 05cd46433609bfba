"""An agent server that shares nothing with this project but the wire: functions, http.server.

Its agent asks a chat model with the sandbox's own wget and runs what the model wants with sh, until
the model has no more wishes. ``python server.py session`` has agent sessions in lent sandboxes;
``python server.py legacy`` has /run in a sandbox that it starts itself. It prints its URL.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import docker

CLIENT = docker.from_env()
ASK = (
    'printf %s "$2" >/tmp/.ask && wget -q -O - --header "content-type: application/json" '
    '--header "x-session-id: $3" --post-file /tmp/.ask "$1/chat/completions"; '
    "code=$?; rm -f /tmp/.ask; exit $code"
)
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
SESSIONS: dict[str, dict[str, Any]] = {}
LOCK = threading.Lock()


def execute(container: str, argv: list[str], workdir: str = "/") -> tuple[int, str]:
    code, output = CLIENT.containers.get(container).exec_run(argv, workdir=workdir)
    return code, output.decode()


def turn(container: str, workdir: str, endpoint: dict[str, str], prompt: str, name: str) -> Any:
    """Let the agent work; returns response and observations."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    talk: list[dict[str, Any]] = [{"type": "message", "role": "user", "text": prompt}]
    tools: list[dict[str, Any]] = []
    while True:
        body = json.dumps({"model": endpoint["model"], "messages": messages, "tools": [SHELL]})
        code, said = execute(container, ["sh", "-c", ASK, "sh", endpoint["base_url"], body, name])
        if code != 0:
            return finished(name, "failed", talk, tools, "the model refused")
        message = json.loads(said)["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            talk.append({"type": "message", "role": "assistant", "text": message["content"]})
            return finished(name, "completed", talk, tools, message["content"])
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"])["command"]
            code, output = execute(container, ["sh", "-c", command], workdir)
            told = {"tool_call_id": call["id"], "tool_name": "shell"}
            talk.append(
                {"type": "tool_request", **told, "arguments": call["function"]["arguments"]}
            )
            talk.append(
                {
                    "type": "tool_result",
                    "tool_call_id": call["id"],
                    "output": output,
                    "exit_code": code,
                }
            )
            status = "completed" if code == 0 else "failed"
            tools.append(
                {
                    "kind": "tool_call",
                    "invocation_id": name,
                    "sandbox_id": container,
                    "status": status,
                    **told,
                }
            )
            content = f"exit code {code}\n{output}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


def finished(name: str, status: str, talk: Any, tools: Any, text: str) -> Any:
    message = {"type": "output_text", "text": text, "annotations": []}
    response = {
        "id": f"resp-{name}",
        "object": "response",
        "created_at": 0,
        "model": "any",
        "status": status,
        "temperature": 1.0,
        "output": [
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [message],
            }
        ],
        "error": {"code": "model", "message": text} if status == "failed" else None,
    }
    root = {"kind": "agent_invocation", "invocation_id": name, "status": status}
    observed = {
        "source": "foreign",
        "records": [{**root, "conversation": talk}, *tools],
        "gaps": [],
    }
    return response, observed


# --- sessions -----------------------------------------------------------------------------------


def seed(asked: Any, cookies: str) -> Any:
    access = asked.get("sandbox_access")
    if not access or access["connection"]["kind"] != "direct":
        return 422, {"detail": "lend me a sandbox"}
    with LOCK:
        known = SESSIONS.setdefault(asked["agent_session_id"], {"asked": asked, "state": "ready"})
    if known["asked"] != asked or known["state"] == "closed":
        return 409, {"detail": "seeded otherwise, or closed"}
    return 200, {"agent_session_id": asked["agent_session_id"]}


def activate(asked: Any, cookies: str) -> Any:
    name = asked.get("agent_session_id") or cookies.partition("=")[2]
    session = SESSIONS.get(name)
    if session is None or session["state"] != "ready":
        return 409, {"detail": "not ready"}
    session["state"] = "done"
    access = session["asked"]["sandbox_access"]
    container = access["connection"]["descriptor"]["container_id"]
    response, session["observed"] = turn(
        container, access["workdir"], asked["endpoint"], asked["input"], name
    )
    return 200, response


def close(asked: Any, cookies: str) -> Any:
    name = asked["agent_session_id"]
    with LOCK:
        session = SESSIONS.setdefault(name, {"asked": None})
        session["state"] = "closed"
    return 200, {"agent_session_id": name, "agent_observations": session.get("observed")}


# --- legacy -------------------------------------------------------------------------------------


def post(url: str, body: Any) -> Any:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def run(asked: Any, cookies: str) -> Any:
    order, resources = asked["sandbox"], asked["resources"]["base_url"]
    box = CLIENT.containers.run(
        order["image"],
        ["sleep", "600"],
        detach=True,
        init=True,
        labels=order["labels"],
        **order["create"],
    )
    try:
        seeded = post(f"{resources}/seed_session", {"container_id": box.id})
        prompt = asked["responses_create_params"]["input"]
        name = asked["rollout_id"]
        response, observed = turn(box.id, seeded["workdir"], seeded["endpoint"], prompt, name)
        graded = post(f"{resources}/verify", {"container_id": box.id, "response": response})
    finally:
        box.remove(force=True, v=True)
    return 200, {
        **asked,
        "reward": graded["reward"],
        "response": response,
        "ng_agent_observations": observed,
    }


# --- http ---------------------------------------------------------------------------------------

ROUTES = {
    "session": {
        "/v1/agent_sessions": seed,
        "/v1/responses": activate,
        "/v1/agent_sessions/close": close,
    },
    "legacy": {"/run": run},
}


class Handler(BaseHTTPRequestHandler):
    mode = "session"

    def do_GET(self) -> None:
        if self.path != "/openapi.json":
            return self.answer(404, {"detail": "no such route"})
        paths = {path: {"post": {}} for path in ROUTES[self.mode]}
        return self.answer(200, {"openapi": "3.0.0", "info": {"title": "x"}, "paths": paths})

    def do_POST(self) -> None:
        handle = ROUTES[self.mode].get(self.path)
        data = self.rfile.read(int(self.headers["content-length"]))
        if handle is None:
            return self.answer(404, {"detail": "no such route"})
        return self.answer(*handle(json.loads(data), self.headers.get("cookie", "")))

    def answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    Handler.mode = sys.argv[1]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
