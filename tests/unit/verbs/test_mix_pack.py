"""Files by size, shuffles and samples: no row is lost, the seed alone decides, limits hold; killed runs are among the laws of all verbs."""

import gzip
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dolma_dask as dk
from dolma_dask.engine import Stage, Task, execution
from dolma_dask.errors import DataError, StageError, UsageError
from dolma_dask.io import files
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record
from dolma_dask.outputs import packed, pieces
from dolma_dask.outputs.cutting import FilePacking, JoinStage, PieceMember, members_of, spread_files
from dolma_dask.outputs.packed_tokens import TokenPacking
from dolma_dask.outputs.pieces import SortStage

from .conftest import failing, write_lines

HERE: dict[str, Any] = {"scheduler": "synchronous", "progress": False}


def rows_of(root: Path) -> list[dict[str, Any]]:
    paths = sorted((root / "documents").iterdir())
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def bytes_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "documents").iterdir()}


@pytest.fixture
def large(tmp_path: Path) -> str:
    """Three shards of 400 documents that hardly compress."""
    for shard in range(3):
        lines = [
            json.dumps({"id": f"{shard}-{row}", "source": "s", "text": f"{(row * 7919 + shard) ** 9:x}" * 3})
            for row in range(400)
        ]
        write_lines(tmp_path / f"v0/documents/{shard}.jsonl.gz", lines)
    return str(tmp_path / "v0")


@pytest.mark.parametrize("more", [{}, {"shuffle": True}, {"downsample": 100}])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_as_many_files_as_were_asked_for(
    large: str, tmp_path: Path, count: int, more: dict[str, Any]
) -> None:
    dk.mix(large, to=str(tmp_path / "v1"), shards=count, **more, **HERE)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "v1/documents").iterdir())]
    assert len(sizes) == count
    assert max(sizes) - min(sizes) < 0.3 * sum(sizes) / count + 1500
    rows = rows_of(tmp_path / "v1")
    assert len(rows) == (100 if "downsample" in more else 1200)
    in_order = sorted(rows, key=lambda row: tuple(map(int, row["id"].split("-"))))
    assert (rows == in_order) == ("shuffle" not in more)


@pytest.mark.parametrize("more", [{}, {"shuffle": True}, {"where": "id == ''"}])
def test_tables_have_the_rows_of_files_of_lines(large: str, tmp_path: Path, more: dict[str, Any]) -> None:
    dk.mix(large, to=str(tmp_path / "lines"), shards=3, **more, **HERE)
    dk.mix(large, to=str(tmp_path / "tables"), shards=3, format="parquet", **more, **HERE)
    tables = sorted((tmp_path / "tables/documents").iterdir())
    assert [path.name.partition(".")[2] for path in tables] == ["parquet"] * (1 if "where" in more else 3)
    read = [row for path in tables for row in pq.read_table(path).to_pylist()]
    assert [(row["id"], row["source"], row["text"]) for row in read] == [
        (row["id"], row["source"], row["text"]) for row in rows_of(tmp_path / "lines")
    ]


def test_fewer_files_if_few_documents_are_kept(large: str, tmp_path: Path) -> None:
    dk.mix(large, to=str(tmp_path / "v1"), shards=50, where="id in ('0-1', '1-1')", **HERE)
    assert [len(data) > 50 for data in bytes_of(tmp_path / "v1").values()] == [True, True]
    dk.mix(large, to=str(tmp_path / "v2"), shards=50, where="id == ''", **HERE)
    assert rows_of(tmp_path / "v2") == []
    for wrong in (0, -1, True, 1_000_000):
        with pytest.raises(UsageError, match="shards="):
            dk.mix(large, to=str(tmp_path / "v3"), shards=wrong, **HERE)
    with pytest.raises(UsageError, match="one of them"):
        dk.mix(large, to=str(tmp_path / "v3"), shards=2, max_size=1000, **HERE)


@given(st.lists(st.lists(st.integers(1, 50), max_size=5), min_size=1, max_size=8), st.integers(1, 12))
def test_shares_of_members_are_whole_in_order_and_never_empty(pieces: list[list[int]], count: int) -> None:
    records = [piece_of(f"p{number}", sizes) for number, sizes in enumerate(pieces)]
    groups = spread_files(records, count)
    members = [member for record in records for member in members_of(record)]
    if not members:
        assert len(groups) == 1
        return
    assert [member for group in groups for member in group] == members
    assert len(groups) == min(count, len(members))
    assert all(groups)
    largest, total = max(map(size_of, members)), sum(map(size_of, members))
    if len(members) >= 3 * count:
        assert max(sum(map(size_of, group)) for group in groups) <= total / len(groups) + 2 * largest


