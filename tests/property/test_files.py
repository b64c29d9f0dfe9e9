"""Laws of files: what is written is read, whatever the blocks, batches, members and formats; no difference goes unseen."""

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, count, pairwise
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dolma_dask.dataset import open_dataset
from dolma_dask.errors import AlignmentError, CorruptFileError
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeFile
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.publish import publish
from dolma_dask.io.stream import Member, Section, StoredFile, compression_of, read_lines
from dolma_dask.journal import Journal, JournalWriter, Record
from dolma_dask.reading.catalog import open_attributes
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.sinks import jsonl
from dolma_dask.sinks.attributes import AttributeWriter
from dolma_dask.sinks.documents import open_writer

ROOT = "memory://laws"
HEAD = 64 * 1024

NAMES = st.sampled_from(["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
SIZES = st.sampled_from([1, 2, 7, 30, 100, 1000, 1 << 21])


@pytest.fixture(autouse=True, scope="module")
def _clean() -> Iterator[None]:
    yield
    fs = fsspec.filesystem("memory")
    if fs.exists("/laws"):
        fs.rm("/laws", recursive=True)


def pieces_of(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Cut `data` at the given places, taken modulo its length."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:stop] for start, stop in pairwise(places)]


def stored(name: str, pieces: Sequence[bytes]) -> bytes:
    if name.endswith(".gz"):
        return b"".join(gzip.compress(piece, 1, mtime=0) for piece in pieces) or gzip.compress(b"")
    if name.endswith(".zst"):
        codec = pa.Codec("zstd")
        return b"".join(codec.compress(piece, asbytes=True) for piece in pieces or [b""])
    return b"".join(pieces)


def put(path: str, data: bytes) -> str:
    url = f"{ROOT}/{path}"
    with publish(url) as out:
        out.write(data)
    return url


LINES = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=12)


@given(
    NAMES,
    LINES,
    st.booleans(),
    st.lists(st.integers(0, 10_000), max_size=6),
    SIZES,
    st.sampled_from([1, 5, 20, 10**6]),
)
def test_lines_are_what_lies_between_newlines(
    name: str, lines: list[bytes], ends: bool, cuts: list[int], block_bytes: int, limit: int
) -> None:
    text = b"".join(line + b"\n" for line in lines)
    text = text if ends else text.removesuffix(b"\n")
    *whole, last = text.split(b"\n")
    expected = [line + b"\n" for line in (whole if not last else [*whole, last])]
    if name == "a.jsonl" and text[:2] in (b"\x1f\x8b", b"BZ", b"PK", b"PA", b"\x28\xb5", b"\xfd7"):
        return
    url = put(name, stored(name, pieces_of(text, cuts)))
    offsets = [0, *accumulate(map(len, expected))]
    found = 0
    for block in read_lines(
        StoredFile(url), compression_of(url), block_bytes=block_bytes, max_record_bytes=limit
    ):
        assert (block.first_row, block.byte_offset) == (found, offsets[found])
        if block.oversize_bytes:
            assert block.oversize_bytes == len(expected[found]) > limit
            assert block.data.tobytes() == expected[found][:-1][:HEAD]
            found += 1
            continue
        for start, stop in pairwise(block.starts):
            assert block.data[start:stop].tobytes() == expected[found]
            found += 1
    assert found == len(expected)


@given(NAMES, LINES, st.lists(st.integers(0, 10_000), max_size=3), st.integers(0, 10_000))
def test_a_part_of_a_compressed_file_is_never_taken_for_the_whole(
    name: str, lines: list[bytes], cuts: list[int], cut: int
) -> None:
    if name == "a.jsonl":
        return
    pieces = pieces_of(b"".join(line + b"\n" for line in lines), cuts)
    parts = [stored(name, [piece]) for piece in pieces]
    ends = [0, *accumulate(map(len, parts))]
    cut %= ends[-1] + 1
    url = put(name, b"".join(parts)[:cut])
    try:
        blocks = list(read_lines(StoredFile(url), compression_of(url)))
    except CorruptFileError:
        assert cut not in ends[1:]
    else:
        assert cut in ends[1:]
        text = b"".join(block.data.tobytes() for block in blocks)
        whole = b"".join(pieces[: ends.index(cut)])
        assert text == whole + (b"" if whole.endswith(b"\n") or not whole else b"\n")


TEXT = st.text(max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FIELDS = {"id", "text", "source", "added", "created", "metadata"}
DOCUMENTS = st.builds(
    lambda required, optional, more: required | {k: v for k, v in optional.items() if v is not None} | more,
    st.fixed_dictionaries({"id": TEXT, "text": TEXT, "source": TEXT}),
    st.fixed_dictionaries(
        {"added": st.none() | TEXT, "metadata": st.none() | st.dictionaries(TEXT, VALUES, max_size=3)}
    ),
    st.dictionaries(TEXT.filter(lambda key: key not in FIELDS), VALUES, max_size=3),
)
BAD_LINES = st.sampled_from(
    [
        b"",
        b"oops",
        b"{}",
        b'{"id":"a"}',
        b'{"id":1,"text":"","source":""}',
        b"\xff",
        b"[]",
        b'{"id":"a","text":"b"',
        b"{}{}",
    ]
)


def encode(document: dict[str, Any], is_ascii: bool, is_spaced: bool) -> bytes:
    separators = (", ", ": ") if is_spaced else (",", ":")
    text = json.dumps(document, ensure_ascii=is_ascii, separators=separators)
    return text.encode("utf-8")


GOOD_LINES = st.builds(encode, DOCUMENTS, st.booleans(), st.booleans())
COLUMNS = ("id", "text", "source", "added", "metadata", "raw")


@given(
    NAMES,
    st.lists(GOOD_LINES | BAD_LINES, min_size=1, max_size=8),
    st.lists(st.integers(0, 10_000), max_size=4),
    SIZES,
)
def test_documents_are_what_a_plain_parser_finds(
    name: str, lines: list[bytes], cuts: list[int], block_bytes: int
) -> None:
    data = b"".join(line + b"\n" for line in lines)
    url = put(name, stored(name, pieces_of(data, cuts)))
    rows: list[dict[str, Any]] = []
    bad: dict[int, tuple[int, bytes]] = {}
    for block in DocumentFile(url, COLUMNS, block_bytes=block_bytes):
        assert block.first_row == len(rows)
        rows += block.batch.to_pylist()
        bad |= {record.row: (record.byte_offset, record.raw) for record in block.bad}
    offsets = [0, *accumulate(len(line) + 1 for line in lines)]
    assert len(rows) == len(lines)
    for i, (line, row) in enumerate(zip(lines, rows, strict=True)):
        document = plain(line)
        if document is None:
            assert row == dict.fromkeys(COLUMNS)
            assert bad.pop(i) == (offsets[i], line)
            continue
        assert row["raw"] == line + b"\n"
        assert [row[key] for key in ("id", "text", "source", "added")] == [
            document.get(key) for key in ("id", "text", "source", "added")
        ]
        assert row["metadata"] is None or row["metadata"].encode() in line
        assert json.loads(row["metadata"] or "null") == document.get("metadata")
    assert bad == {}


def plain(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line.decode())
    except ValueError:
        return None
    is_good = isinstance(document, dict) and all(
        isinstance(document.get(k), str) for k in ("id", "text", "source")
    )
    return document if is_good else None


@given(st.lists(GOOD_LINES, max_size=8), st.lists(st.integers(0, 10_000), max_size=3))
def test_parquet_keeps_every_value(lines: list[bytes], cuts: list[int]) -> None:
    rows = pa.array([line + b"\n" for line in lines], pa.large_binary())
    with open_writer(ROOT, "a.parquet") as writer:
        for start, stop in pairwise(sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})):
            writer.write(rows.slice(start, stop - start))
    found = [row for block in DocumentFile(f"{ROOT}/a.parquet", COLUMNS) for row in block.batch.to_pylist()]
    assert len(found) == len(lines)
    for line, row in zip(lines, found, strict=True):
        assert json.loads(row["raw"]) == json.loads(line)
        assert row["metadata"] is None or row["metadata"].encode() in line
        assert row["metadata"] is None or row["metadata"].encode() in row["raw"]
        assert [row[key] for key in ("id", "text", "source")] == [
            json.loads(line)[key] for key in ("id", "text", "source")
        ]


@given(
    st.sampled_from(["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"]),
    st.lists(st.integers(1, 60), max_size=30),
    st.lists(st.integers(0, 10_000), max_size=10),
    st.integers(1, 200),
    st.data(),
)
def test_written_files_do_not_depend_on_batches_and_can_be_read_in_parts(
    name: str, sizes: list[int], cuts: list[int], member_bytes: int, data: st.DataObject
) -> None:
    lines = [b"%d" % (i % 10) * (size - 1) + b"\n" for i, size in enumerate(sizes)]
    rows = pa.array(lines, pa.large_binary())
    places = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "MEMBER_BYTES", member_bytes)
        with jsonl.JsonlWriter(ROOT, f"one/{name}") as one:
            one.write(rows)
        with jsonl.JsonlWriter(ROOT, f"many/{name}") as many:
            for start, stop in pairwise(places):
                many.write(rows.slice(start, stop - start))
    url = f"{ROOT}/many/{name}"
    assert files.read_bytes(url) == files.read_bytes(f"{ROOT}/one/{name}")
    assert one.record.members == many.record.members
    members = [Member(*member) for member in many.record.members]
    first = data.draw(st.integers(0, len(members) - 1))
    last = data.draw(st.integers(first + 1, len(members)))
    stop = members[last] if last < len(members) else None
    section = Section(members[first], stop and stop.offset)
    block_bytes = data.draw(SIZES)
    found: list[bytes] = []
    row, offset = members[first].row, members[first].text_offset
    for block in read_lines(StoredFile(url, section), compression_of(url), block_bytes=block_bytes):
        assert (block.first_row, block.byte_offset) == (row + len(found), offset + sum(map(len, found)))
        found += [block.data[start:end].tobytes() for start, end in pairwise(block.starts)]
    assert found == lines[row : stop.row if stop else len(lines)]
    for member, following in pairwise(members):
        assert sum(sizes[member.row : following.row]) >= member_bytes
        assert sum(sizes[member.row : following.row - 1]) < member_bytes


SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))
SCORES = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**6), 10**6).map(
    lambda n: n / 2 * 1e-5
)
SPAN = st.builds(
    lambda start, end, score: {"start": start, "end": end, "score": score},
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    SCORES,
)
ATTRIBUTE_ROWS = st.lists(
    st.tuples(
        TEXT,
        st.none() | SCORES,
        st.none() | st.lists(SPAN, max_size=3),
        st.none() | st.booleans(),
        st.booleans(),
    ),
    max_size=6,
)


@given(ATTRIBUTE_ROWS, st.integers(1, 6), SIZES)
def test_attributes_are_the_same_in_every_format(
    rows: list[tuple[str, float | None, list[dict[str, Any]] | None, bool | None, bool]],
    step: int,
    block_bytes: int,
) -> None:
    kinds: dict[str, Any] = {"d": "document", "s": "spans", "b": "bool"}
    for name in ("a.jsonl.gz", "a.parquet"):
        with AttributeWriter(ROOT, name) as writer:
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                errors = {i: "why" for i, row in enumerate(part) if row[4]}
                ids = pa.array([None if row[4] else row[0] for row in part], pa.large_string())
                columns = [
                    AttributeColumn("d", "document", pa.array([row[1] for row in part], pa.float64())),
                    AttributeColumn("s", "spans", pa.array([row[2] for row in part], SPANS)),
                    AttributeColumn("b", "scalar", pa.array([row[3] for row in part], pa.bool_())),
                ]
                writer.write(ids, ids, np.full(len(part), 7), columns, errors)
        found: list[tuple[Any, ...]] = []
        for block in AttributeFile(f"{ROOT}/{name}", kinds, block_bytes=block_bytes):
            found += zip(
                block.ids.to_pylist(), *(column.to_pylist() for column in block.columns.values()), strict=True
            )
        expected = [
            (None,) * 4
            if is_bad
            else (
                id,
                None if score is None else round(score, 5),
                None if spans is None else [span | {"score": round(span["score"], 5)} for span in spans],
                flag,
            )
            for id, score, spans, flag, is_bad in rows
        ]
        assert found == expected


