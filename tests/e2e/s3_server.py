"""A real S3 server (rclone, from PyPI) over a folder, which can be killed and started again; and a proxy that counts and cuts.

What stands in the server's folder is what its buckets hold: tests compare it with local runs byte by byte.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ports import held_ports

from dolma_dask.testing.commands import wait_until

KEY = "AKIATESTKEY7Q2"
SECRET = "sEcReT/9+of+the+test"

_REQUEST = re.compile(rb"(?:^|\r\n)((?:GET|PUT|POST|HEAD|DELETE) \S+) HTTP/1\.1\r\n")


def find_rclone() -> str | None:
    """Return the server's program, if it is installed."""
    beside = Path(sys.executable).with_name("rclone")
    return str(beside) if beside.exists() else shutil.which("rclone")


class S3Server:
    """`rclone serve s3` over a folder; its direct subfolders are the buckets.

    Parameters
    ----------
    folder : Path
        Where the objects lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = held_ports(1)
        self._process: subprocess.Popen | None = None

    @property
    def endpoint(self) -> str:
        """Value for AWS_ENDPOINT_URL."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Return the variables by which a process reaches the server, perhaps through a proxy at another port."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> "S3Server":
        for cut_off in self.folder.rglob(".rclone_temp_put_*"):  # of one that was killed; no object
            cut_off.unlink()
        program = find_rclone()
        assert program is not None
        words = [program, "serve", "s3", str(self.folder), "--addr", f"127.0.0.1:{self.port}"]
        # with a cache time of 0 the server's own clean-up never stops (rclone 1.75)
        options = [
            "--auth-key",
            f"{KEY},{SECRET}",
            "--config",
            "/dev/null",
            "--dir-cache-time",
            "100ms",
            "-q",
        ]
        self._process = subprocess.Popen([*words, *options], stderr=subprocess.DEVNULL)
        wait_until(self._answers, "the S3 server to start")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the S3 server has ended"
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def settle(self) -> None:
        """Wait until it sees what was put straight into its folder: it remembers listings for 20 ms."""
        time.sleep(0.1)

    def kill(self) -> None:
        """End it without a farewell."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Proxy:
    """Passes TCP connections on to a server, and counts the requests in them.

    Parameters
    ----------
    port : int
        Of the server, on this host.
    cut : callable, optional
        Gets the first line of each request (``GET /bucket/key``) and returns after how many bytes of the answer to cut the
        connection; None: not at all. It may also do something to the server, wait, or raise OSError: then the server does not get the request.
    delay : float
        Seconds by which each request is late.
    """

    def __init__(self, port: int, cut: Callable[[str], int | None] | None = None, delay: float = 0.0) -> None:
        self.requests: list[str] = []
        self.cuts = 0
        self._server = port
        self._cut = cut or (lambda _: None)
        self._delay = delay
        (self.port,) = held_ports(1)  # else it may be another's, or the client's own, when it is closed
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def methods(self) -> Counter[str]:
        """Return how many requests of each kind there were: LIST, PART and so on besides HTTP's own words."""
        return Counter(kind_of(request) for request in self.requests)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._server))
        except OSError:
            client.close()
            return
        left: list[int | None] = [None]
        threading.Thread(target=self._upstream, args=(client, server, left), daemon=True).start()
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if left[0] is not None:
                    if len(data) >= left[0]:
                        client.sendall(data[: left[0]])
                        self.cuts += 1
                        break
                    left[0] -= len(data)
                client.sendall(data)
        _end(client, server)

    def _upstream(self, client: socket.socket, server: socket.socket, left: list[int | None]) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                for match in _REQUEST.finditer(data):
                    line = match[1].decode()
                    self.requests.append(line)
                    left[0] = self._cut(line)
                    time.sleep(self._delay)
                server.sendall(data)
        _end(server)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def kind_of(request: str) -> str:
    """Return what a request does."""
    method, target = request.split(" ", 1)
    path, _, query = target.partition("?")
    if "list-type" in query or (method == "GET" and path.count("/") < 2):
        return "LIST"
    if "uploads" in query or "uploadId" in query:
        return {"PUT": "PART", "DELETE": "ABORT"}.get(method, "BEGIN" if "uploads" in query else "COMPLETE")
    return "DELETE" if "delete" in query else method


def put_environment(monkeypatch, variables: dict[str, str]) -> None:
    """Let this process and those it starts reach a server; file systems that were opened before are forgotten."""
    import s3fs

    for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
