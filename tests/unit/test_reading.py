"""The law of alignment: attributes that do not belong to their documents, row by row, are an error."""

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.errors import (
    AlignmentError,
    BadRecordError,
    CorruptFileError,
    MissingAttributesError,
    SchemaError,
    StaleAttributesError,
    UsageError,
)
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.reading import reader
from dolma_dask.reading.catalog import open_attributes
from dolma_dask.reading.reader import AlignedReader, AlignedShard, ReadState, RowRange
from dolma_dask.reading.sets import shard_inputs
from dolma_dask.rules.values import once_each
from dolma_dask.sinks.attributes import AttributeWriter
from dolma_dask.sinks.documents import open_writer

ROWS = 100
BLOCKS = [1, 700, 1 << 21]  # a row per block, a few rows with other borders on both sides, all rows

Row = tuple[str | None, str | None, float | None]


def document(i: int, text: str = "text", source: str = "s") -> bytes:
    return json.dumps({"id": f"a{i}", "text": f"{text} {i}", "source": source}).encode() + b"\n"


@dataclass(frozen=True)
class World:
    """A dataset with one shard of documents and attribute sets that a test changes."""

    root: str
    shard: str = "x/en_00.jsonl.gz"
    undigested: bool = False  # documents are digested only where a proof needs it

    def documents(self, rows: Sequence[bytes], shard: str | None = None) -> None:
        with open_writer(self.root, f"documents/{shard or self.shard}") as writer:
            writer.write(pa.array(rows, pa.large_binary()))

    def attributes(self, rows: Sequence[Row], name: str = "g", path: str | None = None) -> FileRecord:
        """Write attribute rows of (id, source, value); a row without id stands for a bad document."""
        ids, sources = (pa.array([row[i] for row in rows], pa.large_string()) for i in (0, 1))
        values = pa.array([row[2] for row in rows], pa.float64())
        errors = {i: "invalid_json: ..." for i, row in enumerate(rows) if row[0] is None}
        with AttributeWriter(self.root, f"attributes/{name}/{path or self.shard}") as writer:
            column = AttributeColumn(f"{name}__n", "document", values)
            writer.write(ids, sources, np.full(len(rows), 9), [column], errors)
        return writer.record

    def lines(self, data: bytes, name: str = "g", path: str = "x/en_00.jsonl") -> None:
        with publish(files.join(self.root, f"attributes/{name}/{path}")) as out:
            out.write(data)

    def record(self, file: FileRecord, verb: str = "tag", finished: float = 1.0, **info: Any) -> None:
        """Journal that `file` was made from the documents as they are now."""
        digests, rows = DocumentDigests(), 0
        file_read = DocumentFile(files.join(self.root, f"documents/{self.shard}"))
        for block in file_read:
            digests.update(block.batch)
            rows += block.num_rows
        writer = Journal(self.root, verb).start({}, ["attributes/"], "")
        writer.add(
            Record(
                unit=file.path,
                shard=self.shard,
                key="k",
                inputs=(file_read.stored.record(f"documents/{self.shard}"),),
                files=(file,),
                rows=rows,
                ids_digest=digests.ids,
                content_digest=digests.content,
                info={"reads": ["text"], **info},
                finished=finished,
            )
        )
        writer.close()

    @property
    def dataset(self) -> Dataset:
        return open_dataset(self.root)

    def aligned(
        self, names: Sequence[str] = ("g",), block_bytes: int = 1 << 21, **options: Any
    ) -> AlignedReader:
        limits = {name: options.pop(name) for name in ["max_record_bytes"] if name in options}
        sets = open_attributes(self.dataset, names)
        shard = next(shard for shard in self.dataset.shards if shard.path == self.shard)
        sources = sets.sources(shard, once_each(sets.columns))
        columns = ("id", "text", "source", "raw")
        how = {"checked": True} if self.undigested else {"digests": True}
        work = AlignedShard(self.root, shard, columns, sources, **how, **options)
        return work.open(block_bytes=block_bytes, **limits)

    def read(
        self, names: Sequence[str] = ("g",), block_bytes: int = 1 << 21, **options: Any
    ) -> tuple[ReadState, list[dict[str, Any]]]:
        aligned = self.aligned(names, block_bytes, **options)
        rows: list[dict[str, Any]] = []
        for block in aligned:
            rows += block.batch.to_pylist()
        return aligned.state, rows


GOOD: list[Row] = [(f"a{i}", "s", float(i)) for i in range(ROWS)]