EDITS = st.lists(
    st.tuples(st.sampled_from(["drop", "swap", "double", "rename", "unread", "source"]), st.integers(0, 100)),
    max_size=3,
)


@given(st.integers(0, 12), EDITS, SIZES)
def test_no_difference_between_documents_and_attributes_goes_unseen(
    size: int, edits: list[tuple[str, int]], block_bytes: int
) -> None:
    root = f"{ROOT}/dataset"
    rows: list[tuple[str | None, str | None]] = [(f"a{i}", "s") for i in range(size)]
    put(
        "dataset/documents/a.jsonl",
        b"".join(b'{"id":"%s","text":"t","source":"s"}\n' % row[0].encode() for row in rows),
    )  # type: ignore[union-attr]
    changed = list(rows)
    for edit, place in edits:
        apply(changed, edit, place)
    with AttributeWriter(root, "attributes/g/a.jsonl.gz") as writer:
        ids, sources = (pa.array([row[i] for row in changed], pa.large_string()) for i in (0, 1))
        errors = {i: "why" for i, row in enumerate(changed) if row[0] is None}
        writer.write(ids, sources, np.ones(len(changed), np.int64), [], errors)
    dataset = open_dataset(root)
    (shard,) = dataset.shards
    sources_ = open_attributes(dataset, ["g"]).sources(shard, ())
    aligned = AlignedShard(root, shard, sources=sources_, digests=True).open(block_bytes=block_bytes)
    if changed == rows:
        assert sum(block.num_rows for block in aligned) == size
        assert aligned.state.unproved == ("g",)
        return
    differs = (i for i, (a, b) in enumerate(zip(changed, rows, strict=False)) if a != b)
    first = next(differs, min(len(changed), size))
    with pytest.raises(AlignmentError) as caught:
        list(aligned)
    assert (
        f"has {len(changed)} row{'' if len(changed) == 1 else 's'}, documents/a.jsonl has {size}; first difference at row {first} ("
        in str(caught.value)
    )


