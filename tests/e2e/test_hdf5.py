"""hdf5 as a command: killed in either pass, and in the words of the tool that it replaces."""

import random
import shutil
import time
from pathlib import Path

import h5py
import pytest
from commands import SLOW_DISK, Command, Watched, wait_until
from small_world import ORDINARY, WILD, make_documents, run_here, temporaries, tree

from dolma_dask.testing.tokenizer import train_tokenizer

pytestmark = pytest.mark.e2e

OPTIONS = ("--max-seq-length", "64", "--max-rows-per-file", "1800")


def words(world: Path, *more: str) -> list[str]:
    tokenizer = ("--tokenizer", f"{world}/tokenizer.json")
    return ["hdf5", f"{world}/v0", f"{world}/h5", *tokenizer, *OPTIONS, *more]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A world in which the command has run undisturbed."""
    world = tmp_path_factory.mktemp("hdf5") / "world"
    make_documents(world / "v0", 8)
    train_tokenizer(ORDINARY + WILD, world / "tokenizer.json", 300)
    assert run_here(words(world)) == 0
    return world


@pytest.fixture(scope="module")
def expected(made) -> dict[str, str]:
    found = tree(made / "h5")
    assert len(found) > 12
    assert all(name.startswith("part-") or name == "data_params.json" for name in found)
    return found


@pytest.fixture
def world(made, tmp_path) -> Path:
    """A world of one's own, before the command has run."""
    return Path(shutil.copytree(made, tmp_path / "world", ignore=shutil.ignore_patterns("h5")))


def check(world: Path, expected: dict[str, str]) -> None:
    assert tree(world / "h5") == expected
    assert temporaries(world / "h5") == []
    assert not (world / "h5/_work").exists()


def test_killed_in_both_passes(world, expected, tmp_path):
    """Twelve staging files, then as many files: the moments grow, so that each pass is stopped."""
    draw = random.Random(2)
    killed = 0
    for files in (draw.randrange(2, 10), draw.randrange(2, 10), draw.randrange(8, 20)):
        watched = Watched(world / "h5")
        with Command(words(world, "--scheduler", "synchronous"), tmp_path / "log", **SLOW_DISK) as command:
            wait_until(lambda: watched.count() >= files or not command.running(), f"{files} files")  # noqa: B023
            time.sleep(draw.uniform(0, 0.06))
            killed += command.running()
            command.kill(draw.random() < 0.5)
            command.wait_for_family()
    assert killed
    with Command(words(world), tmp_path / "log") as command:
        assert command.wait() == 0, command.output
    check(world, expected)


def test_the_words_of_the_original(made, tmp_path, capsys, monkeypatch):
    """The documentation's own way of calling, truth values with words behind them, options in YAML."""
    from dolma_dask.config.hdf5_options import create_hdf5_dataset

    (tmp_path / "raw").mkdir()
    shutil.copy(made / "v0/documents/plain.jsonl", tmp_path / "raw")
    params = tmp_path / "params.yaml"
    params.write_text(
        f"setup:\n  input_dir: {tmp_path}/raw\n  processes: 1\n"
        f"processing:\n  tokenizer_type: NeoXTokenizer\n  encoder_file: {made}/tokenizer.json\n  max_seq_length: 99\n"
        "dataset:\n  use_ftfy: True\n"
    )
    monkeypatch.chdir(tmp_path)
    create_hdf5_dataset(
        [
            "LMData",
            "--params",
            str(params),
            "--max_seq_length",
            "64",
            "--use_ftfy",
            "False",
            "--pack_sequences",
            "True",
        ]
    )
    (tmp_path / "v0/documents").mkdir(parents=True)
    shutil.copy(made / "v0/documents/plain.jsonl", tmp_path / "v0/documents")
    assert (
        run_here(["hdf5", "v0", "h5", "--tokenizer", f"{made}/tokenizer.json", "--max-seq-length", "64"]) == 0
    )
    name = "part-000000-00000.h5"
    assert (tmp_path / "data_dir" / name).read_bytes() == (tmp_path / "h5" / name).read_bytes()
    with h5py.File(tmp_path / "h5" / name) as file:
        assert file["data"].shape[1:] == (3, 64)
