"""ragged in the formats of trainers: each read back by a plain reader of its layout, and by the original one where it is installed."""

import csv
import gzip
import json

import pytest
from token_readers import READERS, read_all

import dolma_dask as dk
from dolma_dask.engine import runs
from dolma_dask.errors import BadRecordBudgetError, StageError, UsageError
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.testing.tokenizer import END_OF_TEXT

from .conftest import TEXTS, document, write_lines

HERE = {"progress": False, "scheduler": "synchronous"}
STREAMS = sorted(name for name, files in FORMATS.items() if files.is_stream)
OTHERS = sorted(FORMATS.keys() - {"numpy"})


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


@pytest.mark.parametrize("first", [name for name in FORMATS if FORMATS[name].index])
@pytest.mark.parametrize("then", sorted(FORMATS))
def test_an_index_goes_with_the_files_that_it_names(first, then, dataset, tmp_path, tokenizer):
    out, options = tmp_path / "a", {"tokenizer": tokenizer, "eos": "none", **HERE}
    dk.ragged(dataset, out, format=first, **options)
    index = out / FORMATS[first].index
    if then != first:
        dk.ragged(dataset, out, format=then, name="other", overwrite=True, **options)
        assert index.exists(), "all that it names is there"
    dk.ragged(dataset, out, format=then, overwrite=True, **options)
    assert index.exists() == (then == first)


def original_readers(folder, stems, name):
    """Yield the ids of the documents of each shard as the original reader gives them, None in place of what it cannot open; skip without it."""
    if name == "parquet":
        read = pytest.importorskip("datasets").load_dataset
        for stem in stems:
            file, cache = f"{folder}/{stem}.parquet", f"{folder}-cache"
            is_empty = not READERS[name](f"{folder}/{stem}")  # it takes no dataset without rows
            rows = [] if is_empty else read("parquet", data_files=file, split="train", cache_dir=cache)
            yield [row["input_ids"] for row in rows]
    if name == "megatron":
        read = pytest.importorskip("megatron.core.datasets.indexed_dataset").IndexedDataset
        for stem in stems:
            # it maps files into memory, which no system does with an empty one
            is_empty = not (folder / f"{stem}.bin").stat().st_size
            yield None if is_empty else [ids.tolist() for ids in read(f"{folder}/{stem}")]
    if name == "datatrove":
        pytest.importorskip("torch")
        read = pytest.importorskip("datatrove.utils.dataset").DatatroveFileDataset
        for stem in stems:
            windows = read(f"{folder}/{stem}.ds", seq_len=0, return_positions=True)
            documents = []
            for window in (windows[number] for number in range(len(windows))):
                assert window["positions"].tolist() == [0]
                documents += window["input_ids"].tolist()
            yield documents


@pytest.mark.parametrize("name", ["parquet", "megatron", "datatrove"])
def test_the_original_readers_find_the_documents(name, wild, tmp_path, tokenizer):
    dk.ragged(wild, tmp_path / "a", tokenizer=tokenizer, format=name, eos=END_OF_TEXT, **HERE)
    stems = [f"v0.{number:05d}-of-00004" for number in range(4)]
    for stem, found in zip(stems, original_readers(tmp_path / "a", stems, name), strict=True):
        expected = READERS[name](f"{tmp_path}/a/{stem}")
        if name == "datatrove":  # it gives windows of tokens
            expected = [token for ids in expected for token in ids]
        assert found == expected or (found is None and not expected)


@pytest.mark.parametrize("name", OTHERS)
def test_the_reader_of_arrays_says_whose_files_they_are(name, dataset, tmp_path, tokenizer):
    dk.ragged(dataset, tmp_path / "a", tokenizer=tokenizer, format=name, **HERE)
    with pytest.raises(UsageError, match=f"its files are of the format {name}, for other readers"):
        dk.open_ragged(tmp_path / "a")


def index_of(folder):
    return [
        (one["raw_data"]["basename"], one["samples"])
        for one in json.loads((folder / "index.json").read_text())["shards"]
    ]


