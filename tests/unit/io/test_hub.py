"""Tokenizers by the name of a model, from a server that speaks as the hub does, and from the cache when it is gone."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dolma_dask.io.hub import model_of
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens.engine import load_tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """A server with models: one that anybody reads, one that only a token opens, one without a tokenizer.json."""

    files: dict[str, bytes]
    asked: list[str]
    tokens: set[str]
    busy: int = 0  # answers that still say so


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.server.asked.append(self.path)
        if self.server.busy and "/resolve/" in self.path:
            self.server.busy -= 1
            return self._refuse(503, "Busy")
        model, _, rest = self.path.strip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if model == "org/closed" and token != "hf_secret":
            return self._refuse(401, "GatedRepo")
        if not any(path.startswith(f"{model}/") for path in self.server.files):
            return self._refuse(401, "RepoNotFound")
        if revision not in ("main", "v1", COMMIT):
            return self._refuse(404, "RevisionNotFound")
        content = self.server.files.get(f"{model}/{name}")
        if content is None:
            return self._refuse(404, "EntryNotFound")
        self.send_response(200)
        self.send_header("ETag", f'"{hash(content) & 0xFFFFFFFF:08x}"')
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if with_body:
            self.wfile.write(content)
        return None

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hub") / "tokenizer.json"
    train_tokenizer(["one two three"], path, vocab_size=300)
    return path


@pytest.fixture
def hub(tokenizer) -> Iterator[Hub]:
    server = Hub(("127.0.0.1", 0), Handler)
    server.asked = []
    content, config = tokenizer.read_bytes(), b'{"eos_token": "one"}'
    server.files = {
        "org/open/tokenizer.json": content,
        "org/open/tokenizer_config.json": config,
        "plain/tokenizer.json": content,
        "org/closed/tokenizer.json": content,
        "org/old/tokenizer.model": b"",
    }
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


SCRIPT = """
import json, sys
from dolma_dask.errors import UsageError
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.tokens.specials import read_config
for name in sys.argv[1:]:
    try:
        found = open_tokenizer(name)
        print(json.dumps([found.fingerprint, found.name, found.file_name, dict(read_config(found))]))
    except UsageError as error:
        print(json.dumps(str(error)))
"""


def opened(hub: Hub | None, home: Path, *names: str, folder: Path | None = None, **variables: str) -> list:
    """Open tokenizers in a process of their own, whose cache is in `home`; without a hub it reaches none."""
    ran = run_of(hub, home, *names, folder=folder, **variables)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def run_of(
    hub: Hub | None, home: Path, *names: str, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    address = f"http://127.0.0.1:{hub.server_address[1] if hub else 9}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    settings = {**kept, "HF_ENDPOINT": address, "HF_HOME": str(home), "NO_PROXY": "*", **variables}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names],
        env=settings,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "hf_secret" not in ran.stdout + ran.stderr
    return ran


def repeated(ran: subprocess.CompletedProcess[str]) -> int:
    """Count how often the library asked again."""
    return ran.stderr.count("Retrying in")


def test_a_model_is_read_and_then_needs_no_network(hub, tokenizer, tmp_path) -> None:
    fingerprint = load_tokenizer(tokenizer).fingerprint
    place = f"hf://org/open@{COMMIT}/tokenizer.json"
    expected = [fingerprint, place, "tokenizer.json", {"eos_token": "one"}]
    names = ("org/open", "org/open@v1", "hf://org/open", "plain")
    found = opened(hub, tmp_path / "home", *names)
    assert found == [expected] * 3 + [
        [fingerprint, f"hf://plain@{COMMIT}/tokenizer.json", "tokenizer.json", {}]
    ]
    for variables in ({}, {"HF_HUB_OFFLINE": "1"}):
        assert opened(None, tmp_path / "home", "org/open", "plain", **variables) == [found[0], found[3]]
    not_read = opened(None, tmp_path / "other", "org/open", HF_HUB_OFFLINE="1")[0]
    assert "as HF_HUB_OFFLINE asks" in not_read
    assert f"the cache {tmp_path}/other/hub has no tokenizer.json of it" in not_read


def test_what_is_not_there_or_closed(hub, tmp_path) -> None:
    for refused in opened(
        hub, tmp_path, "a--b", "org/a..b", "org/b.", "~nobody-is-called-so/x", HF_HUB_OFFLINE="1"
    ):
        assert "Expected a tokenizer.json" in refused or "expected a path" in refused
    missing, revision, old, closed = opened(
        hub, tmp_path, "org/none", "org/open@none", "org/old", "org/closed"
    )
    assert "there is no such model" in missing
    assert "is no file or folder here" in missing
    assert "the model has no revision 'none'" in revision
    assert "has no tokenizer.json on the hub" in old
    assert "AutoTokenizer.from_pretrained('org/old')" in old
    assert "access has to be asked for" in closed
    assert isinstance(opened(hub, tmp_path, "org/closed", HF_TOKEN="hf_secret")[0], list)


def test_a_hub_that_is_not_reached_is_not_asked_again(hub, tmp_path) -> None:
    """Neither the hub nor a proxy that is not there: no time goes into repetitions, which the library tells on its standard error."""
    assert not repeated(run_of(None, tmp_path, "org/open"))
    gone = {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
    assert not repeated(run_of(hub, tmp_path, "org/open", **gone))
    assert hub.asked == []


def test_a_proxy_that_refuses(hub, tmp_path) -> None:
    """The message says so; what is in the cache is taken."""
    found = opened(hub, tmp_path / "home", "org/open")
    refusing = {"HTTPS_PROXY": f"http://127.0.0.1:{hub.server_address[1]}", "NO_PROXY": ""}
    place = {"HF_ENDPOINT": "https://hub.invalid"}
    assert opened(hub, tmp_path / "home", "org/open", **refusing, **place) == found
    message = opened(hub, tmp_path / "other", "org/open", **refusing, **place)[0]
    assert "as a model on https://hub.invalid" in message
    assert "501" in message


@pytest.mark.slow
def test_a_hub_that_is_slow_is_waited_for(hub, tmp_path) -> None:
    """It accepts a connection and says that it is busy: the library repeats."""
    hub.busy = 2
    assert repeated(run_of(hub, tmp_path, "org/open")) == 1
    assert hub.busy == 0


def test_a_path_that_is_there_comes_first(hub, tokenizer, tmp_path) -> None:
    (tmp_path / "org").mkdir()
    (tmp_path / "org/open").symlink_to(tokenizer.parent)
    assert opened(hub, tmp_path / "home", "org/open", folder=tmp_path)[0][1] == str(
        tmp_path / "org/open/tokenizer.json"
    )
    assert hub.asked == []


@pytest.mark.parametrize(
    "location, model",
    [
        ("EleutherAI/pythia-70m", ("EleutherAI/pythia-70m", None)),
        ("gpt2@main", ("gpt2", "main")),
        ("hf://models/a/b@refs/pr/1", ("a/b", "refs/pr/1")),
        ("./a/b", None),
        ("/a/b", None),
        ("a/b/c", None),
        ("a/b.json", None),
        ("s3://a/b", None),
        ("{}", None),
        ("", None),
    ],
)
def test_names(location, model) -> None:
    assert model_of(location) == model