def size_of(member: PieceMember) -> int:
    return member.stop - member.start


def piece_of(name: str, sizes: list[int]) -> Record:
    ends = [0, *accumulate(sizes)]
    members = tuple((end, row, row) for row, end in enumerate(ends[:-1]))
    file = FileRecord(name, ends[-1] + 8 * bool(sizes), "", len(sizes), members)  # one block
    return Record(name, name, "", files=(file,), info={"text_bytes": len(sizes)})


def test_files_are_full_and_never_too_large(large: str, tmp_path: Path) -> None:
    summary = dk.mix(large, to=str(tmp_path / "v1"), max_size=30_000, **HERE)
    paths = sorted((tmp_path / "v1/documents").iterdir())
    sizes = [path.stat().st_size for path in paths]
    assert [path.name for path in paths] == [f"part-{number:04d}.jsonl.gz" for number in range(len(paths))]
    assert max(sizes) <= 30_000
    assert min(sizes[:-1]) > 26_000
    assert [row["id"] for row in rows_of(tmp_path / "v1")] == [
        f"{shard}-{row}" for shard in range(3) for row in range(400)
    ]
    assert summary.counts["bytes_out"] == sum(sizes)
    assert not (tmp_path / "v1/_work").exists()


def test_a_large_file_is_one_file_and_splittable(large: str, tmp_path: Path) -> None:
    dk.mix(large, to=str(tmp_path / "v1"), max_size=10**9, name="all", **HERE)
    assert list(bytes_of(tmp_path / "v1")) == ["all-0000.jsonl.gz"]
    (record,) = [
        json.loads(line)
        for path in (tmp_path / "v1/_journal/mix").iterdir()
        for line in path.read_text().splitlines()
        if '"unit":"documents/all-0000.jsonl.gz"' in line
    ]
    data = (tmp_path / "v1/documents/all-0000.jsonl.gz").read_bytes()
    text = gzip.decompress(data)
    members = record["files"][0]["members"]
    assert [member[1] for member in members] == [0, 400, 800]
    for first, row, at in members:
        assert gzip.decompress(data[first:]) == text[at:]
        assert text[:at].count(b"\n") == row


