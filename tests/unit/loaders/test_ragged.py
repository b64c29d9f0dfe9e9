"""Shards open as documents by number; what is missing or damaged is named."""

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import AlignmentError, CorruptFileError, DataError, UsageError
from dolma_dask.formats.ragged import RaggedNames, SpecialToken, TokenizerRecord, npy_header
from dolma_dask.formats.segments import SEGMENTS_SCHEMA, segments_path
from dolma_dask.loaders import shards
from dolma_dask.loaders.ragged import RaggedDataset, open_ragged
from dolma_dask.loaders.shards import TokenShard
from dolma_dask.sinks.ragged import RaggedWriter
from dolma_dask.tokens.encoding import Tokens

RECORD = TokenizerRecord("f" * 32, "t.json", 50_277)
SHARDS = [[[1, 2, 3], [], [40_000]], [], [[7], [8, 9]]]
ALL = [document for shard in SHARDS for document in shard]


def write(folder: Path, stem: str, documents: list[list[int]], record: TokenizerRecord = RECORD) -> None:
    flat = np.array([token for document in documents for token in document], "<u2")
    with RaggedWriter(str(folder), RaggedNames(stem), record) as writer:
        writer.write(Tokens(flat, np.array([len(document) for document in documents], np.int32)))


def save_pair(folder: Path, stem: str, ids: np.ndarray, lengths: np.ndarray) -> None:
    np.save(folder / f"{stem}.data.npy", ids)
    np.save(folder / f"{stem}.len.npy", lengths)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    return place / "dolma_dask/token_shards"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, documents in enumerate(SHARDS):
        write(tmp_path, f"wiki.{number:05d}-of-00003", documents)
    return tmp_path


def as_lists(dataset: RaggedDataset) -> list[list[int]]:
    return [document.tolist() for document in dataset]


def test_documents_by_number_and_in_order(folder: Path) -> None:
    dataset = open_ragged(folder)
    assert (len(dataset), dataset.tokens, dataset.dtype) == (5, 7, np.dtype("<u2"))
    assert as_lists(dataset) == ALL
    assert [dataset[row].tolist() for row in range(5)] == ALL
    assert dataset[-1].tolist() == dataset[np.int64(4)].tolist() == [8, 9]
    assert [shard.documents for shard in dataset.shards] == [3, 0, 2]
    assert "3 shards, 5 documents, 7 uint16 tokens" in repr(dataset)


@pytest.mark.parametrize("row", [5, -6])
def test_a_row_that_is_not_there(folder: Path, row: int) -> None:
    with pytest.raises(IndexError, match=f"item {row} of 5"):
        open_ragged(folder)[row]


def test_documents_are_plain_read_only_views(folder: Path) -> None:
    document = open_ragged(folder)[0]
    assert type(document) is np.ndarray
    assert not document.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        document[0] = 1


def test_a_view_outlives_its_shard_being_closed(folder: Path) -> None:
    dataset = open_ragged(folder, max_open_shards=1)
    first = dataset[0]
    assert dataset[4].tolist() == [8, 9]
    del dataset
    assert first.tolist() == [1, 2, 3]


def test_only_so_many_shards_stay_open(folder: Path) -> None:
    dataset = open_ragged(folder, max_open_shards=2)
    assert as_lists(dataset) == as_lists(dataset) == ALL
    assert dataset._open.cache_info().currsize == 2


def test_opening_reads_no_lengths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("read too early")

    monkeypatch.setattr(TokenShard, "map_lengths", forbidden)
    assert len(open_ragged(folder)) == 5


def test_a_dataset_pickles_small(folder: Path) -> None:
    dataset = open_ragged(folder)
    dataset[0]
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 3000
    assert as_lists(pickle.loads(pickled)) == ALL


@pytest.mark.parametrize("suffix", [".data.npy", ".len.npy"])
def test_one_pair_by_either_file(folder: Path, suffix: str) -> None:
    assert as_lists(open_ragged(folder / f"wiki.00002-of-00003{suffix}")) == SHARDS[2]


def test_offsets_do_not_wrap_at_int32(tmp_path: Path) -> None:
    stem, count = "big", 2**31 + 5
    save_pair(tmp_path, stem, np.zeros(0, "<i2"), np.array([2**31 - 1, 6], "<i4"))
    data = tmp_path / f"{stem}.data.npy"
    with data.open("r+b") as file:  # sparse: takes no space
        file.write(npy_header(np.dtype("<i2"), count))
        file.truncate(128 + 2 * count)
    dataset = open_ragged(tmp_path)
    assert dataset.shard(0).offsets.tolist() == [0, 2**31 - 1, count]
    assert dataset[1].size == 6


