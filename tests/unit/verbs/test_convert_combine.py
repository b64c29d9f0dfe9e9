"""convert with combine: raw files of one language share shards of a size, whole and in their order, with the ids that they are published under."""

import json

import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError

from .conftest import read_lines, write_lines

HERE = {"progress": False, "scheduler": "synchronous"}
PLACES = [f"{snapshot}/{shard}" for snapshot in ("2022-49", "2023-06") for shard in ("0000", "0001")]
ROWS = 7


def record(row):
    return json.dumps(
        {"raw_content": f"text {row}", "date_download": "2023-01-01T00:00:00Z", "digest": f"sha1:{row}"}
    )


@pytest.fixture
def raw(tmp_path):
    """Two snapshots of two shards in two languages and two buckets, published with other files."""
    for place in PLACES:
        for name in ("de_head", "de_middle", "en_head", "en_middle"):
            lines = [record(row) for row in range(ROWS)]
            write_lines(tmp_path / f"raw/documents/{place}/{name}.json.gz", lines)
    write_lines(tmp_path / "raw/minhash/2022-49/0000/de_head.minhash.parquet", ["no documents"])
    return tmp_path / "raw"


def combined(raw, to="v0", **options):
    return dk.convert(str(raw), to=str(raw.parent / to), mapping="redpajama_v2", **options, **HERE)


def ids(root):
    folder = root / "documents"
    return {
        path.relative_to(folder).as_posix(): [json.loads(line)["id"] for line in read_lines(path)]
        for path in sorted(folder.rglob("*.gz"))
    }


def published(*names):
    return [f"{place}/{name}.json.gz/{row}" for place in PLACES for name in names for row in range(ROWS)]


def test_raw_files_of_a_language_share_a_shard(raw):
    summary = combined(raw, combine="language")
    assert ids(raw.parent / "v0") == {
        "de/00000.jsonl.gz": published("de_head", "de_middle"),
        "en/00000.jsonl.gz": published("en_head", "en_middle"),
    }
    assert any("16 raw files became 2 shards" in note for note in summary.notes)
    assert combined(raw, combine="language").done == 0


def test_buckets_are_kept_apart_if_asked(raw):
    combined(raw, combine="bucket")
    assert ids(raw.parent / "v0") == {
        f"{name}/00000.jsonl.gz": published(name) for name in ("de_head", "de_middle", "en_head", "en_middle")
    }


def test_shards_are_runs_of_whole_files_up_to_a_size(raw):
    size = (raw / "documents/2022-49/0000/de_head.json.gz").stat().st_size
    combined(raw, combine="language", shard_bytes=3 * size)
    found = ids(raw.parent / "v0")
    german = published("de_head", "de_middle")
    assert [found[f"de/{number:05d}.jsonl.gz"] for number in range(3)] == [
        german[: 3 * ROWS],
        german[3 * ROWS : 6 * ROWS],
        german[6 * ROWS :],
    ]
    before = {path: (raw.parent / "v0/documents" / path).read_bytes() for path in found}
    later = raw / "documents/2023-14/0000/en_head.json.gz"
    write_lines(later, [record(row) for row in range(ROWS)])
    done = combined(raw, combine="language", shard_bytes=3 * size).done
    assert done == 1, "files that come later leave full shards as they are"
    assert all(
        (raw.parent / "v0/documents" / path).read_bytes() == before[path]
        for path in before
        if "00002" not in path
    )


def test_names_that_tell_no_language_are_refused(raw):
    write_lines(raw / "documents/2023-14/0000/readme.json.gz", [record(0)])
    with pytest.raises(UsageError, match=r"readme\.json\.gz.*en_head"):
        combined(raw, combine="language")
    with pytest.raises(UsageError, match="redpajama_v2"):
        dk.convert(str(raw), to=str(raw.parent / "v0"), combine="language", **HERE)
    with pytest.raises(UsageError, match="combine='snapshot'"):
        combined(raw, combine="snapshot")


def signals(raw, missing=()):
    """Publish a word count for every document but the second of each file, and no table for some files."""
    for path in (raw / "documents").rglob("*.json.gz"):
        place = path.relative_to(raw / "documents").as_posix()
        rows = [
            {"id": f"{place}/{row}", "id_int": row, "quality_signals": {"rps_doc_word_count": [[0, 6, row]]}}
            for row in range(ROWS)
            if row != 1
        ]
        if place not in missing:
            name = place.replace(".json.gz", ".signals.json.gz")
            write_lines(
                raw / "quality_signals" / name, [json.dumps(row, separators=(",", ":")) for row in rows]
            )


