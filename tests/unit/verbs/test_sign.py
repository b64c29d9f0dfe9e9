"""sign, and dedupe from its tables: what is joined by ids, counted, made again and refused."""

import json
import random
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.io import redpajama
from dolma_dask.minhash.published import sign_redpajama
from dolma_dask.verbs.dedupe.fuzzy.signatures import read_signatures

from .conftest import read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
PUBLISHED = {"how": "fuzzy", "scheme": "redpajama_v2", **HERE}
SHARDS = ("2022-49/0000/de_head", "2023-06/0000/en_head")
ROWS = 40


def make_shard(root, shard, rows=range(ROWS)):
    """Write documents of which every second is a copy of one in the other shard, and every tenth is short."""
    lines = []
    for row in rows:
        draw = random.Random(row if row % 2 else f"{shard}{row}")
        words = [f"w{draw.randrange(1000)}" for _ in range(5 if row % 10 == 3 else 60)]
        lines.append(json.dumps({"id": f"{shard}.json.gz/{row}", "text": " ".join(words), "source": "rpv2"}))
    write_lines(root / f"documents/{shard}.jsonl.gz", lines)


@pytest.fixture
def world(tmp_path):
    """Write a dataset of two shards and its tables."""
    for shard in SHARDS:
        make_shard(tmp_path / "v0", shard)
    dk.sign(str(tmp_path / "v0"), str(tmp_path / "tables"), **HERE)
    return tmp_path


def table_of(world, shard=SHARDS[0]):
    return world / f"tables/{shard}.minhash.parquet"


def rewrite(world, change):
    """Replace the table of the first shard by what `change` makes of it."""
    path = table_of(world)
    pq.write_table(change(pq.read_table(path)), path)


def published(world, **options):
    return dk.dedupe(str(world / "v0"), signatures=str(world / "tables"), **PUBLISHED, **options)


def signatures_of(world, folder="redpajama_v2-word13-128-seed42-published"):
    paths = sorted((world / "v0/signatures" / folder).rglob("*.parquet"))
    parts = [part for path in paths for part in read_signatures(str(path), 128)]
    return np.concatenate([np.where(valid[:, None], values, 0) for values, valid in parts])


def flags_of(world):
    paths = sorted((world / "v0/attributes/fuzzy").rglob("*.jsonl.gz"))
    return [line for path in paths for line in read_lines(path)]


def test_tables_have_the_signatures_of_the_texts(world):
    for shard in SHARDS:
        documents = [json.loads(line) for line in read_lines(world / f"v0/documents/{shard}.jsonl.gz")]
        (block,) = redpajama.read_minhash(str(table_of(world, shard)))
        texts = pa.array([document["text"] for document in documents], pa.large_string())
        values, kinds = sign_redpajama(texts)
        assert block.ids.to_pylist() == [document["id"] for document in documents]
        np.testing.assert_array_equal(block.valid, kinds == 0)
        np.testing.assert_array_equal(block.values[block.valid], values[kinds == 0])


