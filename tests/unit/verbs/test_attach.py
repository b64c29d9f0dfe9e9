"""Published tables become attributes by the ids of their rows; others than those of the documents are refused by name."""

import gzip
import json
import shutil
from functools import partialmethod

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.io import redpajama
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.sinks import attributes

from .conftest import TEXTS, read_lines, write_lines
from .report_pages import page_of

HERE = {"scheduler": "synchronous", "progress": False}
SHARDS = ("2022-49/0000/de_head", "2023-06/0000/en_head")
ROWS = 60


def text_of(row):
    return f"{TEXTS[row % len(TEXTS)]} {row}"


def make_documents(root, shard, rows=range(ROWS), suffix=".jsonl.gz"):
    lines = [
        json.dumps({"id": f"{shard}.json.gz/{row}", "text": text_of(row), "source": "rpv2"}) for row in rows
    ]
    write_lines(root / f"documents/{shard}{suffix}", lines)


def signals_of(shard, row):
    """Return the signals of a document as they are published: integers, numbers, missing values, lines and none."""
    size = len(text_of(row))
    return {
        "ccnet_length": [[0, size, float(size)]],
        "rps_doc_word_count": [[0, size, row]],
        "rps_doc_ut1_blacklist": [[0, size, None if row % 3 else 7]],
        "rps_doc_mean_word_length": [[0, size, row / 7]],
        "rps_lines_num_words": [[0, 2, row], [2, size, 0]] if row % 5 else [],
    }


def make_signals(root, shard, rows=range(ROWS), suffix=".signals.json.gz"):
    lines = [
        json.dumps(
            {
                "id": f"{shard}.json.gz/{row}",
                "id_int": row,
                "metadata": {"language": "de"},
                "quality_signals": signals_of(shard, row),
            },
            separators=(",", ":"),
        )
        for row in rows
    ]
    write_lines(root / f"{shard}{suffix}", lines)


def make_duplicates(root, shard, groups):
    """Write a table of duplicates with these rows in each of its row groups."""
    path = root / f"{shard}.duplicates.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("shard_id", pa.string()), ("doc_id", pa.string()), ("digest", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for rows in groups:
            ids = [f"{shard}.json.gz/{row}" for row in rows]
            columns = [[f"{shard}.json.gz"] * len(ids), ids, ["2V6D"] * len(ids)]
            writer.write_table(pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema))


@pytest.fixture
def world(tmp_path):
    """Write a dataset of two shards with its signals and duplicates."""
    for shard in SHARDS:
        make_documents(tmp_path / "v0", shard)
        make_signals(tmp_path / "signals", shard)
        make_duplicates(tmp_path / "duplicates", shard, [[], [3, 17], [], [18, 40]])
    return tmp_path


def attach(world, tables="signals", name="rps", **options):
    return dk.attach(str(world / "v0"), str(world / tables), name=name, **HERE, **options)


def rows_of(world, name="rps", shard=SHARDS[0], suffix=".jsonl.gz"):
    return [json.loads(line) for line in read_lines(world / f"v0/attributes/{name}/{shard}{suffix}")]


def without_missing(signals):
    return {name: spans for name, spans in signals.items() if not spans or spans[0][2] is not None}


def expect(shard, rows, found):
    """Return the attribute rows of documents `rows`, of which those in `found` have signals."""
    return [
        {
            "id": f"{shard}.json.gz/{row}",
            "attributes": without_missing(signals_of(shard, row)) if row in found else {},
            "source": "rpv2",
        }
        for row in rows
    ]


def test_values_are_as_published(world):
    counts = attach(world).counts
    for shard in SHARDS:
        assert repr(rows_of(world, shard=shard)) == repr(expect(shard, range(ROWS), range(ROWS)))
    assert counts["documents_in"] == 2 * ROWS
    assert counts["documents_without_row"] == counts["rows_without_document"] == 0


