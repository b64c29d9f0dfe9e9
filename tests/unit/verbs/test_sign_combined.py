"""MinHash tables of the published files that a shard was made of become one: the same rows, the same clusters, whatever is missing; what contradicts itself is refused."""

import json
import random
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.formats.redpajama import MINHASH_SCHEMA
from dolma_dask.io import redpajama

from .conftest import read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
PLACES = [
    f"{snapshot}/0000/{name}"
    for snapshot in ("2022-49", "2023-06", "2023-14")
    for name in ("de_head", "de_middle", "en_head", "en_middle")
]
ROWS = 12
ROWLESS = "2023-06/0000/de_middle"  # its table has no row at all
GAPS = "2022-49/0000/en_head"  # its table lacks rows

SOME = "id < '2023-06/0000/en_head' or id >= '2023-14'"


def text(place, row):
    """Return a text of which every third is in all files, and one is too short."""
    draw = random.Random(row if row % 3 == 0 else f"{place}{row}")
    return " ".join(f"w{draw.randrange(1000)}" for _ in range(5 if row == 4 else 40))


def change(path, make):
    """Replace a table by what `make` makes of it."""
    table = pq.read_table(path)
    known = pq.read_metadata(path).metadata
    places = {key: known[key] for key in known if key != b"ARROW:schema"}
    made = make(table)
    pq.write_table(made.replace_schema_metadata({**places, **(made.schema.metadata or {})}), path)


