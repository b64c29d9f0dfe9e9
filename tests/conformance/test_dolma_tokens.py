"""Ids and rows of the Dolma toolkit's ``tokens``: document by document, since its order is random; it strips texts and leaves empty ones out."""

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dolma_dask as dk

pytestmark = pytest.mark.conformance


def documents_in(folder: Path) -> Iterator[tuple[tuple[str, str], list[int]]]:
    """Yield the ids of each document by id and place: the file without folders and the line."""
    for table in sorted(folder.glob("*.csv.gz")):
        ids = np.fromfile(str(table).removesuffix(".csv.gz") + ".npy", "<u2")
        with gzip.open(table, "rt", newline="") as lines:
            for start, end, name, source, line in csv.reader(lines):
                yield (name, f"{Path(source).name}:{line}"), ids[int(start) : int(end)].tolist()


def strip_texts(source: Path, target: Path) -> None:
    """Copy documents as the toolkit encodes them."""
    for path in source.rglob("*.jsonl.gz"):
        documents = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        lines = [json.dumps({**one, "text": one["text"].strip()}) + "\n" for one in documents]
        (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        (target / path.relative_to(source)).write_bytes(gzip.compress("".join(lines).encode()))


END = "<|endoftext|>"


@pytest.mark.parametrize(
    ("golden", "tokenizer", "bos"),
    [("tok_gpt2", "gpt2", None), ("tok_gpt2_p2", "gpt2", END), ("tok_neox_edge", "neox-encoder", None)],
)
def test_ids_and_rows_are_those_of_the_toolkit(shared, tmp_path, golden, tokenizer, bos):
    folder = shared / "conformance/dolma"
    expected = dict(documents_in(folder / "out" / golden))
    strip_texts(folder / "in/documents", tmp_path / "v0/documents")
    dk.ragged(
        tmp_path / "v0",
        tmp_path / "out",
        tokenizer=str(shared / f"tokenizers/{tokenizer}.json"),
        bos=bos,
        special_tokens_in_text="encode",
        format="dolma",
        progress=False,
        scheduler="synchronous",
    )
    found = dict(documents_in(tmp_path / "out"))
    assert len(expected) > 20
    assert {one: found[one] for one in expected} == expected
