"""ragged in the formats of trainers: each read back by a plain reader of its layout, and by the original one where it is installed."""

import csv
import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.testing.tokenizer import END_OF_TEXT

from .conftest import TEXTS, document, write_lines

HERE = {"progress": False, "scheduler": "synchronous"}
STREAMS = sorted(name for name, files in FORMATS.items() if files.is_stream)
OTHERS = sorted(FORMATS.keys() - {"numpy"})


def cut(ids: np.ndarray, ends: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(ids, ends)[: len(ends)]]


def read_numpy(stem: str) -> list[list[int]]:
    lengths = np.load(f"{stem}.len.npy")
    return cut(np.load(f"{stem}.data.npy"), np.cumsum(lengths, dtype=np.int64))


def read_parquet(stem: str) -> list[list[int]]:
    rows = pq.read_table(f"{stem}.parquet").to_pylist()
    assert all(len(row["input_ids"]) == row["length"] for row in rows)
    return [row["input_ids"] for row in rows]


def read_dolma(stem: str) -> list[list[int]]:
    ids = np.fromfile(f"{stem}.npy", json.loads(Path(f"{stem}.json").read_text())["dtype"])
    with gzip.open(f"{stem}.csv.gz", "rt", newline="") as lines:
        rows = [(int(start), int(end)) for start, end, *_ in csv.reader(lines)]
    assert not rows or [0, *(end for _, end in rows)] == [*(start for start, _ in rows), ids.size]
    return [ids[start:end].tolist() for start, end in rows]


def read_megatron(stem: str) -> list[list[int]]:
    index = Path(f"{stem}.idx").read_bytes()
    magic, version, code, sequences, documents = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version, documents) == (b"MMIDIDX\0\0", 1, sequences + 1)
    dtype = {8: np.dtype("<u2"), 4: np.dtype("<i4")}[code]
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    bounds = np.frombuffer(index, "<i8", documents, 34 + 12 * sequences)
    assert len(index) == 34 + 20 * sequences + 8
    assert bounds.tolist() == list(range(documents))
    ids = Path(f"{stem}.bin").read_bytes()
    assert len(ids) == lengths.sum(dtype=np.int64) * dtype.itemsize
    return [
        np.frombuffer(ids, dtype, length, pointer).tolist()
        for length, pointer in zip(lengths, pointers, strict=True)
    ]


def read_datatrove(stem: str) -> list[list[int]]:
    about, count, _ = Path(f"{stem}.ds.metadata").read_text().split("\n")
    ids = np.fromfile(f"{stem}.ds", {"2": "<u2", "4": "<u4"}[about.rpartition("|")[2]])
    assert ids.size == int(count)
    return cut(ids, np.fromfile(f"{stem}.ds.index", "<u8").astype(np.int64))


READERS = {
    "numpy": read_numpy,
    "parquet": read_parquet,
    "dolma": read_dolma,
    "megatron": read_megatron,
    "datatrove": read_datatrove,
}


def read_all(folder: Path, name: str) -> list[list[int]]:
    """Return the ids of all documents of a folder."""
    data = FORMATS[name].data
    found = sorted(str(path).removesuffix(data) for path in folder.glob(f"*{data}"))
    return [ids for stem in found for ids in READERS[name](stem)]


@pytest.fixture
def wild(dataset):
    """The dataset with a shard without documents, and one whose ids need quotes in a CSV."""
    write_lines(dataset / "documents/a.jsonl.gz", [])
    ids = ['comma, "quote"', "new\nline", "plain", "cr\rhere"]
    lines = [
        json.dumps({"id": name, "text": text, "source": "s"}) for name, text in zip(ids, TEXTS, strict=False)
    ]
    write_lines(dataset / "documents/q.jsonl.gz", lines)
    return dataset


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("eos", [END_OF_TEXT, "none"])
def test_the_documents_are_those_of_ragged(name, eos, wild, tmp_path, tokenizer):
    dk.ragged(wild, tmp_path / "a", tokenizer=tokenizer, eos=eos, **HERE)
    made = dk.ragged(wild, tmp_path / "b", tokenizer=tokenizer, eos=eos, format=name, **HERE)
    expected = read_all(tmp_path / "a", "numpy")
    assert len(expected) == 14
    assert read_all(tmp_path / "b", name) == expected
    assert made.counts["tokens"] == sum(map(len, expected))
    again = dk.ragged(wild, tmp_path / "b", tokenizer=tokenizer, eos=eos, format=name, **HERE)
    assert again.skipped == 4


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_an_end_token_is_the_default_where_readers_see_a_stream(name, dataset, tmp_path, tokenizer):
    dk.ragged(dataset, tmp_path / "a", tokenizer=tokenizer, format=name, **HERE)
    ends = [ids[-1:] == [0] for ids in read_all(tmp_path / "a", name)]
    assert all(ends) if name in STREAMS else not any(ends)


def test_rows_of_dolma_name_each_document_by_its_place(wild, tmp_path, tokenizer):
    where = "id != 'new\\nline'"
    dk.ragged(wild, tmp_path / "a", tokenizer=tokenizer, format="dolma", where=where, **HERE)
    with gzip.open(tmp_path / "a/v0.00001-of-00004.csv.gz", "rt", newline="") as lines:
        text = lines.read()
    rows = list(csv.reader(text.splitlines(keepends=True)))
    assert [row[2:] for row in rows] == [
        ['comma, "quote"', "documents/q.jsonl.gz", "1"],
        ["plain", "documents/q.jsonl.gz", "3"],
        ["cr\rhere", "documents/q.jsonl.gz", "4"],
    ]


@pytest.mark.parametrize("name", OTHERS)
def test_documents_that_are_refused_leave_no_row(name, dataset, tmp_path, tokenizer):
    write_lines(
        dataset / "documents/a.jsonl.gz",
        [document(0), json.dumps({"id": "bad", "text": f"x {END_OF_TEXT}", "source": "s"}), document(2)],
    )
    options = {
        "tokenizer": tokenizer,
        "special_tokens_in_text": "refuse",
        "on_bad_record": "quarantine",
        "max_bad_fraction": 0.5,
        **HERE,
    }
    dk.ragged(dataset, tmp_path / "a", eos=END_OF_TEXT, **options)
    dk.ragged(dataset, tmp_path / "b", eos=END_OF_TEXT, format=name, **options)
    assert read_all(tmp_path / "b", name) == read_all(tmp_path / "a", "numpy")
    if name == "dolma":
        rows = gzip.decompress((tmp_path / "b/v0.00000-of-00003.csv.gz").read_bytes()).decode().split()
        assert [row.split(",")[2:] for row in rows] == [
            ["d0", "documents/a.jsonl.gz", "1"],
            ["d2", "documents/a.jsonl.gz", "3"],
        ]


def test_another_format_in_the_same_folder_is_refused(dataset, tmp_path, tokenizer):
    dk.ragged(dataset, tmp_path / "a", tokenizer=tokenizer, **HERE)
    with pytest.raises(UsageError, match="does not make"):
        dk.ragged(dataset, tmp_path / "a", tokenizer=tokenizer, format="dolma", **HERE)
    dk.ragged(dataset, tmp_path / "a", tokenizer=tokenizer, format="dolma", overwrite=True, **HERE)
    assert not list((tmp_path / "a").glob("*.len.npy"))
    assert len(read_all(tmp_path / "a", "dolma")) == 10
