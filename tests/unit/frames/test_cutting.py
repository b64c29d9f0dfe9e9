"""Beginnings of partitions: the whole dataset in order, within the asked size, the same for the same listing; and what is known of files."""

import gzip
import pickle
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from partition_worlds import FORMATS, MANY, ROWS, rewrite

import dolma_dask as dk
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.errors import UsageError
from dolma_dask.frames.cutting import Partition, ShardPart, cut
from dolma_dask.io.parquet import row_groups
from dolma_dask.io.stored import START
from dolma_dask.reading import entry_points
from dolma_dask.reading.catalog import open_attributes
from dolma_dask.reading.entry_points import EntryPoints, Extent, scan_lines


def partitions_of(root: str | Path, size: int | None, sets: tuple[str, ...] = ()) -> list[Partition]:
    dataset = dk.open_dataset(str(root))
    return list(cut(dataset, open_attributes(dataset, sets), size, with_text=False))


def pieces_of(partitions: list[Partition]) -> list[ShardPart]:
    return [piece for partition in partitions for piece in partition.pieces]


@pytest.mark.parametrize("pair", FORMATS)
def test_partitions_are_the_dataset_in_order(worlds, pair):
    for size in (1, MANY, 5000, 10**9, None):
        pieces = pieces_of(partitions_of(worlds[pair], size))
        found: dict[str, int] = {}
        for piece in pieces:
            name = piece.shard.path.split(".")[0]
            assert (piece.part.first_row if piece.part else 0) == found.get(name, 0)
            found[name] = found.get(name, 0) + (piece.rows or 0)
        assert list(found) == sorted(ROWS)
        assert {name: count for name, count in found.items() if count} == {
            name: len(rows) for name, rows in ROWS.items() if rows
        }


def test_small_shards_share_a_partition_and_large_ones_are_cut(gz):
    partitions = partitions_of(gz, MANY)
    assert sum(partition.pieces[0].shard.path == "a.jsonl.gz" for partition in partitions) > 2
    small = [partition for partition in partitions if len(partition.pieces) > 1]
    assert small == [], "the smallest file counts 64 kB"
    whole = partitions_of(gz, 10**9)
    assert [len(partition.pieces) for partition in whole] == [len(ROWS)]
    assert [len(partition.pieces) for partition in partitions_of(gz, 2 * 65536)] == [2, 2, 1]
    assert [len(partition.pieces) for partition in partitions_of(gz, None)] == [1] * len(ROWS)


def test_boundaries_are_the_same_again_and_for_any_attributes(gz):
    def places(partitions: list[Partition]) -> list[object]:
        return [(piece.shard, piece.part, piece.rows) for piece in pieces_of(partitions)]

    one = places(partitions_of(gz, MANY))
    assert (
        one == places(partitions_of(gz, MANY)) == places(partitions_of(gz, MANY, ("shape_v1", "scores_v1")))
    )


def test_attributes_are_entered_at_the_nearest_place(worlds):
    for pair in FORMATS:
        root = worlds[pair]
        dataset = dk.open_dataset(str(root))
        sets = open_attributes(dataset, ["shape_v1"])
        entered = 0
        for piece in pieces_of(list(cut(dataset, sets, MANY, with_text=False))):
            (source,) = piece.sources
            if piece.part:
                known = EntryPoints(str(root)).attributes(source.info)
                assert source.start in known
                assert source.start.row <= piece.part.first_row
                assert not any(source.start.row < place.row <= piece.part.first_row for place in known)
                entered += source.start != START
        assert entered > 2, pair


def test_a_partition_pickles_small_whatever_the_files(gz):
    for partition in partitions_of(gz, MANY, ("shape_v1", "scores_v1", "first_v1")):
        assert len(pickle.dumps(partition)) < 3500
        assert not any(source.proof.members for source in partition.pieces[0].sources)