def test_shards_sort_by_number_not_by_letters(tmp_path: Path) -> None:
    for number in range(11):
        save_pair(tmp_path, f"x.{number}-of-11", np.array([number], "<i2"), np.array([1], "<i4"))
    assert as_lists(open_ragged(tmp_path)) == [[number] for number in range(11)]


def settle(folder: Path) -> None:
    """Make the files older than what their next version could look like."""
    for path in folder.glob("*"):
        os.utime(path, (1e9, 1e9))


def test_the_second_opening_reads_no_head(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(folder)
    assert as_lists(open_ragged(folder)) == [open_ragged(folder)[row].tolist() for row in range(5)]
    assert {path.suffix for path in cache.iterdir()} >= {".shards", ".marks"}

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("read again")

    for name in ("_read_header", "_read_sidecar"):
        monkeypatch.setattr(shards, name, forbidden)
    monkeypatch.setattr(TokenShard, "offsets", forbidden)
    dataset = open_ragged(folder)
    assert [dataset[row].tolist() for row in range(5)] == ALL
    write(folder, "wiki.00001-of-00003", [[4]])
    with pytest.raises(AssertionError, match="read again"):
        open_ragged(folder)


def test_young_files_are_read_anew_each_time(folder: Path, cache: Path) -> None:
    assert open_ragged(folder)[0].tolist() == [1, 2, 3]
    assert not cache.exists()
    write(folder, "wiki.00000-of-00003", [[3, 2, 1], [], [40_000]])
    assert open_ragged(folder)[0].tolist() == [3, 2, 1]


def test_without_a_place_to_keep_them_marks_are_made_in_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(folder)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [open_ragged(folder)[row].tolist() for row in range(5)] == ALL


def test_slices_lists_batches_and_windows(folder: Path) -> None:
    with open_ragged(folder) as dataset:
        assert [one.tolist() for one in dataset[1:4]] == ALL[1:4]
        assert [one.tolist() for one in dataset[::-2]] == ALL[::-2]
        assert [one.tolist() for one in dataset.__getitems__([4, -5, 4, 1])] == [
            ALL[at] for at in (4, 0, 4, 1)
        ]
        assert [[one.tolist() for one in batch] for batch in dataset.batches(2)] == [
            ALL[:2],
            ALL[2:4],
            ALL[4:],
        ]
        assert dataset[5:] == dataset.__getitems__([]) == []
        shard = dataset.shard(0)
        assert (
            [one.tolist() for one in shard[1:]]
            == [one.tolist() for one in shard.__getitems__([1, 2])]
            == ALL[1:3]
        )
        windows = dataset.windows(3)
        assert [one.tolist() for one in windows] == [[1, 2, 3], [7, 8, 9]]
        assert [windows[1].tolist(), windows[-2].tolist(), *(one.tolist() for one in windows[1:])] == [
            [7, 8, 9],
            [1, 2, 3],
            [7, 8, 9],
        ]
    assert as_lists(dataset) == ALL, "a closed dataset opens again"
    with pytest.raises(IndexError, match="item 5 of 5"):
        dataset.__getitems__([0, 5])
    with pytest.raises(TypeError, match="whole numbers"):
        dataset.__getitems__([0.5])
    with pytest.raises(IndexError, match="window 2 of 2"):
        windows[2]
    for wrong in (lambda: dataset.windows(0), lambda: next(dataset.batches(0))):
        with pytest.raises(UsageError, match="expected 1 or more"):
            wrong()


@given(
    sizes=st.lists(st.lists(st.integers(0, 3) | st.just(0), max_size=3000), min_size=1, max_size=3),
    rows=st.lists(st.integers(0, 10**9), max_size=30),
)
def test_documents_are_found_from_the_mark_before_them(sizes: list[list[int]], rows: list[int]) -> None:
    sizes = [shard * 5 for shard in sizes]
    flat = [size for shard in sizes for size in shard]
    ends = np.cumsum(flat)
    with tempfile.TemporaryDirectory() as place:
        token = 0
        for number, shard in enumerate(sizes):
            ids = np.arange(token, token := token + sum(shard), dtype="<i4")
            save_pair(Path(place), f"a.{number}-of-{len(sizes)}", ids, np.array(shard, "<i4"))
        dataset = open_ragged(place)
        asked = [row % len(flat) for row in rows] if flat else []
        expected = [list(range(ends[row] - flat[row], ends[row])) for row in asked]
        assert [one.tolist() for one in dataset.__getitems__(asked)] == expected
        assert [dataset[row].tolist() for row in asked] == expected


def test_open_shards_hold_no_file(folder: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    dataset = open_ragged(folder)
    views = as_lists(dataset), dataset[0], dataset.shard(2)
    assert count() == before
    del views


def test_documents_by_the_ids_of_their_segments(folder: Path) -> None:
    dataset = open_ragged(folder)
    assert [one.tolist() for one in dataset.documents([4, 0])] == [[8, 9], [1, 2, 3]]
    with pytest.raises(UsageError, match="which tells the ids of documents"):
        dataset.documents(["b"])
    (folder / "_segments").mkdir()
    names = [["a", "b", "twice"], [], ["d", "twice"]]
    for number, ids in enumerate(names):
        rows = [
            {
                "row": row, "first": 0, "place": 0, "size": 1, "start": 0,
                "source": "s", "id": one, "path": "documents/a", "document": row,
            }
            for row, one in enumerate(ids)
        ]  # fmt: skip
        table = pa.Table.from_pylist(rows, SEGMENTS_SCHEMA)
        pq.write_table(table, folder / segments_path(f"wiki.{number:05d}-of-00003.data.npy"))
    found = dataset.documents(["d", "twice", "a"])
    assert [one.tolist() for one in found] == [[7], [40_000], [8, 9], [1, 2, 3]]
    with pytest.raises(DataError, match=r"1 of 2 ids belong to no document, such as \['e'\]"):
        dataset.documents(["a", "e"])


def test_a_pair_of_another_tool_needs_no_record(tmp_path: Path) -> None:
    save_pair(tmp_path, "plain", np.array([5, 6, 7], "<i4"), np.array([1, 2], "<i2"))
    assert as_lists(open_ragged(str(tmp_path))) == [[5], [6, 7]]


# -- what is wrong is named ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("0.data.npy", lambda data: data[:-3], r"has 133 bytes, expected 136 .*4 tokens.*truncated; copy"),
        ("2.len.npy", lambda data: data + b"xx", "has 138 bytes, expected 136.*too long"),
        *(("0.data.npy", lambda data, size=size: data[:size], "") for size in (0, 5, 9, 60)),
        ("0.data.npy", lambda data: bytes(600), r"not an npy file.*raw memmaps"),
        ("0.len.npy", None, "does not exist; a token shard is a pair"),
        ("2.data.npy", None, r"is left over.*partial=True"),
    ],
)
def test_damaged_files(folder: Path, name: str, change: Any, message: str) -> None:
    number, suffix = name.split(".", 1)
    path = folder / f"wiki.0000{number}-of-00003.{suffix}"
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CorruptFileError, match=f"wiki.0000{number}-of-00003.*{message}"):
        open_ragged(folder)