def test_every_pass_knows_how_much_it_reads(
    large: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would be taken for quick, and run one after another however much there is."""
    read: dict[str, float] = {}

    def seen(stage: Stage, tasks: list[Task], *rest: Any) -> None:
        read[type(stage).__name__] = sum(task.bytes for task in tasks)
        execute(stage, tasks, *rest)

    execute = execution.execute
    monkeypatch.setattr(execution, "execute", seen)
    dk.mix(large, to=str(tmp_path / "v1"), shuffle=True, **HERE)
    files_of = {root: sum(map(len, bytes_of(Path(root)).values())) for root in (large, str(tmp_path / "v1"))}
    assert read["DocumentStage"] == files_of[large]
    assert read["SortStage"] > files_of[large] / 2
    assert read["JoinStage"] == files_of[str(tmp_path / "v1")]


def test_the_seed_decides_the_order_and_nothing_else(large: str, tmp_path: Path) -> None:
    def shuffled(name: str, seed: int, **options: Any) -> Path:
        dk.mix(
            large, to=str(tmp_path / name), shuffle=True, seed=seed, max_size=40_000, **{**HERE, **options}
        )
        return tmp_path / name

    one, again, other = shuffled("a", 1), shuffled("b", 1, scheduler="threads", workers=2), shuffled("c", 2)
    assert bytes_of(one) == bytes_of(again)
    ids = [[row["id"] for row in rows_of(root)] for root in (one, other)]
    assert ids[0] != ids[1]
    assert (
        sorted(ids[0])
        == sorted(ids[1])
        == sorted(f"{shard}-{row}" for shard in range(3) for row in range(400))
    )


@pytest.mark.parametrize("rate", [0.3, 1.0, 2.5])
def test_samples(large: str, tmp_path: Path, rate: float) -> None:
    summary = dk.mix(large, to=str(tmp_path / "v1"), sample=rate, **HERE)
    assert any("takes each document 2.5 times" in note for note in summary.notes) == (rate > 1)
    counts = Counter(row["id"] for row in rows_of(tmp_path / "v1"))
    assert set(counts.values()) == {0.3: {1}, 1.0: {1}, 2.5: {2, 3}}[rate]
    assert abs(counts.total() - 1200 * rate) < 70
    assert summary.counts["documents_out"] == counts.total()
    dk.mix(large, to=str(tmp_path / "v2"), sample=rate, seed=1, **HERE)
    other = Counter(row["id"] for row in rows_of(tmp_path / "v2"))
    assert (other == counts) == (rate == 1.0)


def test_documents_that_come_again_are_apart_in_a_shuffle(large: str, tmp_path: Path) -> None:
    dk.mix(large, to=str(tmp_path / "v1"), sample=2, shuffle=True, **HERE)
    ids = [row["id"] for row in rows_of(tmp_path / "v1")]
    assert len(ids) == 2400
    assert sum(a == b for a, b in pairwise(ids)) < 20


def test_buckets_that_are_sorted_together_are_those_of_each_alone(
    large: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task reads the indexes of all pieces: they must not be read for every bucket."""
    monkeypatch.setattr(packed, "bucket_count", lambda stored: 16)
    options: dict[str, Any] = {"shuffle": True, "max_size": 20_000, **HERE}
    dk.mix(large, to=str(tmp_path / "alone"), **options)
    scattered, made = pieces.Scattered, list[int]()

    class Counted(scattered):  # type: ignore[misc, valid-type]
        def __init__(self, folder: str, pieces: Any, first: int, stop: int) -> None:
            made.append(stop - first)
            super().__init__(folder, pieces, first, stop)

    monkeypatch.setattr(pieces, "Scattered", Counted)
    monkeypatch.setattr(pieces, "MAX_SORT_TASKS", 3)
    dk.mix(large, to=str(tmp_path / "together"), **options)
    assert made == [6, 6, 4]
    assert bytes_of(tmp_path / "together") == bytes_of(tmp_path / "alone")


@pytest.mark.parametrize("packing", [FilePacking("documents/p", "jsonl.gz"), TokenPacking("p", (".npy",))])
@pytest.mark.parametrize("count", [2, 10_000, 100_001])
def test_names_sort_as_their_files(packing: FilePacking | TokenPacking, count: int) -> None:
    names = [packing.path(number, count) for number in range(count)]
    assert names == sorted(names)
    assert all(map(packing.is_output, names))


def test_the_index_of_a_piece_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "RUN_BYTES", 1)
    lines = pa.array([b"{}\n"] * 1000, pa.large_binary())
    peaks = []
    for runs in (1, 40):
        tracemalloc.start()
        with pieces.ScatterSink(str(tmp_path), f"{runs}.rows", "a", 1, 1 << 14) as sink:
            for run in range(runs):
                sink.hold(np.arange(run * 1000, (run + 1) * 1000), lines)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sink.files[1].bytes > 40 * 900 * 32
    assert peaks[1] < peaks[0] + 1_500_000