def test_a_partition_says_what_it_is(gz):
    assert repr(partitions_of(gz, MANY)[1]).startswith("<Partition a.jsonl.gz rows ")
    assert repr(partitions_of(gz, 10**9)[0]) == "<Partition a.jsonl.gz and 4 others>"
    assert repr(Partition(())) == "<Partition>"


def test_a_dataset_without_shards_is_one_empty_partition():
    assert list(cut(Dataset("/nowhere", ()), None, None, with_text=True)) == [Partition(())]
    with pytest.raises(UsageError, match="partition_bytes=-1"):
        cut(Dataset("/nowhere", ()), None, -1, with_text=True)


def test_lines_of_a_plain_file(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    for data in (b"", b"a", b"a\n", b"a\nbb\n\nccc", b"a\nbb\n\nccc\n", b"x" * 50 + b"\n", b"\n" * 9):
        path.write_bytes(data)
        lines = data.splitlines(keepends=True)
        starts = {sum(map(len, lines[:row])): row for row in range(len(lines))}
        for piece_bytes in (1, 2, 5, 1000):
            monkeypatch.setattr(entry_points, "READ_BYTES", piece_bytes)
            for step in (1, 3, 4, 100):
                members, rows = scan_lines(str(path), step)
                assert rows == len(lines)
                assert members[0] == START
                for before, member in pairwise(members):
                    assert (starts[member.offset], member.text_offset) == (member.row, member.offset)
                    assert member.offset >= before.offset + step
                    assert not any(before.offset + step <= place < member.offset for place in starts)


def test_what_the_journal_says_counts_while_the_size_agrees(plain):
    dataset = dk.open_dataset(str(plain))
    shard = dataset.shards[0]
    points = EntryPoints(dataset.root)
    known = points.documents(shard, None)
    assert (known.rows, known.members) == (40, ())
    assert len(points.documents(shard, 1).members) > 5
    assert points.documents(replace(shard, bytes=shard.bytes + 1), None).rows is None
    scanned = points.documents(Shard(shard.path, 10**12, shard.stamp), 1000)
    assert scanned.rows == 40
    assert all(member.offset == member.text_offset for member in scanned.members)


def test_the_newest_word_on_a_file_counts(plain):
    """Lines were joined, the size is the same, and the attributes were made again: what convert said is of another file."""
    path = plain / "documents/a.jsonl"
    rewrite(path, lambda lines: [lines[0][:-1] + b" " * len(lines[1]) + b"\n", *lines[2:]])
    dk.tag(str(plain), ["char_length_v1"], scheduler="synchronous", progress=False)
    dataset = dk.open_dataset(str(plain))
    points = EntryPoints(dataset.root)
    assert points.documents(dataset.shards[0], None).rows == 39
    assert points.documents(dataset.shards[0], 10**6) == Extent(dataset.shards[0].bytes, 39)


def test_files_of_others(worlds, tmp_path):
    root = Path(shutil.copytree(worlds["parquet", "jsonl.zst"], tmp_path / "v0"))
    shutil.rmtree(root / "_journal")
    lines = b'{"id":"1","text":"x","source":"s"}\n' * 50
    (root / "documents/a.jsonl.gz").write_bytes(gzip.compress(lines) + gzip.compress(lines))
    (root / "documents/z.jsonl").write_bytes(lines)
    points = EntryPoints(str(root))
    found = {shard.path: points.documents(shard, 300) for shard in dk.open_dataset(str(root)).shards}
    assert found["a.jsonl.gz"].members == (), "nothing tells where members start"
    assert found["a.jsonl.gz"].rows is None
    assert found["a.parquet"].members == row_groups(str(root / "documents/a.parquet"))[0]
    assert found["a.parquet"].rows == 40
    assert (len(found["z.jsonl"].members), found["z.jsonl"].rows) == (6, 50)
    plain = Shard("z.jsonl", len(lines), "")
    assert points.documents(plain, None).rows is None