def test_tables_of_all_files_of_a_shard_are_attached(raw):
    absent = "2022-49/0001/de_head.json.gz"
    signals(raw, missing=[absent])
    combined(raw, combine="language")
    root, tables = str(raw.parent / "v0"), str(raw / "quality_signals")
    with pytest.raises(StageError) as caught:
        dk.attach(root, tables, name="rps", **HERE)
    assert "2022-49/0001/de_head.signals.json.gz: no such file" in str(caught.value)
    counts = dk.attach(root, tables, name="rps", missing="null", **HERE).counts
    assert counts["documents_without_row"] == 16 + ROWS - 1
    assert counts["rows_without_document"] == 0
    for path, own in ids(raw.parent / "v0").items():
        rows = [json.loads(line) for line in read_lines(raw.parent / f"v0/attributes/rps/{path}")]
        assert [row["id"] for row in rows] == own
        for row in rows:
            place, _, number = row["id"].rpartition("/")
            is_there = place != absent and number != "1"
            expected = {"rps_doc_word_count": [[0, 6, int(number)]]} if is_there else {}
            assert row["attributes"] == expected
    signals(raw)
    assert dk.attach(root, tables, name="rps", **HERE).done == 1, "the shard whose table is there now"


@pytest.mark.parametrize(
    ("verb", "more"), [(dk.signals, {}), (dk.sign, {"component": "duplicates", "where": "id is not None"})]
)
def test_tables_of_single_files_are_refused_of_files_that_are_combined(raw, verb, more):
    """MinHash tables may have the rows of several files (test_sign_combined.py), the others not."""
    combined(raw, combine="language")
    with pytest.raises(
        UsageError, match=r"de/00000\.jsonl\.gz has .* several published files.*without combine"
    ):
        verb(str(raw.parent / "v0"), str(raw.parent / "tables"), **more, **HERE)
    assert not (raw.parent / "tables").exists()
    dk.mix(str(raw.parent / "v0"), to=str(raw.parent / "v1"), **HERE)
    with pytest.raises(StageError, match="files that were combined"):
        verb(str(raw.parent / "v1"), str(raw.parent / "tables"), **more, **HERE)


@pytest.mark.parametrize("under", [None, "rpv2"])
def test_tables_are_found_where_the_whole_tree_was_converted(raw, under):
    """Its shards are called documents/2022-49/..., and the folder of tables has no such folder."""
    signals(raw)
    combined(raw, under=under)
    root = str(raw.parent / "v0")
    counts = dk.attach(root, str(raw / "quality_signals"), name="rps", **HERE).counts
    assert counts["documents_without_row"] == 16
    assert counts["rows_without_document"] == 0
    (raw / "quality_signals/2022-49/0000/de_head.signals.json.gz").unlink()
    signals_of_more = raw / "quality_signals/2022-49/0001/de_head.signals.json.gz"
    extra = {"id": f"2022-49/0001/de_head.json.gz/{ROWS}", "id_int": 0, "quality_signals": {}}
    write_lines(signals_of_more, [*read_lines(signals_of_more), json.dumps(extra, separators=(",", ":"))])
    counts = dk.attach(root, str(raw / "quality_signals"), name="rps", missing="null", **HERE).counts
    assert counts["rows_without_document"] == 1


@pytest.mark.parametrize("missing", ["fail", "null"])
def test_documents_with_other_ids_have_no_tables(raw, missing):
    signals(raw)
    combined(raw, combine="language", generated_id="{stem}-{row}")
    with pytest.raises(StageError, match=r"de_head-0' has no row number"):
        dk.attach(str(raw.parent / "v0"), str(raw / "quality_signals"), name="rps", missing=missing, **HERE)


def test_a_mix_of_combined_documents_names_the_dataset_that_knows_their_tables(raw):
    signals(raw)
    combined(raw, combine="language")
    dk.mix(str(raw.parent / "v0"), to=str(raw.parent / "v1"), **HERE)
    with pytest.raises(UsageError, match="the dataset that convert wrote, not in a mix of it"):
        dk.attach(str(raw.parent / "v1"), str(raw / "quality_signals"), name="rps", **HERE)


def test_rows_of_files_without_documents_are_counted(raw):
    signals(raw)
    path = raw / "documents/2022-49/0001/de_head.json.gz"
    write_lines(path, [])
    combined(raw, combine="bucket")
    counts = dk.attach(str(raw.parent / "v0"), str(raw / "quality_signals"), name="rps", **HERE).counts
    assert counts["rows_without_document"] == ROWS - 1
    assert counts["documents_without_row"] == 15
