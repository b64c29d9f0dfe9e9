"""Ids and rows of the Dolma toolkit's ``tokens``: document by document, since its order is random."""

import csv
import gzip
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


END = "<|endoftext|>"


@pytest.mark.parametrize(
    ("golden", "tokenizer", "more"),
    [
        ("tok_gpt2", "gpt2", {}),
        ("tok_gpt2_p2", "gpt2", {"bos": END, "max_size": 40_000, "shuffle": True}),
        ("tok_neox_edge", "neox-encoder", {"max_size": 10_000}),
        ("tok_neox_seg", "neox-encoder", {"segment_before_tokenization": True, "id_key": "metadata.url"}),
    ],
)
def test_ids_and_rows_are_those_of_the_toolkit(shared, tmp_path, golden, tokenizer, more):
    folder = shared / "conformance/dolma"
    expected = dict(documents_in(folder / "out" / golden))
    dk.ragged(
        folder / "in",
        tmp_path / "out",
        tokenizer=str(shared / f"tokenizers/{tokenizer}.json"),
        format="dolma",
        compat="dolma-1.2",
        only="edge" if len(expected) < 200 else None,
        progress=False,
        scheduler="synchronous",
        **more,
    )
    assert len(expected) > 20
    assert dict(documents_in(tmp_path / "out")) == expected