@pytest.mark.parametrize("part", ["data", "len"])
def test_integers_in_another_byte_order(tmp_path: Path, part: str) -> None:
    save_pair(tmp_path, "a", np.arange(5, dtype="<i2"), np.array([2, 3], "<i4"))
    path = tmp_path / f"a.{part}.npy"
    np.save(path, np.load(path).astype(">i4"))
    with pytest.raises(
        CorruptFileError, match=rf"a\.{part}\.npy holds .* >i4, .*expected <i4.*astype\('<i4'\)"
    ):
        open_ragged(tmp_path)


@pytest.mark.parametrize("array", [np.zeros((2, 2), np.int16), np.zeros(4), np.array([{}], object)])
def test_not_a_row_of_integers(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "a.data.npy", array, allow_pickle=True)
    with pytest.raises(CorruptFileError, match="expected one dimension of integers"):
        open_ragged(tmp_path)


def test_missing_shard(folder: Path) -> None:
    for path in folder.glob("wiki.00001*"):
        path.unlink()
    with pytest.raises(CorruptFileError, match=r"holds 2 of the 3 shards .*missing: \[1\]"):
        open_ragged(folder)
    assert as_lists(open_ragged(folder, partial=True)) == ALL
    (folder / "wiki.00002-of-00003.data.npy").unlink()
    assert as_lists(open_ragged(folder, partial=True)) == SHARDS[0]


