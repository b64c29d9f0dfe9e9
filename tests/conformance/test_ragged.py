"""The bytes of the original tool: tokenizer, shards and the empty document of its own run."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.formats.ragged import RaggedNames, ragged_names
from dolma_dask.loaders.ragged import open_ragged
from dolma_dask.pipelines.pipeline import run
from dolma_dask.sinks.ragged import RaggedWriter
from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.specials import Framing

pytestmark = pytest.mark.conformance

CASES = [
    ("in", "train", "out"),
    ("in", "validation", "out"),
    ("edge/in", "train", "edge"),
]


def read_texts(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def write_shard(names: RaggedNames, texts: list[str], tokenizer: Path, out: Path, step: int) -> None:
    engine = load_tokenizer(tokenizer)
    with RaggedWriter(str(out), names, Framing().record(engine)) as writer:
        for start in range(0, len(texts), step):
            writer.write(engine.encode(pa.array(texts[start : start + step], pa.large_string())))


@pytest.mark.parametrize("step", [3, 1000])
@pytest.mark.parametrize(("inputs", "split", "golden"), CASES)
def test_files_equal_those_of_the_original(
    shared: Path, tmp_path: Path, inputs: str, split: str, golden: str, step: int
) -> None:
    folder = shared / "conformance" / "ragged"
    sources = sorted((folder / inputs).glob(f"c4-{split}*.json.gz"))
    for names, source in zip(ragged_names([path.name for path in sources], "c4"), sources, strict=True):
        write_shard(names, read_texts(source), folder / "tokenizer" / "tokenizer.json", tmp_path, step)
    expected = sorted((folder / golden / split).glob("*.npy"))
    assert len(expected) == 2 * len(sources)
    for path in expected:
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize(("inputs", "split", "golden"), CASES)
def test_files_of_the_original_are_read(shared: Path, inputs: str, split: str, golden: str) -> None:
    folder = shared / "conformance" / "ragged"
    engine = load_tokenizer(folder / "tokenizer" / "tokenizer.json")
    texts = [text for path in sorted((folder / inputs).glob(f"c4-{split}*")) for text in read_texts(path)]
    dataset = open_ragged(folder / golden / split)
    assert len(dataset) == len(texts)
    assert all(shard.sidecar is None for shard in dataset.shards)
    for text, document in zip(texts, dataset, strict=True):
        assert np.array_equal(engine.encode(pa.array([text], pa.large_string())).ids, document)


def test_the_empty_document_is_kept(shared: Path) -> None:
    dataset = open_ragged(shared / "conformance" / "ragged" / "edge" / "train")
    assert [dataset[row].size for row in range(3)] == [36, 0, 36]


def test_the_pipeline_for_users_of_pre_tokenize_makes_the_same_bytes(shared: Path, tmp_path: Path) -> None:
    folder = shared / "conformance" / "ragged"
    variables = {
        "raw": str(folder / "in"),
        "out": str(tmp_path),
        "tokenizer": str(folder / "tokenizer/tokenizer.json"),
    }
    config = Path(__file__).resolve().parents[2] / "configs/pre_tokenize.yaml"
    run(str(config), variables=variables, scheduler="synchronous", progress=False)
    expected = sorted((folder / "out").glob("*/*.npy"))
    assert len(expected) == 6
    for path in expected:
        assert (tmp_path / "tokens" / path.name).read_bytes() == path.read_bytes(), path.name