@pytest.mark.parametrize("block_bytes", [1, 3000, 1 << 21])
@pytest.mark.parametrize("document_bytes", [1, 1500, 1 << 21])
def test_rows_are_found_by_their_numbers(world, monkeypatch, block_bytes, document_bytes):
    """Documents that lack rows of the table, and the other way round, in blocks of any size."""
    monkeypatch.setattr(redpajama, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(AlignedShard, "open", partialmethod(AlignedShard.open, block_bytes=document_bytes))
    kept, listed = [row for row in range(ROWS) if row % 3], [row for row in range(5, ROWS - 5) if row % 4]
    make_documents(world / "v0", SHARDS[0], kept)
    make_signals(world / "signals", SHARDS[0], listed)
    counts = attach(world).counts
    assert repr(rows_of(world)) == repr(expect(SHARDS[0], kept, listed))
    assert counts["documents_without_row"] == len({*kept} - {*listed})
    assert counts["rows_without_document"] == len({*listed} - {*kept})


@pytest.mark.parametrize("documents", [range(0), range(5)])
@pytest.mark.parametrize("listed", [range(0), range(3), range(90, 95)])
def test_empty_files_and_ends(world, documents, listed):
    make_documents(world / "v0", SHARDS[0], documents)
    make_signals(world / "signals", SHARDS[0], listed)
    make_duplicates(world / "duplicates", SHARDS[0], [[], listed])
    counts = attach(world, only=[SHARDS[0]]).counts
    flags = attach(world, "duplicates", "exact", only=[SHARDS[0]]).counts
    both = {*documents} & {*listed}
    assert rows_of(world) == expect(SHARDS[0], documents, listed)
    assert flags["duplicates"] == len(both)
    assert counts["documents_without_row"] == len(documents) - len(both)
    assert counts["rows_without_document"] == flags["rows_without_document"] == len(listed) - len(both)


def test_flags_are_those_of_dedupe(world):
    """Also where tables begin with an empty row group."""
    counts = attach(world, "duplicates", "exact").counts
    flagged = {3, 17, 18, 40}
    assert [row["attributes"] for row in rows_of(world, "exact")] == [
        {"exact": [[0, len(text_of(row)), 1]]} if row in flagged else {} for row in range(ROWS)
    ]
    mixed = dk.mix(str(world / "v0"), to=str(world / "v1"), where="exact is None", **HERE)
    assert counts["duplicates"] == 2 * len(flagged)
    assert mixed.counts["documents_out"] == 2 * (ROWS - len(flagged))
    again = dk.mix(str(world / "v0"), to=str(world / "v2"), where=~dk.duplicates("exact"), **HERE)
    assert again.counts["documents_out"] == mixed.counts["documents_out"]


@pytest.mark.parametrize("file_format", [None, "parquet", "jsonl.zst"])
def test_columns_have_the_published_values(world, file_format):
    make_signals(world / "signals", SHARDS[0], range(1, ROWS))
    attach(world, format=file_format)
    names = [*signals_of(SHARDS[0], 1)]
    frame = dk.read_dataframe(str(world / "v0"), columns=["id", *names]).compute(scheduler="synchronous")
    for row in frame.to_dict("records"):
        shard, _, number = row["id"].rpartition("/")
        is_there = number != "0" or not shard.startswith(SHARDS[0])
        published = without_missing(signals_of(shard, int(number))) if is_there else {}
        for name in names[:-1]:
            value = published.get(name, [[0, 0, None]])[0][2]
            assert np.isnan(row[name]) if value is None else row[name] == value, (row["id"], name)
        lines = row[names[-1]]
        expected = published.get(names[-1])
        assert (lines is None or lines is pa.NA) if expected is None else True
        if expected is not None:
            assert [[span["start"], span["end"], span["score"]] for span in lines] == expected


@pytest.mark.slow
def test_row_groups_end_with_their_spans_whatever_the_blocks(world, monkeypatch):
    monkeypatch.setattr(attributes, "ROW_GROUP_SPANS", 20)
    found = set()
    for block_bytes in (1, 1500, 1 << 21):
        monkeypatch.setattr(redpajama, "BLOCK_BYTES", block_bytes)
        attach(world, format="parquet", overwrite=True)
        groups = pq.ParquetFile(world / f"v0/attributes/rps/{SHARDS[0]}.parquet").metadata
        found.add(tuple(groups.row_group(number).num_rows for number in range(groups.num_row_groups)))
    ((first, *others),) = found
    assert first == 13  # of which three have no lines, and the others two
    assert first + sum(others) == ROWS


def test_signals_that_are_written_and_attached_are_those_of_tag(world):
    """The same values from files in the published layout and straight from the taggers, and nothing where there is none."""
    taggers = ["redpajama_v2_doc", "redpajama_v2_lines"]
    dk.signals(str(world / "v0"), str(world / "own"), **HERE)
    attach(world, "own")
    dk.tag(str(world / "v0"), taggers, experiment="tagged", **HERE)
    for shard in SHARDS:
        attached, tagged = rows_of(world, shard=shard), rows_of(world, "tagged", shard)
        assert [row["id"] for row in attached] == [row["id"] for row in tagged]
        for one, other in zip(attached, tagged, strict=True):
            values = {key.rpartition("__")[2]: spans for key, spans in other["attributes"].items()}
            assert one["attributes"] == values


def test_nothing_is_done_again_until_a_table_changes(world):
    attach(world)
    shutil.copy(world / f"signals/{SHARDS[0]}.signals.json.gz", world / "signals/other.signals.json.gz")
    assert attach(world).done == 0
    make_signals(world / "signals", SHARDS[0], range(20))
    assert attach(world).counts["documents_without_row"] == ROWS - 20
    assert attach(world).skipped == 2
    make_documents(world / "v0", SHARDS[1], range(7))
    assert attach(world).done == 1


def test_status_knows_that_all_is_done(world):
    attach(world)
    attach(world, "duplicates", "exact")
    assert {row.state for row in dk.status(str(world / "v0")).rows} == {"done"}


def test_attributes_prove_that_they_belong_to_their_documents(world):
    attach(world)
    attach(world, "duplicates", "exact")
    mixed = dk.mix(
        str(world / "v0"), to=str(world / "v1"), where="exact is None and rps_doc_word_count < 9", **HERE
    )
    assert mixed.counts["unproved_attribute_files"] == 0
    make_documents(world / "v0", SHARDS[0], range(1, ROWS))
    with pytest.raises(StageError, match=r"attributes/rps/2022-49.* rows"):
        dk.mix(str(world / "v0"), to=str(world / "v2"), where="rps_doc_word_count < 9", **HERE)


def test_signals_that_were_inflated(world):
    attach(world)
    before = rows_of(world)
    table = world / f"signals/{SHARDS[0]}.signals.json.gz"
    table.with_suffix("").write_bytes(gzip.decompress(table.read_bytes()))
    table.unlink()
    attach(world, name="plain")
    assert rows_of(world, "plain") == before


def test_tables_on_a_store(world):
    store = f"memory://{world.name}"
    for path in [*(world / "signals").rglob("*.gz"), *(world / "duplicates").rglob("*.parquet")]:
        with fsspec.open(f"{store}/{path.relative_to(world)}", "wb") as out:
            out.write(path.read_bytes())
    for tables in ("signals", "duplicates"):
        here = attach(world, tables, f"{tables}-here")
        there = dk.attach(f"{world}/v0", f"{store}/{tables}", name=f"{tables}-there", **HERE)
        assert there.counts == here.counts
    assert rows_of(world, "signals-there") == rows_of(world, "signals-here")


@pytest.mark.parametrize("tables", ["signals", "duplicates"])
def test_a_table_that_is_missing_fails_its_shard_or_is_counted(world, tables):
    (table,) = (world / tables).glob(f"{SHARDS[0]}.*")
    kept = table.rename(world / table.name)
    with pytest.raises(StageError, match=r"de_head\..*: no such file; expected the table of") as caught:
        attach(world, tables)
    assert [failure.shard for failure in caught.value.failures] == [f"{SHARDS[0]}.jsonl.gz"]
    summary = attach(world, tables, missing="null")
    counts = summary.counts
    assert summary.notes[-1].startswith("1 shard without a table: ")
    assert counts["shards_without_table"] == 1
    assert all(row["attributes"] == {} for row in rows_of(world))
    with pytest.raises(StageError, match="no such file"):
        attach(world, tables)
    kept.rename(table)
    assert "shards_without_table" not in attach(world, tables, missing="null").counts
    assert any(row["attributes"] for row in rows_of(world))


@pytest.mark.parametrize("tables", ["signals", "duplicates"])
def test_a_table_of_another_shard(world, tables):
    (table,), (other,) = ([*(world / tables).glob(f"{shard}.*")] for shard in SHARDS)
    shutil.copy(other, table)
    with pytest.raises(
        StageError, match=r"has rows of 2023-06/0000/en_head\.json\.gz, and documents/2022-49"
    ):
        attach(world, tables)


@pytest.mark.parametrize("tables", ["signals", "duplicates"])
@pytest.mark.parametrize("order", [[1, 0], [4, 4]])
def test_rows_in_another_order(world, tables, order):
    make_signals(world / "signals", SHARDS[0], order)
    make_duplicates(world / "duplicates", SHARDS[0], [order])
    with pytest.raises(StageError, match=rf"comes after row {order[0]}; expected row numbers that rise"):
        attach(world, tables)


@pytest.mark.parametrize("tables", ["signals", "duplicates"])
def test_damaged_tables(world, tables):
    (table,) = (world / tables).glob(f"{SHARDS[0]}.*")
    table.write_bytes(table.read_bytes()[:-20])
    with pytest.raises(StageError, match=table.name.replace(".", r"\.")):
        attach(world, tables)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "invalid json"),
        ('{"id": "x"}', "a value in attribute 'quality_signals', which is missing"),
        ('{"id": "x", "quality_signals": {}}', "id 'x' has no row number"),
        ('{"id": "SHARD/61", "quality_signals": 3}', "row 60, .*a JSON object, found a number"),
        ('{"id": "SHARD/61", "quality_signals": {"x": 3}}', "row 60, byte .*a list of spans in signal 'x'"),
    ],
)
def test_bad_rows(world, line, message):
    path = world / f"signals/{SHARDS[0]}.signals.json.gz"
    write_lines(path, [*read_lines(path), line.replace("SHARD", f"{SHARDS[0]}.json.gz")])
    with pytest.raises(StageError, match=rf"de_head.signals.json.gz.*{message}"):
        attach(world)


