"""dedupe with a Bloom filter: what is in it, how often it is wrong, the same bytes however it is made, and files that it refuses."""

import json
import shutil
import struct
from collections import namedtuple
from pathlib import Path

import fsspec
import numpy as np
import pytest
import xxhash

import dolma_dask as dk
from dolma_dask.errors import CorruptFileError, DiskFullError, SourceChangedError, UsageError
from dolma_dask.io.publish import writer_space
from dolma_dask.verbs.dedupe.bloom.filters import (
    BLOCK_WORDS,
    PARTS,
    BloomFilter,
    FilterHead,
    Shape,
    Wanted,
    add_keys,
    expected_rate,
    read_head,
    wrong_shares,
)
from dolma_dask.verbs.dedupe.bloom.pieces import FilterJoin, lease_of_filter, look_at

from .conftest import read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}


def keys(seed, count):
    records = np.random.default_rng(seed).integers(0, 1 << 64, (count, 3), np.uint64)
    return records[np.lexsort(records.T[1::-1])]


def filled(shape, records):
    bits, last = np.zeros(shape.blocks * BLOCK_WORDS, np.uint64), np.zeros(3, np.uint64)
    return bits, add_keys(records, shape.blocks, shape.hashes, 0, last, bits)


@pytest.mark.parametrize(
    "wanted",
    [Wanted(rate=0.01), Wanted(rate=0.2), Wanted(size=1), Wanted(size=3 << 20), Wanted(keys=900_000)],
)
def test_all_keys_are_found_and_others_as_rarely_as_is_said(wanted, tmp_path):
    records = keys(1, 200_000)
    shape = wanted.shape(len(records))
    bits, count = filled(shape, np.repeat(records, 2, axis=0))
    assert count == len(records)
    measured = wrong_shares(bits, shape.hashes) / shape.blocks
    expected = expected_rate(shape, len(records))
    assert measured == pytest.approx(expected, rel=0.1)
    if wanted.size is None:
        assert expected <= wanted.rate
    else:
        assert shape.bytes == max(wanted.size // (1 << 19), 1) << 19
    digest = xxhash.xxh3_128_hexdigest(bits.tobytes())
    head = FilterHead({}, shape.blocks, shape.hashes, count, measured, digest)
    (tmp_path / "filter").write_bytes(head.encode() + bits.tobytes())
    made = BloomFilter(str(tmp_path / "filter"), head, len(head.encode()))
    others = keys(2, 400_000)
    assert made.contains((records[:, 0].copy(), records[:, 1].copy())).all()
    wrong = made.contains((others[:, 0].copy(), others[:, 1].copy())).sum()
    assert abs(wrong - measured * len(others)) < 5 * np.sqrt(measured * len(others)) + 3


def test_a_range_of_keys_makes_its_blocks():
    records, shape = keys(3, 5000), Shape(2 * PARTS, 7)
    whole, _ = filled(shape, records)
    for part in range(0, PARTS, 100):
        inside = records[(records[:, 0] >> np.uint64(54)) == part]
        bits, last = np.zeros(2 * BLOCK_WORDS, np.uint64), np.zeros(3, np.uint64)
        add_keys(inside, shape.blocks, shape.hashes, 2 * part, last, bits)
        assert (bits == whole[2 * part * BLOCK_WORDS : 2 * (part + 1) * BLOCK_WORDS]).all()


def make(root, texts):
    lines = [json.dumps({"id": str(n), "text": text, "source": "s"}) for n, text in enumerate(texts)]
    write_lines(root / "documents/a.jsonl", lines)
    return str(root)


OLD = ["one two three\nfour", "five", "five", "", "six seven eight nine"]
NEW = ["five", "ten\nfour\nten", "zero one two three", "six seven eight nine ten"]


def flags(root, name):
    rows = [json.loads(line)["attributes"] for line in read_lines(root / f"attributes/{name}/a.jsonl")]
    return [row.get(name, []) for row in rows]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[[0, 4, 1]], [], [], []]),
        ({"by": "id"}, [[[0, 4, 1]], [[0, 12, 1]], [[0, 18, 1]], [[0, 24, 1]]]),
        ({"unit": "paragraph"}, [[[0, 4, 1]], [[4, 9, 1]], [], []]),
        (
            {"unit": "paragraph", "ngram": 3, "overlap": 0.5},
            [[[0, 4, 1.0]], [[4, 9, 1.0]], [], [[0, 24, 0.66667]]],
        ),
        ({"within": "source"}, [[[0, 4, 1]], [], [], []]),
    ],
)
def test_what_was_kept_before_is_flagged_elsewhere(tmp_path, options, expected):
    old, new, file = make(tmp_path / "old", OLD), make(tmp_path / "new", NEW), tmp_path / "seen.bloom"
    done = dk.dedupe(old, bloom=str(file), name="x", **options, **HERE)
    plain = dk.dedupe(old, name="y", **options, **HERE)
    assert flags(tmp_path / "old", "x") == flags(tmp_path / "old", "y")
    assert done.counts["duplicates"] == plain.counts["duplicates"]
    before = file.read_bytes()
    copy = shutil.copy(file, tmp_path / "elsewhere.bloom")
    found = dk.dedupe(new, bloom=copy, read_only=True, name="z", **options, **HERE)
    assert flags(tmp_path / "new", "z") == expected
    assert found.bloom == done.bloom == read_head(str(file)).head
    assert "finds" in str(found)
    assert file.read_bytes() == before == (tmp_path / "elsewhere.bloom").read_bytes()
    assert dk.dedupe(new, bloom=copy, read_only=True, name="z", **options, **HERE).done == 0