def test_lengths_of_another_run(tmp_path: Path) -> None:
    save_pair(tmp_path, "a", np.arange(5, dtype="<i2"), np.array([2, 2], "<i4"))
    dataset = open_ragged(tmp_path)
    with pytest.raises(AlignmentError, match=r"2 lengths that add up to 4 tokens, .* holds 5"):
        dataset[0]


def test_lengths_whose_sum_wraps_to_the_right_one(tmp_path: Path) -> None:
    save_pair(tmp_path, "a", np.arange(5, dtype="<i2"), np.array([2, *[2**62] * 4, 3], "<i8"))
    with pytest.raises(AlignmentError, match=r"add up to 18446744073709551621 tokens, .* holds 5"):
        open_ragged(tmp_path)[0]


def test_negative_length(tmp_path: Path) -> None:
    save_pair(tmp_path, "a", np.arange(5, dtype="<i2"), np.array([6, -1], "<i4"))
    with pytest.raises(CorruptFileError, match="document 1 has length -1"):
        open_ragged(tmp_path)[0]


def test_record_of_another_run(folder: Path) -> None:
    (folder / "wiki.00000-of-00003.json").write_bytes((folder / "wiki.00002-of-00003.json").read_bytes())
    with pytest.raises(
        AlignmentError, match=r"00000-of-00003.json describes .*\(2, 3, '<u2'\).* \(3, 4, '<u2'\)"
    ):
        open_ragged(folder)


@pytest.mark.parametrize(
    "change, message",
    [
        *(
            (lambda _, text=text: text, "is not the record of a token shard")
            for text in ('{"version": 1}', "[]", "{", '{"text": "a"}\n{"text": "b"}')
        ),
        (
            lambda text: text.replace('"version": 1', '"version": 99'),
            "has version 99, this release reads up to 1",
        ),
    ],
)
def test_records_that_cannot_be_read(folder: Path, change: Any, message: str) -> None:
    path = folder / "wiki.00000-of-00003.json"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(CorruptFileError, match=f"00000-of-00003.json {message}"):
        open_ragged(folder)


@pytest.mark.parametrize(
    "other",
    [
        TokenizerRecord("0" * 32, "t.json", 50_277),
        TokenizerRecord("f" * 32, "t.json", 50_277, eos=SpecialToken("</s>", 1)),
        TokenizerRecord("f" * 32, "t.json", 300),
    ],
)
def test_shards_of_two_tokenizers(tmp_path: Path, other: TokenizerRecord) -> None:
    write(tmp_path, "a.00000-of-00002", [[1]])
    write(tmp_path, "a.00001-of-00002", [[1]], other)
    with pytest.raises(DataError, match="must come from one tokenizer"):
        open_ragged(tmp_path)


def test_a_file_that_shrinks_after_opening(folder: Path) -> None:
    dataset = open_ragged(folder)
    path = folder / "wiki.00000-of-00003.data.npy"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(CorruptFileError, match="truncated"):
        dataset[0]


@pytest.mark.parametrize("part", ["data", "len"])
def test_a_file_that_is_replaced_after_opening(folder: Path, part: str) -> None:
    dataset = open_ragged(folder)
    path = folder / f"wiki.00000-of-00003.{part}.npy"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-2] + b"\x01\x00")
    os.utime(path, (1e9, 1e9))
    with pytest.raises(CorruptFileError, match="was replaced since it was opened"):
        dataset[0]


def test_verify_finds_a_changed_byte(folder: Path) -> None:
    shard = open_ragged(folder).shards[0]
    shard.verify()
    path = Path(shard.data_url)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match="bytes changed since they were written"):
        open_ragged(folder).shards[0].verify()


def test_not_a_folder_of_shards(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither a folder nor the .data.npy or .len.npy"):
        open_ragged(tmp_path / "nothing")
    (tmp_path / "train").mkdir()
    save_pair(tmp_path / "train", "a", np.zeros(1, "<i2"), np.ones(1, "<i4"))
    with pytest.raises(UsageError, match=r"holds no \*.data.npy.*open one of its folders: train"):
        open_ragged(tmp_path)