def test_rows_that_are_too_long_are_refused_unread(world, monkeypatch):
    monkeypatch.setattr("dolma_dask.verbs.attach.MAX_RECORD_BYTES", 100)
    with pytest.raises(
        StageError, match=r"signals\.json\.gz, row 0, byte 0: too large; expected at most 100"
    ):
        attach(world, max_record_bytes=90)
    assert attach(world, max_record_bytes=1000).done == 2


def test_documents_that_cannot_be_read_keep_their_rows(world):
    path = world / f"v0/documents/{SHARDS[0]}.jsonl.gz"
    lines = read_lines(path)
    write_lines(path, [*lines[:4], "{", *lines[5:]])
    for tables in ("signals", "duplicates"):
        summary = attach(world, tables, tables, on_bad_record="quarantine")
        assert (summary.counts["bad_records"], summary.exit_status) == (1, 0)
        bad = rows_of(world, tables)[4]
        assert (bad["id"], bad["attributes"]) == (None, {})
    expected = expect(SHARDS[0], range(ROWS), range(ROWS))
    assert [row for row in rows_of(world, "signals") if row["id"]] == expected[:4] + expected[5:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"tables": "v0"},
            r"no quality signals or duplicates of these documents; expected files such as 2022-49/0000/de_head\.signals",
        ),
        ({"tables": "."}, "no quality signals or duplicates"),
        ({"missing": "none"}, "missing='none'; expected one of fail, null"),
        ({"name": "a/b"}, "attribute set 'a/b' cannot be used"),
        ({"format": "csv"}, "format='csv'"),
    ],
)
def test_other_arguments(world, change, message):
    with pytest.raises(UsageError, match=message):
        attach(world, **change)