@pytest.mark.parametrize("block_bytes", [1, 20_000, 1 << 21])
def test_published_signatures_make_the_same_flags(world, monkeypatch, block_bytes):
    dk.dedupe(str(world / "v0"), **PUBLISHED)
    made, flags = signatures_of(world, "redpajama_v2-word13-128-seed42"), flags_of(world)
    monkeypatch.setattr(redpajama, "BLOCK_BYTES", block_bytes)
    summary = published(world)
    np.testing.assert_array_equal(signatures_of(world), made)
    assert flags_of(world) == flags
    assert summary.counts["duplicates"] == ROWS // 2 - ROWS // 10
    assert summary.counts["without_signature"] == 2 * (ROWS // 10)


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", [1, 1 << 21])
def test_rows_are_found_by_their_numbers(world, monkeypatch, block_bytes):
    """A dataset of some documents, and a table that lacks some of these."""
    monkeypatch.setattr(redpajama, "BLOCK_BYTES", block_bytes)
    dk.dedupe(str(world / "v0"), **PUBLISHED)
    made = signatures_of(world, "redpajama_v2-word13-128-seed42")
    rewrite(world, lambda table: table.filter(np.arange(ROWS) % 4 != 1))
    kept = [row for row in range(ROWS) if row % 3]
    make_shard(world / "v0", SHARDS[0], kept)
    counts = published(world).counts
    expected = [made[row] * (row % 4 != 1) for row in kept]
    np.testing.assert_array_equal(signatures_of(world)[: len(kept)], expected)
    assert counts["not_in_tables"] == sum(row % 4 == 1 for row in kept)
    assert counts["rows_without_document"] == sum(row % 4 != 1 and row % 3 == 0 for row in range(ROWS))


@pytest.mark.slow
def test_nothing_is_done_again_until_a_table_changes(world):
    published(world)
    shutil.copy(table_of(world), world / "tables/of_another_dataset.minhash.parquet")
    assert published(world).done == 0
    before = flags_of(world)
    rewrite(world, lambda table: table.slice(0, 20))
    summary = published(world)
    assert summary.counts["not_in_tables"] == ROWS - 20
    assert flags_of(world) != before
    table_of(world).touch()
    assert published(world).done == 0


def test_status_knows_that_all_is_done(world):
    published(world)
    assert {row.state for row in dk.status(str(world / "v0")).rows} == {"done"}


@pytest.mark.slow
def test_tables_on_a_store(world):
    tables = f"memory://{world.name}/tables"
    dk.sign(str(world / "v0"), tables, **HERE)
    here = published(world)
    there = dk.dedupe(str(world / "v0"), signatures=tables, name="there", **PUBLISHED)
    assert there.counts == here.counts


def test_flags_from_tables_can_be_read(world):
    counts = published(world).counts
    mixed = dk.mix(str(world / "v0"), to=str(world / "v1"), where=dk.duplicates("fuzzy").__invert__(), **HERE)
    assert mixed.counts["documents_out"] == 2 * ROWS - counts["duplicates"]


def test_parts_of_a_raw_file_share_its_table(world):
    """As convert --shard-bytes writes them."""
    dk.dedupe(str(world / "v0"), **PUBLISHED)
    made = signatures_of(world, "redpajama_v2-word13-128-seed42")
    shutil.rmtree(world / "v0")
    make_shard(world / "v0", SHARDS[0], range(15))
    first = world / f"v0/documents/{SHARDS[0]}.jsonl.gz"
    first.rename(first.with_name("de_head-part-00000.jsonl.gz"))
    make_shard(world / "v0", SHARDS[0], range(15, ROWS))
    first.rename(first.with_name("de_head-part-00001.jsonl.gz"))
    assert published(world).counts["rows_without_document"] == 0
    np.testing.assert_array_equal(signatures_of(world), made[:ROWS])


def test_a_table_that_is_missing_fails_its_shard(world):
    table_of(world).unlink()
    with pytest.raises(
        StageError, match=r"de_head\.minhash\.parquet: no such file; expected the MinHash table"
    ) as caught:
        published(world)
    assert [failure.shard for failure in caught.value.failures] == [f"{SHARDS[0]}.jsonl.gz"]


def test_a_table_of_another_shard(world):
    shutil.copy(table_of(world, SHARDS[1]), table_of(world))
    with pytest.raises(
        StageError, match=r"has rows of 2023-06/0000/en_head\.json\.gz, and documents/2022-49"
    ):
        published(world)


@pytest.mark.parametrize(
    ("order", "message"),
    [([1, 0], r"comes after row 1; expected row numbers that rise"), ([0, 0], r"comes after row 0")],
)
def test_rows_in_another_order(world, order, message):
    rewrite(world, lambda table: table.take(order))
    with pytest.raises(StageError, match=message):
        published(world)


def test_ids_of_two_shards(world):
    other = pq.read_table(table_of(world, SHARDS[1])).slice(ROWS - 1)
    rewrite(
        world, lambda table: type(table).from_batches([*table.slice(0, 3).to_batches(), *other.to_batches()])
    )
    with pytest.raises(StageError, match="expected ids of one shard, and rows as plain numbers"):
        published(world)


@pytest.mark.parametrize("identity", ["d1", "2022-49/0000/de_head.json.gz/007"])
def test_documents_with_other_ids(world, identity):
    line = json.dumps({"id": identity, "text": "one", "source": "s"})
    write_lines(world / f"v0/documents/{SHARDS[0]}.jsonl.gz", [line])
    for call in (published, lambda world: dk.sign(str(world / "v0"), str(world / "more"), **HERE)):
        with pytest.raises(StageError, match=f"id '{identity}'"):
            call(world)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "dolma_dask"}, "expected scheme='redpajama_v2', ngram=13, num_perm=128 and seed=42"),
        ({"ngram": 5}, "with redpajama_v2-word5-128-seed42; expected"),
        ({"seed": 1}, "with redpajama_v2-word13-128-seed1; expected"),
        ({"how": "exact", "scheme": None}, "signatures with how='exact'"),
        ({"audit": True}, "planted copies are in no table"),
        ({"signatures": "nowhere"}, "no MinHash table of these documents there"),
    ],
)
def test_usage(world, options, message):
    given = {**PUBLISHED, "signatures": str(world / "tables"), **options}
    with pytest.raises(UsageError, match=message):
        dk.dedupe(str(world / "v0"), **given)


