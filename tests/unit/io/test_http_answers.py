"""What a server over http answers in place of a file, told by every command: refused, out of order, or not there."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.cli import main
from dolma_dask.errors import DolmaDaskError, StoreAccessError, StoreError, UsageError
from dolma_dask.io import files, stores

pytest.importorskip("aiohttp")

ROW = b'{"id": "a", "text": "b", "source": "c"}\n'


class Answers(BaseHTTPRequestHandler):
    """Answers with the status in the path; 299 is a file whose size is not told, 5030 one that is there at the third request; 302 sends to itself. All else is refused, as buckets do for what is not there; below 410 all is gone."""

    asked: dict[str, int] = {}  # noqa: RUF012 - of all requests

    def do_HEAD(self) -> None:
        self.answer(b"")

    def do_GET(self) -> None:
        self.answer(ROW)

    def answer(self, body: bytes) -> None:
        name = self.path.split("/")[1]
        is_known = name.isdecimal() and (name == "410" or self.path.endswith("a.jsonl"))
        status = int(name) if is_known else 403  # as buckets say
        self.asked[self.path] = self.asked.get(self.path, 0) + 1
        if status == 5030:
            status = 503 if self.asked[self.path] < 3 else 200
        self.send_response(200 if status == 299 else status)
        if status == 302:
            self.send_header("Location", self.path)
        if status != 299:
            self.send_header("Content-Length", str(len(ROW) if status == 200 else 0))
        self.end_headers()
        self.wfile.write(body if status in (200, 299) else b"")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(stores, "FIRST_WAIT_SECONDS", 0)
    monkeypatch.setattr(Answers, "asked", {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


TOLD: dict[str, tuple[type[DolmaDaskError], str]] = {
    "403": (StoreAccessError, r"access refused: the server answers 403 Forbidden; .*Correct the address"),
    "401": (StoreAccessError, r"the server answers 401 Unauthorized; .*netrc"),
    "500": (
        StoreError,
        "the server answers 500 Internal Server Error again and again; .*Run the same command",
    ),
    "429": (StoreError, "the server answers 429 Too Many Requests again and again"),
    "400": (StoreError, "the server answers 400 Bad Request; expected the file"),
    "302": (StoreError, "sends from address to address, .*TooManyRedirects.*; expected the file"),
    "299": (StoreError, "does not tell the size of the file; .*dolma-dask download"),
}


@pytest.mark.parametrize("status", TOLD)
def test_what_is_answered_is_told(status: str, address: str, tmp_path: Path) -> None:
    error, message = TOLD[status]
    url = f"{address}/{status}/a.jsonl"
    with pytest.raises(error, match=f"{url}.*{message}"):
        files.stat(url)
    with pytest.raises(error, match=message):
        dk.convert(url, to=str(tmp_path / "v0"), source="a", progress=False, scheduler="synchronous")
    if status != "299":
        with pytest.raises(error, match=message):
            files.read_bytes(url)
    assert not (tmp_path / "v0").exists()


@pytest.mark.parametrize("status", ["404", "410"])
def test_what_is_not_there_is_not_there(status: str, address: str) -> None:
    url = f"{address}/{status}/a.jsonl"
    assert files.stat(url) is None
    with pytest.raises(FileNotFoundError):
        files.read_bytes(url)
    with pytest.raises(UsageError, match="no files found"):
        dk.convert(url, to="v0", source="a", progress=False, scheduler="synchronous")


def test_a_busy_server_is_asked_again(address: str) -> None:
    info = files.stat(f"{address}/5030/a.jsonl")
    assert info is not None
    assert info.bytes == len(ROW)


def test_a_configuration_behind_a_refusal(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-c", f"{address}/403/a.jsonl", "mix"]) != 0
    assert "the server answers 403 Forbidden" in capsys.readouterr().err


def test_a_file_behind_a_server(address: str, tmp_path: Path) -> None:
    url = f"{address}/200/a.jsonl"
    dk.convert(url, to=str(tmp_path / "v0"), progress=False, scheduler="synchronous")
    (made,) = (tmp_path / "v0/documents").iterdir()
    assert json.loads(gzip.decompress(made.read_bytes())) == json.loads(ROW)