def test_a_set_holds_one_kind(world):
    shutil.copytree(world / "signals", world / "both")
    shutil.copytree(world / "duplicates", world / "both", dirs_exist_ok=True)
    with pytest.raises(UsageError, match="has quality signals and duplicates of these documents"):
        attach(world, "both")
    attach(world)
    with pytest.raises(
        UsageError, match=r"attributes/rps/.* was made of quality_signals; expected a free name"
    ):
        attach(world, "duplicates")
    attach(world, "duplicates", overwrite=True)
    assert rows_of(world)[3]["attributes"] == {"rps": [[0, len(text_of(3)), 1]]}


@pytest.mark.slow
def test_a_report_shows_signals_and_no_flags(world):
    attach(world)
    attach(world, "duplicates", "exact")
    told, _ = page_of(world / "v0")
    # lists of spans have no distribution either
    assert {signal["key"] for signal in told["signals"]} == {*[*signals_of(SHARDS[0], 1)][:4]}


def test_published_duplicates_and_own_near_duplicates_get_a_note(world):
    attach(world, "duplicates", "published")
    dk.dedupe(str(world / "v0"), name="own", **HERE)
    mixed = dk.mix(str(world / "v0"), to=str(world / "v1"), where="own is None and published is None", **HERE)
    assert any("--name own --where 'published is None'" in note for note in mixed.notes)


def test_status_looks_at_the_tables_too(world):
    attach(world)
    (row,) = dk.status(str(world / "v0")).rows
    assert (row.done, row.changed) == (2, 0)
    make_signals(world / "signals", SHARDS[0], range(ROWS - 1))
    (world / f"signals/{SHARDS[1]}.signals.json.gz").unlink()
    (row,) = dk.status(str(world / "v0")).rows
    assert (row.done, row.changed) == (0, 2)
    shutil.rmtree(world / "signals")
    (row,) = dk.status(str(world / "v0")).rows
    assert (row.done, row.changed) == (2, 0), "they were cleared away after the work"


@pytest.mark.parametrize(
    "names, found, message",
    [
        (["doc_id", "doc_id"], ["x"], "column 'doc_id' is there twice"),
        (["doc_id"], ["x" * 10**6], "has no row number"),
    ],
)
def test_hostile_tables_of_duplicates_are_refused_in_short(world, names, found, message):
    for shard in SHARDS:
        table = pa.Table.from_arrays([pa.array(found)] * len(names), names=names)
        pq.write_table(table, world / f"duplicates/{shard}.duplicates.parquet")
    with pytest.raises(StageError, match=message) as caught:
        attach(world, "duplicates", "exact")
    assert len(str(caught.value)) < 2000