def test_the_index_of_mds_names_all_shards_or_is_not_there(wild, tmp_path, tokenizer):
    out, options = tmp_path / "a", {"tokenizer": tokenizer, "format": "mds", **HERE}
    some = dk.ragged(wild, out, only=["x/*", "q*"], **options)
    assert not (out / "index.json").exists()
    assert any(
        "index.json is written once all 4 shards are there; now there are 2" in note for note in some.notes
    )
    dk.ragged(wild, out, **options)
    named = [("v0.00001-of-00004.mds", 4), ("v0.00002-of-00004.mds", 6), ("v0.00003-of-00004.mds", 4)]
    assert index_of(out) == named, "readers want no file without samples"
    before = (out / "index.json").read_bytes()
    (out / "index.json").unlink()
    assert dk.ragged(wild, out, **options).skipped == 4
    assert (out / "index.json").read_bytes() == before
    write_lines(wild / "documents/a.jsonl.gz", [document(1)])
    dk.ragged(wild, out, **options)
    assert index_of(out) == [("v0.00000-of-00004.mds", 1), *named]
    with pytest.raises(UsageError, match="expected a folder for each"):
        dk.ragged(wild, out, name="other", **options)


@pytest.mark.parametrize("has_index", [False, True])
@pytest.mark.parametrize("kept", [0, 10])
def test_the_index_of_mds_names_no_file_that_is_missing_or_torn(kept, has_index, wild, tmp_path, tokenizer):
    out, options = tmp_path / "a", {"tokenizer": tokenizer, "format": "mds", **HERE}
    dk.ragged(wild, out, **options)
    before, shard = (out / "index.json").read_bytes(), out / "v0.00002-of-00004.mds"
    shard.write_bytes(shard.read_bytes()[:kept])
    if not kept:
        shard.unlink()
    if not has_index:
        (out / "index.json").unlink()
    some = dk.ragged(wild, out, only="q*", **options)
    assert not (out / "index.json").exists()
    assert any("once all 4 shards are there; now there are 3" in note for note in some.notes)
    assert dk.ragged(wild, out, **options).done == 1
    assert (out / "index.json").read_bytes() == before


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_jobs_of_an_array_work_side_by_side(name, wild, tmp_path, tokenizer, monkeypatch):
    out, options = tmp_path / "a", {"tokenizer": tokenizer, "format": name, **HERE}
    work, beside = runs._work, []

    def work_later(*of):
        monkeypatch.setattr(runs, "_work", work)
        with pytest.raises(UsageError, match="another ragged with other options works in"):
            dk.ragged(wild, out, share="2/2", bos=END_OF_TEXT, **options)
        beside.append(dk.ragged(wild, out, share="2/2", **options))
        work(*of)

    monkeypatch.setattr(runs, "_work", work_later)
    made = dk.ragged(wild, out, share="1/2", **options)
    assert (made.done, beside[0].done) == (2, 2)
    assert len(read_all(out, name)) == 14
    assert (out / "index.json").exists() == bool(FORMATS[name].index)


def test_no_index_is_there_while_a_shard_fails(dataset, tmp_path, tokenizer):
    out, options = tmp_path / "a", {"tokenizer": tokenizer, "format": "mds", **HERE}
    dk.ragged(dataset, out, **options)
    write_lines(dataset / "documents/x/a.jsonl.gz", [document(1), "{"])
    with pytest.raises(StageError):
        dk.ragged(dataset, out, **options)
    assert not (out / "index.json").exists()
    for _ in range(2):
        with pytest.raises(BadRecordBudgetError):
            dk.ragged(
                dataset, out, on_bad_record="quarantine", max_bad_fraction=0.01, **options, overwrite=True
            )
        assert not (out / "index.json").exists()
    dk.ragged(dataset, out, on_bad_record="quarantine", max_bad_fraction=0.5, **options, overwrite=True)
    assert index_of(out) == [("v0.00000-of-00002.mds", 1), ("v0.00001-of-00002.mds", 4)]


def test_streaming_finds_the_documents(wild, tmp_path, tokenizer):
    read = pytest.importorskip("streaming").StreamingDataset
    dk.ragged(wild, tmp_path / "a", tokenizer=tokenizer, format="mds", **HERE)
    found = read(local=str(tmp_path / "a"), shuffle=False, batch_size=1)
    documents = [found[number] for number in range(len(found))]
    assert [one["tokens"].tolist() for one in documents] == read_all(tmp_path / "a", "mds")
    assert [one["id"] for one in documents][:3] == ['comma, "quote"', "new\nline", "plain"]
