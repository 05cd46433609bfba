"""A headless Chromium driven over a pipe by the DevTools protocol, in a few verbs."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
DEADLINE_S = 60.0
_AS_3_AND_4 = """
import os, sys
first, second = (os.dup(os.dup(os.dup(int(number)))) for number in sys.argv[1:3])
os.dup2(first, 3)
os.dup2(second, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def program() -> str | None:
    """Return the browser of this machine, if it has one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a running browser; what the console says is kept in ``complaints``."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found
            self._note(answer)

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until it is loaded."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.as_uri() + (f"#{fragment}" if fragment else ""))
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        until = time.monotonic() + DEADLINE_S
        while not self.value(expression):
            assert time.monotonic() < until, f"not true after {DEADLINE_S} s: {expression}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27}
        for key in keys:
            text = {"text": "\r"} if key == "Enter" else {}
            code = codes.get(key, 0)
            for kind in ("keyDown", "keyUp"):
                extra = text if kind == "keyDown" else {}
                self.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    code=key,
                    windowsVirtualKeyCode=code,
                    **extra,
                )

    def write(self, text: str) -> None:
        """Type text into what has the focus."""
        self.call("Input.insertText", text=text)

    def scheme(self, name: str) -> None:
        """Prefer ``light`` or ``dark``."""
        self.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}]
        )

    def size(self, width: int, height: int) -> None:
        """Set the size of the window in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def screenshot(self) -> bytes:
        """Return what is seen as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + DEADLINE_S
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._reading], [], [], max(0, until - time.monotonic()))
            assert ready, f"the browser said nothing for {DEADLINE_S} s"
            more = os.read(self._reading, 1 << 20)
            assert more, "the browser ended"
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        if method == "Log.entryAdded" and parameters["entry"]["level"] in ("warning", "error"):
            self.complaints.append(parameters["entry"]["text"])
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        if method == "Page.javascriptDialogOpening":
            self.complaints.append(f"a dialog: {parameters['message']}")


@contextmanager
def browser(name: str) -> Iterator[Browser]:
    """Give a page of a fresh browser; it is ended with the context."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        argv = [
            *(sys.executable, "-c", _AS_3_AND_4, str(theirs_in), str(theirs_out)),
            *(name, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        process = subprocess.Popen(
            argv,
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_in, ours_out)
        finally:
            process.terminate()
            process.wait(timeout=30)
            os.close(ours_in)
            os.close(ours_out)
