"""A road to the engine that can be cut: a Unix socket or a TCP port that forwards to its own."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Self


class Severable:
    """Forwards connections until ``sever``; a context manager."""

    def __init__(self, host: str, *, tcp: bool = False) -> None:
        self._target = host.removeprefix("unix://")
        self._folder = Path(tempfile.mkdtemp(prefix="kit-road-"))
        self._open: list[socket.socket] = []
        if tcp:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        else:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(str(self._folder / "socket"))
            self._listener.listen()
            self.address = f"unix://{self._folder}/socket"
        self._free = threading.Event()
        self._free.set()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.sever()
        self._thread.join()
        shutil.rmtree(self._folder)

    def sever(self) -> None:
        """Cut all connections and take no more."""
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def hold(self, seconds: float) -> None:
        """Let nothing through for a while, as an engine with too much to do."""
        self._free.clear()
        try:
            time.sleep(seconds)
        finally:
            self._free.set()

    def _accept(self) -> None:
        threads = []
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._open += [near, far]
                far.connect(self._target)
                for source, sink in ((near, far), (far, near)):
                    threads.append(threading.Thread(target=self._forward, args=(source, sink)))
                    threads[-1].start()
        self.sever()
        for thread in threads:
            thread.join()
        for one in (self._listener, *self._open):
            one.close()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._free.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
