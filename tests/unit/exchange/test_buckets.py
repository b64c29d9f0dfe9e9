"""Buckets: every record once, ranges as large as they may be; what is written comes back by bucket, and no damage goes unseen."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import CorruptFileError, DataError, UsageError
from dolma_dask.exchange import buckets
from dolma_dask.exchange.buckets import BucketFile, Bucketing, BucketWriter, FileFacts
from dolma_dask.io import files
from dolma_dask.io.publish import publish

HISTOGRAMS = st.lists(st.one_of(st.just(0), st.integers(0, 50)), min_size=1, max_size=40)


@given(HISTOGRAMS, st.integers(1, 120))
def test_ranges_cover_all_records_in_order(histogram, most):
    ranges = buckets.choose_ranges(np.array(histogram), most)
    assert sum(item.records for item in ranges) == sum(histogram)
    for item in ranges:
        inside = histogram[item.first : item.last]
        assert item.records == sum(inside) > 0
        assert item.records <= most or sum(count > 0 for count in inside) == 1
    for item, following in pairwise(ranges):
        assert item.last == following.first, "no bucket in two ranges, none between them"
        assert item.records + histogram[following.first] > most, "or it would have been joined"


@given(st.lists(st.lists(st.integers(0, 2**40), min_size=3, max_size=3), max_size=5))
def test_histograms_are_summed(histograms):
    packed = [buckets.pack_histogram(np.array(one)) for one in histograms]
    assert buckets.sum_histograms(packed, 3).tolist() == [
        sum(one[at] for one in histograms) for at in range(3)
    ]


@pytest.mark.parametrize("shards", [0, 1, 2, 1023, 1024, 1025, 2048, 2049, 5000, 1_000_000])
def test_shards_fit_their_buckets(shards):
    cut = buckets.of_shards(shards)
    assert cut.count <= buckets.MAX_BUCKETS
    if shards:
        assert ((shards - 1) << 32 | 0xFFFFFFFF) >> cut.shift == cut.count - 1
    if shards <= buckets.MAX_BUCKETS:
        assert cut.shift == 32


@pytest.mark.parametrize("count", [2, 1024, 65_536])
def test_keys_fit_their_buckets(count):
    cut = buckets.of_keys(count)
    assert (2**64 - 1) >> cut.shift == cut.count - 1 == count - 1


@pytest.mark.parametrize("count", [0, 1, 3, 1000, 1 << 17, -2])
def test_other_numbers_of_buckets(count):
    with pytest.raises(UsageError, match="power of two"):
        buckets.of_keys(count)


# ------------------------------------------------------------------------------------------------ files

BUCKETING = Bucketing(60, 16)
FACTS = {}
"""About the files, as their writers gave them."""


def write(url, blocks, words=2, segment=10, bucketing=BUCKETING):
    with publish(url) as out:
        writer = BucketWriter(out, words, bucketing, segment)
        for block in blocks:
            writer.add(np.array(block, np.uint64).reshape(-1, words))
        writer.finish()
    FACTS[url] = FileFacts(out.bytes, int(writer.histogram.sum()), writer.checksum)
    return writer.histogram.tolist()


def read(url, first, last, words=2):
    slices = buckets.read_buckets([BucketFile(url, words, 16, FACTS[url])], first, last)
    return [row for part in slices for row in part.rows.tolist()]


WORD = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 15).map(lambda bucket: bucket << 60))


@pytest.mark.slow
@given(
    blocks=st.lists(st.lists(st.tuples(WORD, WORD), max_size=12), max_size=6),
    segment=st.integers(1, 30),
    bounds=st.tuples(st.integers(0, 16), st.integers(0, 16)),
)
def test_any_buckets_come_back(tmp_path_factory, blocks, segment, bounds):
    url = str(tmp_path_factory.getbasetemp() / "any.bin")
    histogram = write(url, blocks, segment=segment)
    rows = [row for block in blocks for row in block]
    assert histogram == [sum(row[0] >> 60 == bucket for row in rows) for bucket in range(16)]
    first, last = sorted(bounds)
    expected = [row for row in rows if first <= row[0] >> 60 < last]
    assert sorted(map(tuple, read(url, first, last))) == sorted(expected)
    for bucket in range(16):
        mine = [row for row in rows if row[0] >> 60 == bucket]
        assert list(map(tuple, read(url, bucket, bucket + 1))) == mine, (
            "in the order in which they were written"
        )


@pytest.mark.slow
@given(
    inputs=st.lists(st.lists(st.tuples(WORD, WORD), max_size=12), max_size=4),
    bounds=st.tuples(st.integers(0, 16), st.integers(0, 16)),
)
def test_records_of_several_files_by_bucket(tmp_path_factory, inputs, bounds):
    folder, (first, last) = tmp_path_factory.getbasetemp(), sorted(bounds)
    urls = [str(folder / f"{number}.bin") for number in range(len(inputs))]
    histograms = [write(url, [rows], segment=5) for url, rows in zip(urls, inputs, strict=True)]
    counts = [sum(one[bucket] for one in histograms) for bucket in range(first, last)]
    sources = [BucketFile(url, 2, 16, FACTS[url]) for url in urls]
    found = buckets.gather(buckets.read_buckets(sources, first, last), counts, 2)
    rows = [row for one in inputs for row in one if first <= row[0] >> 60 < last]
    assert [tuple(row) for row in found.tolist()] == sorted(rows, key=lambda row: row[0] >> 60)
    for at in range(len(counts)):
        wrong = [count + (number == at) for number, count in enumerate(counts)]
        assert buckets.gather(buckets.read_buckets(sources, first, last), wrong, 2) is None
        if counts[at]:
            wrong[at] -= 2
            assert buckets.gather(buckets.read_buckets(sources, first, last), wrong, 2) is None


def test_rooms_are_used_again():
    rooms = buckets.Rooms()
    first = rooms.take(4, 2)
    rooms.give(first)
    assert rooms.take(4, 2) is first
    assert rooms.take(4, 2) is not first, "it is in use"
    rooms.give(first)
    assert rooms.take(3, 2).shape == (3, 2)
    rooms.give(first)
    assert pickle.loads(pickle.dumps(rooms)).take(4, 2) is not first
    assert len(pickle.dumps(rooms)) < 100, "memory is not sent to other processes"


ROWS = [[(n * 0x9E3779B97F4A7C15 % 2**64, n) for n in range(25)]]


def test_every_damaged_byte_is_seen(tmp_path):
    url = str(tmp_path / "one.bin")
    write(url, ROWS)
    data = (tmp_path / "one.bin").read_bytes()
    for at in range(len(data)):
        (tmp_path / "one.bin").write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(CorruptFileError, match=r"one\.bin is damaged.*run the same command again"):
            read(url, 0, 16)
        assert not (tmp_path / "one.bin").exists(), "or the next run would take it for finished"


@pytest.mark.slow
def test_every_damaged_byte_is_seen_by_the_reader_of_a_range(tmp_path):
    """Bytes of other buckets are not read; whatever is read is right."""
    url = str(tmp_path / "one.bin")
    write(url, ROWS)
    expected = [read(url, bucket, bucket + 3) for bucket in (0, 5, 13)]
    data = (tmp_path / "one.bin").read_bytes()
    for at in range(len(data)):
        for bucket, rows in zip((0, 5, 13), expected, strict=True):
            (tmp_path / "one.bin").write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
            try:
                assert read(url, bucket, bucket + 3) == rows
            except CorruptFileError:
                continue


def test_every_shortened_file_is_seen(tmp_path):
    url = str(tmp_path / "one.bin")
    write(url, ROWS)
    data = (tmp_path / "one.bin").read_bytes()
    for size in range(0, len(data), 3):
        (tmp_path / "one.bin").write_bytes(data[:size])
        with pytest.raises(CorruptFileError, match="damaged"):
            read(url, 0, 16)


def test_a_file_of_something_else(tmp_path):
    url = str(tmp_path / "one.bin")
    write(url, ROWS, words=5)
    with pytest.raises(CorruptFileError, match="records of 5 words"):
        read(url, 0, 16)
    with pytest.raises(CorruptFileError, match=r"is gone.*Run the same command again"):
        read(url, 0, 16)


def test_a_file_of_another_call(tmp_path):
    """A file of the same name and size, and whole: only the checksum tells."""
    url, other = str(tmp_path / "one.bin"), str(tmp_path / "other.bin")
    write(url, ROWS)
    write(other, [[(first, second ^ 1) for first, second in ROWS[0]]])
    assert (tmp_path / "one.bin").stat().st_size == (tmp_path / "other.bin").stat().st_size
    (tmp_path / "other.bin").replace(url)
    with pytest.raises(CorruptFileError, match=r"one\.bin is damaged: found what another call has written"):
        read(url, 3, 4)
    assert not (tmp_path / "one.bin").exists()


def test_buckets_that_do_not_exist(tmp_path):
    with pytest.raises(DataError, match="a record for bucket 15 was given to the exchange, which has 15"):
        write(str(tmp_path / "one.bin"), [[(1 << 60, 1), (15 << 60, 2)]], bucketing=Bucketing(60, 15))
    assert list(tmp_path.iterdir()) == []


def test_in_an_object_store(root):
    url = files.join(root, "folder/one.bin")
    write(url, ROWS)
    assert sorted(map(tuple, read(url, 0, 16))) == sorted(ROWS[0])
    assert sorted(map(tuple, read(url, 3, 4))) == sorted(row for row in ROWS[0] if row[0] >> 60 == 3)