def test_the_filter_is_made_again_where_it_is_not_and_replaces_nothing_else(tmp_path):
    old, file = make(tmp_path / "old", OLD), tmp_path / "seen.bloom"
    call = {"bloom": str(file), **HERE}
    dk.dedupe(old, **call)
    before = file.read_bytes()
    flipped = before[:-9] + bytes([before[-9] ^ 4]) + before[-8:]
    spoiled = (lambda: file.write_bytes(before[:-1]), lambda: file.write_bytes(b""))
    for spoil in (file.unlink, *spoiled, lambda: file.write_bytes(flipped)):
        spoil()
        dk.dedupe(old, **call)
        assert file.read_bytes() == before
    dk.dedupe(old, bloom_rate=0.1, **call)
    assert file.read_bytes() != before
    with pytest.raises(UsageError, match="not what was made with this attribute set"):
        dk.dedupe(make(tmp_path / "new", NEW), **call)
    dk.dedupe(str(tmp_path / "new"), overwrite=True, **call)
    with pytest.raises(UsageError, match="not what was made with"):  # the other's by now
        dk.dedupe(old, **call)
    with pytest.raises(UsageError, match="among the documents"):
        dk.dedupe(old, **{**call, "bloom": f"{old}/documents/x"})


def test_one_run_at_a_time_writes_a_filter(tmp_path):
    old, file = make(tmp_path / "old", OLD), tmp_path / "seen.bloom"
    with lease_of_filter(str(file)), pytest.raises(UsageError, match="works in"):
        dk.dedupe(old, bloom=str(file), **HERE)
    assert not file.exists()
    left = tmp_path / f".seen.bloom.{writer_space()}-99999999-0123abcd.tmp"  # of a run that was killed
    left.write_bytes(b"half")
    dk.dedupe(old, bloom=str(file), **HERE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "seen.bloom"]
    for change in (lambda: file.write_bytes(file.read_bytes()), file.unlink):
        join = FilterJoin("", (), url=str(file), before=look_at(str(file)))
        join.check()
        change()
        with pytest.raises(UsageError, match="by another run meanwhile"):
            join.check()
    dk.dedupe(old, bloom=str(file), **HERE)
    begun = read_head(str(file))
    dk.dedupe(old, bloom=str(file), bloom_rate=0.1, **HERE)
    with pytest.raises(SourceChangedError, match="while dedupe read it"):
        begun.contains((np.zeros(1, np.uint64), np.zeros(1, np.uint64)))


@pytest.mark.parametrize("place", ["here", "a store"])
def test_a_worker_that_reads_other_bits_finds_it(tmp_path, monkeypatch, place):
    """The call has looked at the file, and the machine of a worker has another copy."""
    file = tmp_path / "seen.bloom"
    dk.dedupe(make(tmp_path / "old", OLD), bloom=str(file), **HERE)
    opened, stored = read_head(str(file)), file.read_bytes()
    opened.check()
    if place == "here":
        file.write_bytes(stored[:-9] + bytes([stored[-9] ^ 1]) + stored[-8:])
    else:
        fsspec.filesystem("memory").pipe(
            "/seen.bloom", stored[:5000] + bytes([stored[5000] ^ 1]) + stored[5001:]
        )
        opened = read_head("memory://seen.bloom")
    with pytest.raises(CorruptFileError, match=r"blocks with checksum .*Copy it again"):
        opened.contains((np.zeros(1, np.uint64), np.zeros(1, np.uint64)))


def test_values_of_other_kinds_are_refused(tmp_path):
    """A number is no string of the same digits."""
    file, rows = tmp_path / "seen.bloom", {"numbers": 7, "strings": "7", "again": 8}
    for name, value in rows.items():
        line = {"id": "1", "text": "t", "source": "s", "metadata": {"k": value}}
        write_lines(tmp_path / name / "documents/a.jsonl", [json.dumps(line)])
    dk.dedupe(str(tmp_path / "numbers"), by="metadata.k", bloom=str(file), **HERE)
    call = {"by": "metadata.k", "bloom": str(file), "read_only": True, **HERE}
    assert dk.dedupe(str(tmp_path / "again"), **call).counts["duplicates"] == 0
    with pytest.raises(UsageError, match=r"metadata.k \(number\); expected .* metadata.k \(string\)"):
        dk.dedupe(str(tmp_path / "strings"), **call)