def test_selected_documents_keep_their_numbers(world):
    dk.sign(str(world / "v0"), str(world / "some"), where="id > '2022-49/0000/de_head.json.gz/3'", **HERE)
    (block,) = redpajama.read_minhash(str(world / f"some/{SHARDS[0]}.minhash.parquet"))
    assert block.rows.tolist() == [row for row in range(ROWS) if str(row) > "3"]


def test_what_a_person_should_know_of_the_rule_is_told(world):
    for name, keep in (("first", "first"), ("longest", "longest")):
        dk.dedupe(str(world / "v0"), name=name, keep=keep, **HERE)
    rule = "first is None and longest is None"
    notes = dk.sign(str(world / "v0"), str(world / "some"), where=rule, **HERE).notes
    assert any("chose their survivors each by itself" in note for note in notes)


def test_an_empty_shard_has_an_empty_table(world):
    write_lines(world / "v0/documents/empty.jsonl.gz", [])
    dk.sign(str(world / "v0"), str(world / "tables"), **HERE)
    assert pq.read_table(world / "tables/empty.minhash.parquet").num_rows == 0
    assert published(world).counts["duplicates"] > 0


def test_tables_of_duplicates(world):
    """Documents that a rule names, with their digests, which may be missing; a shard without any has a table without rows."""
    path = world / f"v0/documents/{SHARDS[0]}.jsonl.gz"
    rows = [json.loads(line) for line in read_lines(path)]
    for number, row in enumerate(rows):
        row["metadata"] = {"digest": f"sha1:D{number}"} if number % 2 else {}
    write_lines(path, map(json.dumps, rows))
    named = [f"{SHARDS[0]}.json.gz/{number}" for number in (4, 7)]
    options = {"component": "duplicates", **HERE}
    summary = dk.sign(
        str(world / "v0"), str(world / "d"), where=f"id in ({named[0]!r}, {named[1]!r})", **options
    )
    assert summary.counts["duplicates"] == 2
    table, empty = (pq.read_table(world / f"d/{shard}.duplicates.parquet") for shard in SHARDS)
    assert table.to_pylist() == [
        {"shard_id": f"{SHARDS[0]}.json.gz", "doc_id": named[0], "digest": None},
        {"shard_id": f"{SHARDS[0]}.json.gz", "doc_id": named[1], "digest": "D7"},
    ]
    assert (empty.num_rows, empty.schema) == (0, table.schema)
    assert dk.attach(str(world / "v0"), str(world / "d"), name="same", **HERE).counts["duplicates"] == 2
    with pytest.raises(UsageError, match="which documents are duplicates is not said"):
        dk.sign(str(world / "v0"), str(world / "other"), **options)
    with pytest.raises(UsageError, match="component='x'; expected one of minhash, duplicates"):
        dk.sign(str(world / "v0"), str(world / "other"), **{**options, "component": "x"})