@pytest.mark.parametrize(
    "harm", [lambda data: data[:-1] + b"x", lambda data: data[:-9], lambda data: bytes(len(data))]
)
@pytest.mark.parametrize("name", ["00000000.rows", "00000000.rows.index"])
def test_a_damaged_piece_is_made_again(
    large: str, tmp_path: Path, harm: Callable[[bytes], bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of many buckets finds it and removes it; the others miss it."""
    monkeypatch.setattr(packed, "bucket_count", lambda stored: 8)
    options: dict[str, Any] = {"to": str(tmp_path / "v1"), "shuffle": True, **HERE}
    with failing(SortStage, DataError), pytest.raises(StageError, match="stopped here"):
        dk.mix(large, **options)
    piece = next((tmp_path / "v1/_work").rglob(name))
    piece.write_bytes(harm(piece.read_bytes()))
    dk.mix(large, **options)
    assert len(rows_of(tmp_path / "v1")) == 1200


@pytest.mark.parametrize("harm", ["empty", "cut", "swap"])
@pytest.mark.parametrize(("stage", "pattern"), [(SortStage, "*.rows.index"), (JoinStage, "sorted/*.jsonl")])
def test_what_happens_to_a_file_between_two_passes_is_found(
    large: str, tmp_path: Path, harm: str, stage: type[Any], pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, say, which lost its power; or a worker that was taken for dead writes its file late."""
    monkeypatch.setattr(packed, "bucket_count", lambda stored: 8)
    options: dict[str, Any] = {"shuffle": True, "format": "jsonl", **HERE}
    dk.mix(large, to=str(tmp_path / "whole"), **options)
    run, done = stage.run_shard, list[Path]()

    def run_shard(self: Any, task: Task) -> list[Record]:
        if not done:
            done.extend(sorted((tmp_path / "v1/_work").rglob(pattern)))
            first, second = done[:2]
            data = first.read_bytes()
            first.write_bytes({"empty": b"", "cut": data[:5], "swap": second.read_bytes()}[harm])
        return run(self, task)

    monkeypatch.setattr(stage, "run_shard", run_shard)
    dk.mix(large, to=str(tmp_path / "v1"), **options)
    assert len(done) > 2
    assert bytes_of(tmp_path / "v1") == bytes_of(tmp_path / "whole")


def test_nothing_kept_is_a_valid_file(large: str, tmp_path: Path) -> None:
    for shuffle in (False, True):
        root = tmp_path / str(shuffle)
        dk.mix(large, to=str(root), where="id == 'none'", max_size=1000, shuffle=shuffle, **HERE)
        assert list(bytes_of(root)) == ["part-0000.jsonl.gz"]
        assert rows_of(root) == []


def test_formats(large: str, tmp_path: Path) -> None:
    for file_format in ("jsonl", "jsonl.zst"):
        dk.mix(large, to=str(tmp_path / file_format), max_size=50_000, format=file_format, **HERE)
        again = dk.open_dataset(str(tmp_path / file_format))
        assert all(shard.bytes <= 50_000 for shard in again.shards)
        dk.mix(str(tmp_path / file_format), to=str(tmp_path / f"{file_format}-gz"), max_size=10**9, **HERE)
        assert len(rows_of(tmp_path / f"{file_format}-gz")) == 1200


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_size": 0}, "expected stored bytes"),
        ({"shuffle": True, "format": "parquet"}, "expected the number of files in `shards`"),
        ({"sample": 0}, "how often each document is taken"),
        ({"sample": True}, "how often each document is taken"),
        ({"seed": -1}, "expected a whole number"),
        ({"shuffle": True, "name": "../x"}, "cannot be used as a folder name"),
    ],
)
def test_wrong_arguments(large: str, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dk.mix(large, to=str(tmp_path / "v1"), **options, **HERE)


def test_bad_records_are_set_aside(large: str, tmp_path: Path) -> None:
    write_lines(
        tmp_path / "v0/documents/1.jsonl.gz", ["{broken", json.dumps({"id": "x", "source": "s", "text": "y"})]
    )
    summary = dk.mix(
        large, to=str(tmp_path / "v1"), shuffle=True, on_bad_record="quarantine", max_bad_fraction=0.5, **HERE
    )
    assert summary.counts["bad_records"] == 1
    assert (tmp_path / "v1/_quarantine/mix/1.jsonl.gz.jsonl").exists()
    assert len(rows_of(tmp_path / "v1")) == 801


@pytest.mark.parametrize("shuffle", [False, True])
def test_on_any_store(root: str, large: str, tmp_path: Path, shuffle: bool) -> None:
    """The same bytes locally and in an object store; nothing else is left there."""
    for name in ("first", "again"):
        summary = dk.mix(large, to=root, max_size=30_000, shuffle=shuffle, **HERE)
        assert summary.done == (3 if name == "first" else 0)
    dk.mix(large, to=str(tmp_path / "here"), max_size=30_000, shuffle=shuffle, **HERE)
    here = bytes_of(tmp_path / "here")
    there = {
        info.path: files.read_bytes(files.join(root, f"documents/{info.path}"))
        for info in files.list_files(f"{root}/documents")
    }
    assert there == here
    assert {info.path.split("/")[0] for info in files.list_files(root)} == {
        "documents",
        "_journal",
        "README.md",
    }


def test_a_plain_mix_clears_away_what_a_stopped_packed_one_has_left(large: str, tmp_path: Path) -> None:
    target = tmp_path / "v1"
    left = target / "_work/mix-part/0123/pieces/00000000.jsonl"
    left.parent.mkdir(parents=True)
    left.write_text("x")
    other = target / "_work/dedupe-exact/0123/x"
    other.parent.mkdir(parents=True)
    other.write_text("x")
    dk.mix(large, to=str(target), **HERE)
    assert not left.parents[2].exists()
    assert other.exists()


def test_overwrite_is_advised_only_where_it_helps(large: str, tmp_path: Path) -> None:
    target = tmp_path / "v1"
    dk.mix(large, to=str(target), **HERE)
    with pytest.raises(UsageError, match="remove them with --overwrite"):
        dk.mix(large, to=str(target), shuffle=True, **HERE)
    for name in ("mine.jsonl", "part-0099.jsonl.gz"):
        (target / "documents" / name).write_text("")
        for overwrite in (False, True):
            with pytest.raises(
                UsageError, match=rf"no mix has made, first 'documents/{name}.*move them away"
            ):
                dk.mix(large, to=str(target), shuffle=True, overwrite=overwrite, **HERE)
        (target / "documents" / name).unlink()


def test_a_dataset_of_some_shards_does_not_replace_all_of_them(large: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"to": str(tmp_path / "v1"), "shuffle": True, **HERE}
    whole = dk.open_dataset(large)
    dk.mix(whole.select(["0"]), **options)
    dk.mix(whole, **options)
    with pytest.raises(UsageError, match="made from 2 files that this run does not read"):
        dk.mix(whole.select(["0"]), **options)
    assert len(rows_of(tmp_path / "v1")) == 1200


def test_not_even_where_a_whole_run_was_stopped_in_its_last_pass(large: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"to": str(tmp_path / "v1"), "shuffle": True, **HERE}
    dk.mix(large, **options)
    write_lines(Path(large, "documents/0.jsonl.gz"), [json.dumps({"id": "n", "source": "s", "text": "new"})])
    with failing(JoinStage, DataError), pytest.raises(StageError):
        dk.mix(large, **options)
    with pytest.raises(UsageError, match="that this run does not read"):
        dk.mix(large, prune=1, **options)
    assert dk.mix(large, **options).counts["documents_out"] == 801


def test_tokens_follow_the_documents_that_they_are_made_from(
    large: str, tokenizer: str, tmp_path: Path
) -> None:
    """A trial with fewer files, all of it, and then less of it, since a shard is gone."""
    tokens = {
        "ragged": {"to": str(tmp_path / "ragged"), "tokenizer": tokenizer},
        "hdf5": {"to": str(tmp_path / "h5"), "tokenizer": tokenizer, "max_seq_length": 64},
    }
    options: dict[str, Any] = {"to": str(tmp_path / "v1"), "max_size": 20_000, **tokens, **HERE}

    def numbers() -> tuple[int, int]:
        with h5py.File(next((tmp_path / "h5").glob("*.h5"))) as file:
            return len(list((tmp_path / "ragged").glob("*.data.npy"))), int(file.attrs["n_examples"])

    dk.mix(large, prune=1, **options)
    trial = numbers()
    dk.mix(large, **options)
    whole = numbers()
    assert whole > trial
    with pytest.raises(UsageError, match="that this run does not read"):
        dk.mix(large, prune=1, **options)
    assert numbers() == whole
    for number in (1, 2):
        Path(large, f"documents/{number}.jsonl.gz").unlink()
    dk.mix(large, **options)
    assert numbers() == trial
    assert dk.mix(large, **options).done == 0


def test_shards_of_others_in_the_folder_of_tokens_stay(large: str, tokenizer: str, tmp_path: Path) -> None:
    """Names that begin alike, and shards of the same name that were made with other options."""
    rag, options = str(tmp_path / "ragged"), {"tokenizer": tokenizer, **HERE}
    dk.ragged(large, rag, name="v0.1", **options)
    mine: dict[str, Any] = {"to": str(tmp_path / "v1"), "max_size": 20_000, **HERE}
    tokens = {"to": rag, "tokenizer": tokenizer, "name": "v0"}
    dk.mix(large, prune=1, ragged=tokens, **mine)
    dk.mix(large, ragged=tokens, **mine)
    assert len(list((tmp_path / "ragged").glob("v0.1.*.npy"))) == 6
    before = sorted(path.name for path in (tmp_path / "ragged").glob("*.npy"))
    Path(large, "documents/2.jsonl.gz").unlink()
    with pytest.raises(UsageError, match="with other options: eos"):
        dk.mix(large, ragged={**tokens, "eos": "<|endoftext|>"}, **mine)
    assert sorted(path.name for path in (tmp_path / "ragged").glob("*.npy")) == before


def test_shards_that_were_renamed_are_no_reason_to_take_a_part(large: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"to": str(tmp_path / "v1"), "shuffle": True, **HERE}
    dk.mix(large, **options)
    for path in Path(large, "documents").iterdir():
        path.rename(path.with_name(f"new-{path.name}"))
    with pytest.raises(UsageError, match="that this run does not read"):
        dk.mix(large, prune=1, **options)
    dk.mix(large, **options)
    assert len(rows_of(tmp_path / "v1")) == 1200


def test_a_dataset_below_a_folder_named_attributes(large: str, tmp_path: Path) -> None:
    place = Path(large).rename(tmp_path / "attributes")
    options: dict[str, Any] = {"to": str(tmp_path / "v1"), "shuffle": True, **HERE}
    whole = dk.open_dataset(str(place))
    dk.mix(whole, **options)
    with pytest.raises(UsageError, match="that this run does not read"):
        dk.mix(whole.select(["0"]), **options)
