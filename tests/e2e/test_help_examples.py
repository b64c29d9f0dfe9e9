"""Every example that a --help shows is run as it stands, in the order of work: in this process, where kernels are loaded once; by a shell what only a shell does."""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_corpus import collect_small_corpus

from dolma_dask import cli
from dolma_dask.registry import COMMANDS
from dolma_dask.testing.tokenizer import train_tokenizer

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]

ORDER = [
    "convert",
    "",
    "tag",
    "dedupe",
    "block",
    "quantiles",
    "filter",
    "mix",
    "validate",
    "-c mixer.yaml mix",
]
"""Commands that need what those before them make; the main help has an example of its own."""

LAST = ["remove"]
"""Commands that make stale what others have made."""


class Files(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def served(tmp_path):
    """A web server of the folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def place(tmp_path, monkeypatch, served):
    """Files with the names that the examples have, and an earlier version of a dataset."""
    common = " ".join(f"as{word} all the others do" for word in range(20))
    texts = [f"Document {number} speaks of {number} things, one by one, {common}" for number in range(40)]
    rows = [{"id": str(number), "text": text, "source": "wiki"} for number, text in enumerate(texts)]
    corpora = (f"corpus/{name}/v0/documents/a.jsonl" for name in ("wiki", "books", "news"))
    for path in ("dumps/wiki/a.jsonl", *corpora):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    shard = "2023-06/0000/en_head"
    path = tmp_path / f"corpus/rpv2/v0/documents/{shard}.jsonl"
    path.parent.mkdir(parents=True)
    numbered = [{**row, "id": f"{shard}.json.gz/{number}"} for number, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in numbered))
    signals = tmp_path / f"raw/quality_signals/{shard}.signals.json"
    signals.parent.mkdir(parents=True)
    found = [{"id": row["id"], "quality_signals": {"rps_doc_word_count": [[0, 9, 3]]}} for row in numbered]
    signals.write_text("".join(json.dumps(row) + "\n" for row in found))
    (tmp_path / "lists/bad_words").mkdir(parents=True)
    (tmp_path / "lists/bad_words/en.txt").write_text("phrase\n")
    (tmp_path / "raw/c4").mkdir(parents=True)
    c4 = [
        {"url": f"http://a/{n}", "text": text, "timestamp": "2019-04-25T12:57:54Z"}
        for n, text in enumerate(texts)
    ]
    (tmp_path / "raw/c4/a.json").write_text("".join(json.dumps(row) + "\n" for row in c4))
    (tmp_path / "urls").mkdir()
    table = tmp_path / "minhash/2023-06/0000/de_head.minhash.parquet"
    table.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["2023-06/0000/de_head.json.gz/0"]}), table)
    url = f"http://127.0.0.1:{served.server_address[1]}/{table.relative_to(tmp_path)}"
    (tmp_path / "urls/minhash-urls.txt").write_text(f"{url}\n")
    mixer = {"name": "w", "documents": ["corpus/wiki/v0/documents/*"], "output": {"path": "mixed"}}
    (tmp_path / "mixer.yaml").write_text(json.dumps({"streams": [mixer]}))
    (tmp_path / "clean.py").write_text("def strip_menus(text):\n    return text.strip()\n")
    (tmp_path / "takedown.txt").write_text("3\n7\n")
    (tmp_path / "out/wiki").mkdir(parents=True)
    (tmp_path / "out/wiki/part-0-00000.npy").write_bytes(bytes(20))
    (tmp_path / "out/wiki/part-0-00000.csv.gz").write_bytes(gzip.compress(b"0,10,a,a.jsonl.gz,1\r\n"))
    train_tokenizer(texts, tmp_path / "neox.json", vocab_size=300)
    (tmp_path / "t5.json").write_text((tmp_path / "neox.json").read_text().replace("<|endoftext|>", "</s>"))
    collect_small_corpus(tmp_path / "demo")
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / ".local/share/bash-completion/completions").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def examples_of(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the examples in the help of a command."""
    capsys.readouterr()
    assert cli.main([*command.split(), "--help"]) == 0
    return re.findall(r"Example: (.*\S)", capsys.readouterr().out)


def test_every_example_of_a_help_runs(place, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "500")  # a line each
    commands = [*ORDER, *(name for name in (*COMMANDS, "completion") if name not in (*ORDER, *LAST)), *LAST]
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("CORPUS", "new")
    for command in commands:
        examples = examples_of(command, capsys)
        assert examples, command
        for example in examples:
            if ">" in shlex.split(example):
                subprocess.run(["bash", "-c", example], check=True)
                continue
            name, *words = shlex.split(example)
            assert name == "dolma-dask"
            assert cli.main(words) == 0, (example, capsys.readouterr())
    assert (place / "wiki.html").exists()
    assert "_dolma_dask" in (place / ".local/share/bash-completion/completions/dolma-dask").read_text()