def test_files_that_are_no_filters_are_refused(tmp_path):
    old, file = make(tmp_path / "old", OLD), tmp_path / "seen.bloom"
    dk.dedupe(old, bloom=str(file), **HERE)
    good = file.read_bytes()
    call = {"bloom": str(file), "read_only": True, "name": "z", **HERE}
    for stored, said in (
        (b"", "begins with b''"),
        (b"PAR1" * 99, "begins with b'PAR1PAR1'"),
        (good[:8] + b"\x09" + good[9:], "version 9"),
        (good[:40] + b"!" + good[41:], "another checksum"),
        (good[:-1], "bytes, not"),
        (good[:-1] + b"\x01", "blocks with checksum"),
    ):
        file.write_bytes(stored)
        with pytest.raises(CorruptFileError, match=said):
            dk.dedupe(old, **call)
    file.write_bytes(good)
    with pytest.raises(UsageError, match="filter of unit document, of text; expected one of unit paragraph"):
        dk.dedupe(old, unit="paragraph", **call)
    file.unlink()
    with pytest.raises(UsageError, match="no such file"):
        dk.dedupe(old, **call)
    assert not (tmp_path / "old/attributes/z").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"read_only": True}, "without bloom"),
        ({"bloom": "x", "read_only": True, "bloom_rate": 0.1}, "the filter as it is"),
        ({"bloom": "x", "bloom_bytes": 9, "bloom_rate": 0.1}, "one of them"),
        ({"bloom": "x", "how": "fuzzy"}, "how='fuzzy'"),
        ({"bloom": "x", "unit": "paragraph", "min_copies": 2}, "min_copies"),
        ({"bloom": "x", "bloom_rate": 1e-300}, "bloom_rate=1e-300"),
        ({"bloom": "x", "bloom_bytes": 10**18}, "bloom_bytes=1000000000000000000"),
        ({"bloom": "x", "bloom_keys": 10**30}, "bloom_keys=1000"),
        ({"bloom": ""}, "expected the file or URL"),
        ({"bloom": "/tmp"}, "is a folder"),
        ({"bloom": "/tmp", "read_only": True}, "is a folder"),
        ({"bloom": "x", "bloom_bytes": 1 << 40}, "smaller one"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: namedtuple("Usage", "free")(1 << 30))
    with pytest.raises(DiskFullError if said == "smaller one" else UsageError, match=said):
        dk.dedupe(make(tmp_path / "v0", OLD), **options, **HERE)


def toolkit_filter(path, known):
    """Write a filter as the Dolma toolkit 1.2.1 did on a machine with x86-64: the first six of its thirty hashes, and all of its bits."""
    seeds = b"".join(int(word, 16).to_bytes(8, "little") for four in known["seeds"] for word in four)
    bits = np.zeros(known["words"], "<u4")
    for bit in known["bits"]:
        bits[bit // 32] |= 1 << bit % 32
    head = struct.pack("<III", 0x81F0F117, 1, len(known["seeds"]))
    path.write_bytes(head + seeds + struct.pack("<Q", len(bits)) + bits.tobytes())
    return str(path)


def test_filters_of_the_dolma_toolkit_are_read(tmp_path):
    known = json.loads((Path(__file__).parent / "toolkit_filter.json").read_text())
    file = toolkit_filter(tmp_path / "bloom.bin", known)
    texts = [*known["texts"], "", "y", "xy", "x" * 60, "not this one"]
    root = make(tmp_path / "v0", ["\n".join(texts), *texts])
    call = {"bloom": file, "read_only": True, **HERE}
    found = dk.dedupe(root, name="a", **call)
    assert found.bloom.hashes == 6
    assert [bool(one) for one in flags(tmp_path / "v0", "a")] == [False] + [True] * 25 + [False] * 5
    dk.dedupe(root, unit="paragraph", name="b", **call)
    assert len(flags(tmp_path / "v0", "b")[0]) == 25
    nothing = dk.dedupe(root, by="source", name="c", **call)
    assert "x86-64" in nothing.notes[-1]
    for options in ({"by": "id"}, {"within": "source"}, {"unit": "paragraph", "ngram": 3}):
        with pytest.raises(UsageError, match="whole texts"):
            dk.dedupe(root, name="d", **options, **call)
    stored = Path(file).read_bytes()
    for damaged in (stored[:-1], stored[:9], stored[:4] + b"\x02" + stored[5:]):
        Path(file).write_bytes(damaged)
        with pytest.raises(CorruptFileError, match="of the Dolma toolkit"):
            dk.dedupe(root, name="d", **call)
