"""A real HTTP server in this process that serves files from memory and fails as real ones do, request by request."""

import hashlib
import re
import socket
import struct
import threading
import time
from collections import defaultdict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

PIECE = 1 << 14


class Fault(NamedTuple):
    """Failure of one GET in place of an answer; `after`: bytes of the body that are sent before."""

    kind: str  # drop, reset, stall, trickle, slow_head, status, headers, whole, lie, body, chunked, no_length
    after: int = 0
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Seen(NamedTuple):
    method: str
    path: str
    range: str
    if_range: str
    authorization: str
    at: float  # seconds


class BadServer(ThreadingHTTPServer):
    """`files` by path; `faults` of a path befall its next GETs, one each; `always` befalls all of them."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.always: dict[str, Fault] = {}
        self.seen: list[Seen] = []
        self.ended = threading.Event()
        self.has_heads = True
        self.tags: dict[str, str] = {}  # in place of the digest; empty: none
        self.dates: dict[str, str] = {}
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def tag(self, path: str) -> str:
        return self.tags.get(path, f'"{hashlib.md5(self.files[path]).hexdigest()}"')

    def gets(self, path: str) -> list[Seen]:
        return [one for one in self.seen if one.method == "GET" and one.path == path]

    def __enter__(self) -> "BadServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients go away."""


class _Handler(BaseHTTPRequestHandler):
    server: BadServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.note()
        if not self.server.has_heads:
            self.refuse(405)
        elif self.path not in self.server.files:
            self.refuse(404)
        else:
            self.begin(200, len(self.server.files[self.path]))

    def do_GET(self) -> None:
        self.note()
        self.answer()

    def note(self) -> None:
        found = [self.headers.get(name, "") for name in ("Range", "If-Range", "Authorization")]
        with self.server.lock:
            self.server.seen.append(Seen(self.command, self.path, *found, time.monotonic()))

    def answer(self) -> None:
        with self.server.lock:
            waiting = self.server.faults[self.path]
            fault = waiting.pop(0) if waiting else self.server.always.get(self.path, Fault("none"))
        if fault.kind == "status":
            self.refuse(fault.status, fault.headers)
        elif self.path not in self.server.files:
            self.refuse(404)
        elif fault.kind == "slow_head":
            self.trickle(b"HTTP/1.0 200 OK\r\nX-Long: " + b"x" * 60_000)
        else:
            self.send(fault, self.server.files[self.path])

    def refuse(self, status: int, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def begin(self, status: int, length: int | None, *more: tuple[str, str]) -> None:
        self.send_response(status)
        if tag := self.server.tag(self.path):
            self.send_header("ETag", tag)
        if date := self.server.dates.get(self.path):
            self.send_header("Last-Modified", date)
        for name, value in more:
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def send(self, fault: Fault, data: bytes) -> None:
        start = self.start(fault)
        if start > len(data) or (start and start == len(data)):
            self.refuse(416, (("Content-Range", f"bytes */{len(data)}"),))
            return
        if fault.kind == "body":
            data = fault.body
        status, more = 200, fault.headers
        if start:
            status, more = 206, (("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}"),)
        body = data[start:]
        self.begin(status, None if fault.kind == "no_length" else len(body), *more)
        stop = fault.after if fault.kind in ("drop", "reset", "stall") else len(body)
        with suppress(OSError):
            if fault.kind == "trickle":
                self.trickle(body)
            for at in range(0, min(stop, len(body)), PIECE):
                self.wfile.write(body[at : min(at + PIECE, stop)])
            self.wfile.flush()
        if fault.kind == "stall":
            self.server.ended.wait()
        if fault.kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def trickle(self, data: bytes) -> None:
        with suppress(OSError):
            for byte in data:
                if self.server.ended.wait(0.02):
                    break
                self.wfile.write(bytes([byte]))

    def start(self, fault: Fault) -> int:
        """Return the first byte that is sent: what the range asks for, if its condition holds."""
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range", "")
        is_same = not condition or condition in (
            self.server.tag(self.path),
            self.server.dates.get(self.path),
        )
        if found is None or fault.kind in ("whole", "body") or not (is_same or fault.kind == "lie"):
            return 0
        return int(found[1])