def small_table(world, place):
    return world / f"tables/{place}.minhash.parquet"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Convert files one by one and combined, and write a table of each file, of which some lack rows."""
    world = tmp_path_factory.mktemp("combined")
    for place in PLACES:
        rows = [
            {
                "raw_content": text(place, row),
                "date_download": "2023-01-01T00:00:00Z",
                "digest": f"sha1:{row}",
            }
            for row in range(ROWS)
        ]
        write_lines(world / f"raw/{place}.json.gz", map(json.dumps, rows))
    size = (world / f"raw/{PLACES[0]}.json.gz").stat().st_size
    for name, more in (("plain", {}), ("v0", {"combine": "language", "shard_bytes": 4 * size})):
        dk.convert(str(world / "raw"), to=str(world / name), mapping="redpajama_v2", **more, **HERE)
    dk.sign(str(world / "plain"), str(world / "tables"), **HERE)
    change(small_table(world, ROWLESS), lambda table: table.slice(0, 0))
    change(small_table(world, GAPS), lambda table: table.filter(np.arange(ROWS) % 4 != 1))
    return world


@pytest.fixture
def world(made, tmp_path):
    shutil.copytree(made, tmp_path / "world")
    return tmp_path / "world"


def combine(world, to="whole", **options):
    return dk.sign(str(world / "v0"), str(world / to), signatures=str(world / "tables"), **options, **HERE)


def dedupe(world, tables, dataset="v0", **options):
    more = {"how": "fuzzy", "scheme": "redpajama_v2", **options, **HERE}
    return dk.dedupe(str(world / dataset), signatures=str(world / tables), **more)


def found(world):
    """Return all that a run of dedupe has written, and forget it."""
    paths = [path for path in (world / "v0").rglob("*") if path.is_file()]
    kept = {
        path.relative_to(world).as_posix(): path.read_bytes()
        for path in paths
        if path.relative_to(world / "v0").parts[0] in ("attributes", "clusters", "signatures")
    }
    for folder in ("attributes", "clusters", "signatures", "_journal/dedupe", "_journal/signatures"):
        shutil.rmtree(world / "v0" / folder)
    return kept


def rows_of(paths):
    """Return all rows of tables by id."""
    return {
        row["id"]: row for path in paths for row in pq.read_table(path, schema=MINHASH_SCHEMA).to_pylist()
    }


@pytest.mark.parametrize("block_bytes", [1, 20_000, 1 << 21])
def test_the_clusters_are_those_of_the_many_tables(world, monkeypatch, block_bytes):
    """The law, with rows that are missing and a table without any; the tables of single files are gone meanwhile."""
    many = dedupe(world, "tables")
    expected = found(world)
    monkeypatch.setattr(redpajama, "BLOCK_BYTES", block_bytes)
    combine(world)
    shutil.rmtree(world / "tables")
    one = dedupe(world, "whole")
    assert found(world) == expected
    assert one.counts == many.counts
    assert one.counts["duplicates"] > ROWS
    assert one.counts["not_in_tables"] == ROWS + 3


def test_a_table_for_each_shard_has_the_published_rows(world):
    summary = combine(world)
    tables = sorted((world / "whole").rglob("*.parquet"))
    shards = sorted((world / "v0/documents").rglob("*.gz"))
    assert [path.relative_to(world / "whole").as_posix() for path in tables] == [
        path.relative_to(world / "v0/documents").as_posix().replace(".jsonl.gz", ".minhash.parquet")
        for path in shards
    ]
    assert 2 < len(shards) < len(PLACES)
    assert rows_of(tables) == rows_of(sorted((world / "tables").rglob("*.parquet")))
    documents = [json.loads(line)["id"] for path in shards for line in read_lines(path)]
    ids = [row for path in tables for row in pq.read_table(path).column("id").to_pylist()]
    assert ids == [identity for identity in documents if identity in ids], "in the order of the documents"
    assert all(pq.read_schema(path).equals(MINHASH_SCHEMA) for path in tables)
    counts = summary.counts
    assert (counts["not_in_tables"], counts["rows_without_document"]) == (ROWS + 3, 0)
    assert counts["without_signature"] == len(PLACES) - 1


def test_only_what_changes_is_combined_again(world):
    combine(world)
    assert combine(world).done == 0
    change(small_table(world, GAPS), lambda table: table.slice(1))
    assert combine(world).done == 1


def test_texts_make_the_same_tables(world):
    """Tables for others, of documents that have none: also where published files were combined."""
    dk.sign(str(world / "plain"), str(world / "tables"), overwrite=True, **HERE)
    for place in (ROWLESS, GAPS):
        small_table(world, place).unlink()
    dk.sign(str(world / "plain"), str(world / "tables"), **HERE)
    combine(world)
    dk.sign(str(world / "v0"), str(world / "made"), **HERE)
    for path in (world / "whole").rglob("*.parquet"):
        assert path.read_bytes() == (world / "made" / path.relative_to(world / "whole")).read_bytes()


def test_tables_of_all_files_serve_a_selection_of_the_documents(world):
    """A mix knows of no published files: it meets combined tables alone, though all documents of a file are gone."""
    combine(world)
    dk.mix(str(world / "v0"), to=str(world / "v1"), where=SOME, **HERE)
    counts = dedupe(world, "whole", "v1").counts
    assert counts["rows_without_document"] == 2 * ROWS
    with pytest.raises(UsageError, match="no MinHash table of these documents there"):
        dedupe(world, "tables", "v1")


def test_rows_without_documents_are_counted(world):
    more = pq.read_table(small_table(world, PLACES[0])).slice(ROWS - 1).to_pylist()
    more[0]["id"] = f"{PLACES[0]}.json.gz/{ROWS + 5}"
    more[0]["id_int"] = int(redpajama.id_numbers(pa.array([more[0]["id"]]))[0])
    extra = pa.Table.from_pylist(more, MINHASH_SCHEMA)
    change(small_table(world, PLACES[0]), lambda table: pa.concat_tables([table, extra]))
    assert combine(world).counts["rows_without_document"] == 1


def other_number(table):
    return table.set_column(2, "id_int", pa.array(range(len(table)), pa.uint64()))


def other_bands(table):
    return table.set_column(
        4, "signature_sim0.9", table.column("signature_sim0.9").take(pa.array(range(ROWS))[::-1])
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (other_number, f"id_int of {PLACES[0]}.json.gz/0 contradicts its id"),
        (other_bands, f"signature_sim0.9 of {PLACES[0]}.json.gz/0 contradicts"),
        (lambda table: table.drop_columns(["signature_sim0.7"]), r"column 'signature_sim0\.7' is missing"),
        (lambda table: table.take([1, 0]), "comes after row 1"),
        (
            lambda table: table.replace_schema_metadata({"published_files": "{}"}),
            "expected a list of published files",
        ),
    ],
)
def test_tables_that_contradict_themselves_are_not_combined(world, make, message):
    change(small_table(world, PLACES[0]), make)
    with pytest.raises(StageError, match=message) as caught:
        combine(world)
    assert len(caught.value.failures) == 1


def test_a_table_that_is_missing_fails_its_shard(world):
    small_table(world, PLACES[0]).unlink()
    with pytest.raises(StageError, match=r"de_head\.minhash\.parquet: no such file"):
        combine(world)


def test_documents_that_a_combined_table_does_not_know(world):
    """The shard has got files since; or they stand in another order."""
    combine(world)
    path = next((world / "whole").rglob("de/00000.minhash.parquet"))
    later = world / "v0/documents/de/00000.jsonl.gz"
    lines = read_lines(later)
    new = json.dumps({**json.loads(lines[-1]), "id": "2023-14/0001/de_head.json.gz/0"})
    write_lines(later, [*lines, new])
    with pytest.raises(StageError, match=r"has no rows of 2023-14/0001/de_head\.json\.gz.*dolma-dask sign"):
        dedupe(world, "whole")
    write_lines(later, [*lines[ROWS:], *lines[:ROWS]])
    with pytest.raises(
        StageError, match=r"de_head\.json\.gz, whose documents come now in documents/de/00000\.jsonl\.gz"
    ):
        dedupe(world, "whole")
    write_lines(later, lines)
    change(path, lambda table: table.take([*range(ROWS, len(table)), *range(ROWS)]))
    with pytest.raises(StageError, match="stand before and behind others, or are not listed"):
        dedupe(world, "whole")


def test_usage(world):
    with pytest.raises(UsageError, match="expected another folder for those that are written"):
        combine(world, to="tables")
    with pytest.raises(UsageError, match="duplicates have no signatures"):
        combine(world, component="duplicates", where="id is not None")
    with pytest.raises(UsageError, match="no MinHash table of these documents there"):
        dk.sign(str(world / "v0"), str(world / "whole"), signatures=str(world / "raw"), **HERE)