@pytest.fixture(params=[False, True], ids=["digested", "checked"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    world = World(str(tmp_path), undigested=request.param)
    world.documents([document(i) for i in range(ROWS)])
    return world


def error_of(world: World, cls: type[Exception] = AlignmentError, **options: Any) -> str:
    with pytest.raises(cls) as caught:
        world.read(**options)
    assert type(caught.value) is cls
    return str(caught.value)


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("document_suffix", [".jsonl.gz", ".jsonl.zst", ".jsonl", ".parquet"])
@pytest.mark.parametrize("attribute_suffix", [".jsonl.gz", ".parquet"])
def test_documents_and_attributes_side_by_side(
    tmp_path: Path, document_suffix: str, attribute_suffix: str, block_bytes: int
) -> None:
    world = World(str(tmp_path), f"x/en_00{document_suffix}")
    world.documents([document(i) for i in range(ROWS)])
    world.record(world.attributes(GOOD, path=f"x/en_00{attribute_suffix}"))
    state, rows = world.read(block_bytes=block_bytes)
    assert [(row["id"], row["g__n"]) for row in rows] == [(f"a{i}", float(i)) for i in range(ROWS)]
    assert json.loads(rows[7]["raw"])["text"] == "text 7"
    assert (state.rows, state.bad_records, state.unproved) == (ROWS, 0, ())
    paths = [f"documents/x/en_00{document_suffix}", f"attributes/g/x/en_00{attribute_suffix}"]
    assert [item.path for item in state.inputs] == paths
    for item in state.inputs:
        assert item.checksum == files.checksum(f"{tmp_path}/{item.path}")
        assert item.bytes == Path(f"{tmp_path}/{item.path}").stat().st_size


def test_in_an_object_store(root: str) -> None:
    world = World(root)
    world.documents([document(i) for i in range(ROWS)])
    world.record(world.attributes(GOOD))
    state, rows = world.read(block_bytes=700)
    assert [row["g__n"] for row in rows] == [float(i) for i in range(ROWS)]
    assert state.unproved == ()
    world.documents([document(i, "other") for i in range(ROWS)])
    assert "is stale" in error_of(world, StaleAttributesError)


def test_a_missing_file(world: World) -> None:
    world.attributes(GOOD, path="en_00.jsonl.gz")  # another folder
    assert error_of(world, MissingAttributesError) == (
        f"{world.root}/attributes/g/x/en_00.jsonl.gz is missing; documents/x/en_00.jsonl.gz needs it. "
        "No journal knows attribute set g: make its file for x/en_00 again with the tool that made the set, or leave the set out."
    )


def test_a_missing_file_of_a_set_that_a_journal_knows(world: World) -> None:
    other = dataclasses.replace(world, shard="y.jsonl.gz")
    other.documents([document(i) for i in range(ROWS)])
    for time, verb, command in (
        (1.0, "tag", "tag ... --only x/en_00"),
        (2.0, "convert_attributes", "convert ... --attributes ... --rename g --only x/en_00"),
        (3.0, "dedupe", "dedupe ... --name g"),
    ):
        other.record(other.attributes(GOOD), verb=verb, finished=time)
        message = error_of(world, MissingAttributesError)
        assert message.endswith(f"Re-run: dolma-dask {command} (attribute set g)")


def test_what_was_made_of_an_unproved_file_is_unproved(world: World) -> None:
    """Also where its record has the digests of the documents as they were then."""
    file = world.attributes(GOOD)
    world.record(file, verb="convert_attributes", unproved=True)
    assert world.read()[0].unproved == ("g",)
    world.documents([document(i, "new") for i in range(ROWS)])
    assert world.read()[0].unproved == ("g",)
    world.record(file, verb="tag", finished=2.0)
    assert world.read()[0].unproved == ()


def test_a_missing_set(world: World) -> None:
    world.attributes(GOOD, "h")
    assert error_of(world, UsageError) == (
        f"{world.root} has no attribute set 'g'; it has: h. Make it: dolma-dask tag."
    )


def test_a_set_that_was_made_after_the_dataset_was_opened(world: World) -> None:
    dataset = world.dataset
    world.attributes(GOOD)
    assert dataset.attributes == ()
    assert list(open_attributes(dataset, ["g"]).files) == ["g"]


AGAIN = "No journal knows attribute set g: make its file for x/en_00 again with the tool that made the set, or leave the set out."


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize(
    "rows, count, difference",
    [
        (GOOD[:-1], 99, "row 99 (no row, expected id 'a99')"),
        (GOOD[:42] + GOOD[43:], 99, "row 42 (id 'a43', expected 'a42')"),
        ([*GOOD, ("a100", "s", 1.0), ("a101", "s", 1.0)], 102, "row 100 (id 'a100', expected the end)"),
        ([*GOOD[:12], GOOD[13], GOOD[12], *GOOD[14:]], 100, "row 12 (id 'a13', expected 'a12')"),
        ([*GOOD[:50], ("a50", "other", 1.0), *GOOD[51:]], 100, "row 50 (source 'other', expected 's')"),
        ([*GOOD[:5], (None, None, None), *GOOD[6:]], 100, "row 5 (id none, expected 'a5')"),
    ],
)
def test_rows_that_do_not_line_up(
    world: World, block_bytes: int, rows: list[Row], count: int, difference: str
) -> None:
    world.attributes(rows)
    with pytest.raises(AlignmentError) as caught:
        world.read(block_bytes=block_bytes)
    assert str(caught.value) == (
        f"attributes/g/x/en_00.jsonl.gz has {count} rows, documents/x/en_00.jsonl.gz has 100; first difference at {difference}. {AGAIN}"
    )
    row = int(difference.split()[1])
    assert caught.value.details == {"shard": "x/en_00.jsonl.gz", "row": row, "attributes": "g"}


def test_a_file_that_a_journal_knows_is_made_again_by_its_verb(world: World) -> None:
    world.record(world.attributes(GOOD[:-1]))
    assert error_of(world).endswith("Re-run: dolma-dask tag ... --only x/en_00 (attribute set g)")


def test_a_file_that_was_changed_after_its_record_is_made_again_with_overwrite(world: World) -> None:
    file = world.attributes(GOOD)
    world.record(file, kinds={"g__n": "document"})
    again = "Re-run: dolma-dask tag ... --only x/en_00 --overwrite (attribute set g)"
    changed: list[Row] = [(id, source, -1.0) for id, source, _ in GOOD]
    size = world.attributes(changed).bytes
    assert error_of(world, StaleAttributesError) == (
        f"attributes/g/x/en_00.jsonl.gz is not the file that `tag` wrote: it has {size:,} bytes, the journal knows {file.bytes:,} with checksum "
        f"{file.checksum}. Was it put back from a backup, swapped or edited? Attributes of your own belong into a set of their own. {again}"
    )
    world.attributes(GOOD[:-1])
    message = error_of(world, StaleAttributesError)
    assert message.startswith(
        "attributes/g/x/en_00.jsonl.gz has 99 rows, documents/x/en_00.jsonl.gz has 100;"
    )
    assert message.endswith(again)


def test_attributes_without_source(world: World) -> None:
    """The Dolma toolkit's deduplication writes none, its taggers an empty one for documents that have none."""
    for source in (b"", b',"source":""', b',"source":null'):
        rows = [b'{"attributes":{"g__n":[[0,1,%d]]},"id":"a%d"%s}\n' % (i, i, source) for i in range(ROWS)]
        world.lines(b"".join(rows))
        state, found = world.read()
        assert [row["g__n"] for row in found] == [float(i) for i in range(ROWS)]
        assert state.unproved == ("g",)
    world.lines(b'{"attributes":{},"id":"b0"}\n' * ROWS)
    assert "(id 'b0', expected 'a0')" in error_of(world)


def test_documents_without_source(world: World) -> None:
    world.documents([b'{"id":"a%d","text":"t"}\n' % i for i in range(ROWS)])
    world.attributes(GOOD)
    _, rows = world.read(default_source="s")
    assert rows[3]["source"] == "s"
    assert "(source 's', expected 'other')" in error_of(world, default_source="other")
    message = error_of(world)
    assert "(id 'a0', expected none; the document could not be read: " in message
    assert "missing field" in message
    assert "--source" in message


def test_a_truncated_file(world: World) -> None:
    world.attributes(GOOD)
    path = Path(world.root, "attributes/g/x/en_00.jsonl.gz")
    path.write_bytes(path.read_bytes()[:-20])
    assert "attributes/g/x/en_00.jsonl.gz: truncated: the file ends at" in error_of(world, CorruptFileError)


def test_a_row_that_cannot_be_read(world: World) -> None:
    rows = [b'{"id":"a%d","attributes":{}}\n' % i for i in range(ROWS)]
    world.lines(b"".join([*rows[:60], b"oops\n", *rows[61:]]))
    message = error_of(world, BadRecordError, block_bytes=100)
    assert "attributes/g/x/en_00.jsonl, row 60, byte" in message


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_bad_documents_have_rows_without_id(world: World, block_bytes: int) -> None:
    bad = {5, 6, 99}
    world.documents([b"oops\n" if i in bad else document(i) for i in range(ROWS)])
    rows = [(None, None, None) if i in bad else GOOD[i] for i in range(ROWS)]
    world.record(world.attributes(rows))
    state, found = world.read(block_bytes=block_bytes)
    assert (state.rows, state.bad_records, state.unproved) == (ROWS, 3, ())
    assert [row["g__n"] for row in found] == [None if i in bad else float(i) for i in range(ROWS)]


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_attributes_of_a_document_that_cannot_be_read_any_more(world: World, block_bytes: int) -> None:
    world.documents([b"oops\n" if i == 5 else document(i) for i in range(ROWS)])
    world.attributes(GOOD)
    assert "at row 5 (id 'a5', expected none; the document could not be read: " in error_of(
        world, block_bytes=block_bytes
    )


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_stale_attributes(world: World, block_bytes: int) -> None:
    """The same ids with another text: what an update of a corpus looks like."""
    world.record(world.attributes(GOOD))
    world.documents([document(i, "text" if i != 77 else "new") for i in range(ROWS)])
    with pytest.raises(StaleAttributesError) as caught:
        world.read(block_bytes=block_bytes)
    message = str(caught.value)
    assert message.startswith(
        "attributes/g/x/en_00.jsonl.gz is stale: documents/x/en_00.jsonl.gz has the same ids but other text than when `tag` made it "
        "(content_digest "
    )
    assert message.endswith("). Re-run: dolma-dask tag ... --only x/en_00 (attribute set g)")


def test_stale_attributes_of_documents_that_look_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read counts, not what the listing says of it."""
    world.record(world.attributes(GOOD))
    world.documents([document(i, "text" if i != 77 else "new") for i in range(ROWS)])
    monkeypatch.setattr(reader, "is_still", lambda record, url: True)
    assert "same ids but other text" in error_of(world, StaleAttributesError)


@pytest.mark.parametrize("reads", [["id"], ["source", "metadata"], ["created", "added"], []])
def test_attributes_that_do_not_read_the_text_are_never_stale(world: World, reads: list[str]) -> None:
    world.record(world.attributes(GOOD), reads=reads)
    world.documents([document(i, "new") for i in range(ROWS)])
    assert world.read()[0].unproved == ()


@pytest.mark.parametrize("reads", [["id", "text"], ["raw"], ["something new"]])
def test_attributes_that_may_read_the_text_are_stale(world: World, reads: list[str]) -> None:
    world.record(world.attributes(GOOD), reads=reads)
    world.documents([document(i, "new") for i in range(ROWS)])
    assert "other text" in error_of(world, StaleAttributesError)


def test_attributes_of_other_documents(world: World) -> None:
    """Sources are part of the proof even where the attribute file has none."""
    rows = b"".join(b'{"attributes":{},"id":"a%d"}\n' % i for i in range(ROWS))
    world.lines(rows)
    path = "attributes/g/x/en_00.jsonl"
    checksum = files.checksum(f"{world.root}/{path}")
    world.record(FileRecord(path, len(rows), checksum, ROWS), verb="dedupe")
    world.documents([document(i, source="other") for i in range(ROWS)])
    message = error_of(world)
    assert f"{path} was made from other documents than documents/x/en_00.jsonl.gz (ids_digest " in message
    assert message.endswith("Re-run: dolma-dask dedupe ... --name g (attribute set g)")


def test_a_file_without_a_record_is_unproved(world: World) -> None:
    world.attributes(GOOD)
    world.record(world.attributes(GOOD, "h"))
    state, rows = world.read(("g", "h"))
    assert state.unproved == ("g",)
    assert rows[9]["g__n"] == rows[9]["h__n"] == 9.0


@pytest.mark.parametrize("columns", [(), ("id", "text")])
@pytest.mark.parametrize("info", [{}, {"unproved": True}])
def test_a_file_that_differs_from_its_record_is_not_read(
    world: World, columns: tuple[str, ...], info: dict[str, Any]
) -> None:
    """Whatever is read of it: put back from a backup, or taken from another shard with the same ids; of the same size too."""
    path = "x/en_00.jsonl"
    rows = [b'{"attributes":{"g__n":[[0,1,%d]]},"id":"a%d","source":"s"}\n' % (i % 9, i) for i in range(ROWS)]
    data, file = b"".join(rows), Path(world.root, "attributes/g", path)
    world.lines(data)
    record = FileRecord(f"attributes/g/{path}", len(data), files.checksum(str(file)), ROWS)
    world.record(record, kinds={"g__n": "document"}, **info)

    def read(part: RowRange | None = None) -> tuple[str, ...]:
        (shard,) = world.dataset.shards
        sources = open_attributes(world.dataset, ["g"]).sources(shard, ["g__n"])
        return AlignedShard(world.root, shard, columns, sources, range=part).open().read_all().unproved

    for stamp in (1, 2):  # the same bytes at another time
        os.utime(file, ns=(stamp, stamp))
        assert read() == read(RowRange(rows=ROWS)) == (("g",) if info else ())
    for other in (data.replace(b"[0,1,7]", b"[0,1,8]"), data + rows[0], data[:-1], data[:-100], b""):
        file.write_bytes(other)
        for part in (None, RowRange(rows=ROWS)):
            with pytest.raises(StaleAttributesError, match=r"Re-run: dolma-dask tag .* --overwrite"):
                read(part)


@pytest.mark.parametrize("suffix", ["jsonl.gz", "jsonl.zst", "parquet"])
def test_a_file_that_was_cut_off_after_its_record(world: World, suffix: str) -> None:
    for info in ({}, {"kinds": {"g__n": "document"}}):
        file = world.attributes(GOOD, path=f"x/en_00.{suffix}")
        world.record(file, **info)
        os.truncate(f"{world.root}/{file.path}", file.bytes - 40)
        assert "is not the file that `tag` wrote" in error_of(world, StaleAttributesError)


def test_a_record_without_digests_proves_nothing(world: World) -> None:
    file = world.attributes(GOOD)
    writer = Journal(world.root, "tag").start({}, [], "")
    writer.add(Record(unit=file.path, shard=world.shard, key="k", files=(file,)))
    writer.close()
    assert world.read()[0].unproved == ("g",)


def test_the_newest_record_of_two_verbs_counts(world: World) -> None:
    file = world.attributes(GOOD)
    for first, second in (("tag", "dedupe"), ("dedupe", "tag")):
        for journal in Path(world.root, "_journal").rglob("*.jsonl"):
            journal.unlink()
        earlier = FileRecord(file.path, file.bytes, "of an earlier file", file.rows)
        world.record(earlier, verb=first, finished=1.0)
        world.record(file, verb=second, finished=2.0)
        sets = open_attributes(world.dataset, ["g"])
        assert sets.proofs[file.path].verb == second
        assert world.read()[0].unproved == ()


def test_two_files_for_one_shard(world: World) -> None:
    world.attributes(GOOD)
    world.attributes(GOOD, path="x/en_00.parquet")
    assert error_of(world) == (
        f"documents/x/en_00.jsonl.gz has two attribute files in {world.root}/attributes/g: x/en_00.jsonl.gz and x/en_00.parquet; "
        "expected one. Remove the one that is not wanted."
    )


def test_two_shards_that_differ_in_their_suffix(world: World) -> None:
    other = dataclasses.replace(world, shard="x/en_00.parquet")
    other.documents([document(i) for i in range(10)])
    world.attributes(GOOD)
    other.attributes(GOOD[:10])
    assert len(world.read()[1]) == 100
    assert len(other.read()[1]) == 10
    Path(world.root, "attributes/g/x/en_00.parquet").unlink()
    assert "attributes/g/x/en_00.jsonl.gz has 100 rows, documents/x/en_00.parquet has 10" in error_of(other)


def test_several_sets_and_only_some_keys(world: World) -> None:
    world.attributes(GOOD)
    world.lines(b"".join(b'{"id":"a%d","x":%d,"y":true}\n' % (i, -i) for i in range(ROWS)), "h")
    sets = open_attributes(world.dataset, ["g", "h"])
    assert once_each(sets.columns) == ["g__n", "x", "y"]
    assert list(sets.columns) == ["g__n", "x", "y", "g/g__n", "h/x", "h/y"]
    assert sets.kinds == {"g": {"g__n": "document"}, "h": {"x": "number", "y": "bool"}}
    assert sets.columns["x"] == sets.columns["h/x"] == ("h", "x")
    (shard,) = world.dataset.shards
    sources = sets.sources(shard, ["x"])
    assert [dict(source.kinds) for source in sources] == [{}, {"x": "number"}]
    assert [info.path for info in shard_inputs(shard, sources)] == [
        "documents/x/en_00.jsonl.gz",
        "attributes/g/x/en_00.jsonl.gz",
        "attributes/h/x/en_00.jsonl",
    ]
    (block,) = AlignedShard(world.root, shard, sources=sources).open()
    assert block.batch.schema.names == ["x"]


def test_a_key_in_two_sets(world: World) -> None:
    """Both are read, under names of their own, beside a key that one set has."""
    world.documents([document(0)])
    world.lines(b'{"id":"a0","source":"s","x":1,"y":3}\n', "g")
    world.lines(b'{"id":"a0","source":"s","x":2}\n', "h")
    assert once_each(open_attributes(world.dataset, ["g", "h"]).columns) == ["g/x", "y", "h/x"]
    _, rows = world.read(("g", "h"))
    assert [(row["g/x"], row["y"], row["h/x"]) for row in rows] == [(1, 3, 2)]
    assert "x" not in rows[0]


def test_a_key_of_two_kinds(world: World) -> None:
    world.documents([document(0)], "y.jsonl")
    world.lines(b'{"id":"a","n":1}\n')
    world.lines(b'{"id":"a","n":"one"}\n', path="y.jsonl")
    with pytest.raises(
        SchemaError, match=r"g/y\.jsonl: key 'n' is string, in earlier shards it is number; expected"
    ):
        open_attributes(world.dataset, ["g"])


def test_document_spans_in_one_shard_and_many_in_another(world: World) -> None:
    world.documents([document(0)], "y.jsonl")
    world.lines(b'{"id":"a0","attributes":{"n":[[0,5,1]]}}\n')
    world.lines(b'{"id":"a0","attributes":{"n":[[0,5,1],[5,6,1]]}}\n', path="y.jsonl")
    assert open_attributes(world.dataset, ["g"]).kinds == {"g": {"n": "spans"}}


def test_kinds_come_from_the_record(world: World) -> None:
    world.record(world.attributes(GOOD), kinds={"g__n": "spans"})
    assert open_attributes(world.dataset, ["g"]).kinds == {"g": {"g__n": "spans"}}


def test_no_attributes_at_all(world: World) -> None:
    state, rows = world.read(())
    assert (len(rows), state.rows, state.unproved) == (ROWS, ROWS, ())
    assert [item.path for item in state.inputs] == ["documents/x/en_00.jsonl.gz"]


def test_empty_documents(world: World) -> None:
    world.documents([])
    world.record(world.attributes([]))
    state, rows = world.read()
    assert (rows, state.rows, state.unproved) == ([], 0, ())
    world.attributes(GOOD[:1], "h")
    difference = "has 1 row, documents/x/en_00.jsonl.gz has 0; first difference at row 0"
    assert difference in error_of(world, names=["h"])


def test_a_long_id_is_cut_in_the_message(world: World) -> None:
    world.attributes([("y" * 10_000, "s", 1.0), *GOOD[1:]])
    assert len(error_of(world)) < 1000


def test_files_are_closed_when_reading_stops(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.attributes(GOOD)
    handles: list[Any] = []
    open_read = files.open_read

    def note(url: str) -> Any:
        handles.append(open_read(url))
        return handles[-1]

    aligned = world.aligned(block_bytes=1)
    monkeypatch.setattr("dolma_dask.io.stored.open_read", note)
    blocks = iter(aligned)
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert len(handles) == 2
    assert all(handle.closed for handle in handles)


def test_a_shard_can_be_read_again(world: World) -> None:
    world.record(world.attributes(GOOD))
    aligned = world.aligned()
    first = [block.num_rows for block in aligned]
    state = replace(aligned.state)
    assert [block.num_rows for block in aligned] == first
    assert aligned.state == state


def test_rows_of_attributes_may_be_longer_than_documents(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = b'{"id":"a%d","attributes":{"parts":[' + b",".join([b"[0,1,1.0]"] * 200) + b"]}}\n"
    world.lines(b"".join(row % i for i in range(ROWS)))
    assert world.read(max_record_bytes=1000)[0].bad_records == 0
    monkeypatch.setattr("dolma_dask.reading.reader.MAX_RECORD_BYTES", 10)
    assert "too large; expected at most 1,000 bytes" in error_of(world, BadRecordError, max_record_bytes=1000)