def apply(rows: list[tuple[str | None, str | None]], edit: str, place: int) -> None:
    if not rows:
        return
    place %= len(rows)
    if edit == "drop":
        del rows[place]
    elif edit == "swap":
        other = (place + 1) % len(rows)
        rows[place], rows[other] = rows[other], rows[place]
    elif edit == "double":
        rows.insert(place, rows[place])
    elif edit == "rename":
        rows[place] = (f"{rows[place][0]}x", "s")
    elif edit == "unread":
        rows[place] = (None, None)
    else:
        rows[place] = (rows[place][0], "other")


COUNTER = count()
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "flush", "close", "die"]), st.integers(0, 2), st.integers(0, 4)
    ),
    max_size=30,
)


@pytest.fixture
def _no_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that died would flush late, from another thread."""
    monkeypatch.setattr(JournalWriter, "_start_timer", lambda self: None)


@pytest.mark.usefixtures("_no_timers")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_journals_of_several_runs_at_once_forget_nothing(steps: list[tuple[str, int, int]]) -> None:
    """A model: what a run has flushed is known to everybody for ever, and the newest record of a unit wins."""
    root = f"{ROOT}/journal-{next(COUNTER)}"
    writers = [Journal(root, "tag").start({}, [], "") for _ in range(3)]
    waiting: list[dict[str, float]] = [{}, {}, {}]
    known: dict[str, float] = {}
    for clock, (step, run, unit) in enumerate(steps):
        if step == "add":
            record = Record(unit=f"{unit}", shard="", key="", finished=float(clock + 1))
            writers[run].add(record)
            waiting[run][f"{unit}"] = record.finished
            continue
        if step != "die":
            writers[run].flush() if step == "flush" else writers[run].close()
            for name, finished in waiting[run].items():
                known[name] = max(known.get(name, 0.0), finished)
        else:
            writers[run]._waiting = []
            writers[run] = Journal(root, "tag").start({}, [], "")
        waiting[run] = {}
        assert {name: item.finished for name, item in Journal(root, "tag").records.items()} == known
