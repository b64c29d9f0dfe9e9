"""validate finds what is wrong, all of it, where it is, and nothing else; and does not look twice."""

import gzip
import json
import math
import random
import shutil
import uuid
from collections import Counter
from itertools import pairwise
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples
from unsealed import unsealed

import dolma_dask as dk
from dolma_dask.errors import (
    ExpressionError,
    InterruptedStageError,
    StageError,
    StaleAttributesError,
    UsageError,
)
from dolma_dask.exchange.contract import key_dtype
from dolma_dask.io.publish import publish
from dolma_dask.verbs.validate import identities as module
from dolma_dask.verbs.validate.attributes import find_bad_spans
from dolma_dask.verbs.validate.keys import EARLIER, IdentityEmitter, KeyReducer, order_break
from dolma_dask.verbs.validate.problems import KINDS
from dolma_dask.verbs.validate.shard import ValidateStage
from dolma_dask.verbs.validate.verb import validate

from .conftest import document, failing, read_lines, write_lines

SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))


def run(root: Path | str, **options):
    return validate(str(root), **{"progress": False, "scheduler": "synchronous", **options})


def found(summary) -> dict[str, list[tuple[str, int | None]]]:
    """Return the places of all problems that are shown, by kind."""
    return {
        kind: [(problem.file, None if problem.row < 0 else problem.row) for problem in item.first]
        for kind, item in summary.found.items()
    }


def attributes(rows: list[dict], path: Path) -> None:
    write_lines(path, [json.dumps(row) for row in rows])


def row(number: int, value, key: str = "g__g__n") -> dict:
    return {"id": f"d{number}", "attributes": {key: value}, "source": "s"}


# ------------------------------------------------------------------------------------------------ good datasets


def test_a_good_dataset_has_no_problems(tagged):
    summary = run(tagged)
    assert summary.found == {}
    assert summary.exit_status == 0
    assert summary.counts == {"attribute_files": 4, "bad_records": 0, "documents_in": 10, "text_bytes": 244}
    assert "all 2 files" in str(summary)
    assert "problems         none" in str(summary)
    assert summary.notes == ()
    assert not (tagged / "_work").exists()


@pytest.mark.parametrize("file_format", ["jsonl", "jsonl.zst", "parquet"])
def test_good_datasets_of_every_format(tagged, file_format):
    v1 = tagged.parent / "v1"
    dk.mix(str(tagged), to=str(v1), format=file_format, progress=False)
    dk.tag(str(v1), ["gopher_v2"], progress=False)
    summary = run(v1, against=str(tagged))
    assert summary.found == {}
    assert summary.counts["documents_in"] == 10


def test_empty_files_and_error_rows_are_good(dataset):
    write_lines(dataset / "documents/empty.jsonl.gz", [])
    write_lines(dataset / "documents/bad.jsonl.gz", [document(20), "{", document(21)])
    dk.tag(str(dataset), ["char_length_v1"], on_bad_record="quarantine", progress=False)
    assert found(run(dataset)) == {"bad_record": [("documents/bad.jsonl.gz", 1)]}


def test_a_dataset_without_any_good_row(tmp_path):
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", ["", "[]"])
    summary = run(tmp_path / "v0")
    assert {kind: item.count for kind, item in summary.found.items()} == {"bad_record": 2}


# ------------------------------------------------------------------------------------------------ documents


def test_bad_documents_are_all_listed_with_place_and_reason(dataset):
    lines = [
        document(20),
        '{"id":7,"text":"x","source":"s"}',
        '{"id":"a","source":"s"}',
        '{"id":"b","text":"x"}',
        '{"id":"c","text":"x","source":"s","added":1}',
        '{"id":"d","text":"x","source":"s","created":[]}',
        '{"id":"","text":"x","source":"s"}',
        '{"id":"","text":"x","source":"s"}',
        '{"id":"e","text":"x","source":"s","metadata":[1]}',
        '{"id":"f","text":"x","source":"s","metadata":null,"added":null}',
        '{"id":"g","text":"x","source":"s","metadata":{}}',
        "",
    ]
    write_lines(dataset / "documents/bad.jsonl.gz", lines)
    path = dataset / "documents/bad.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b'{"id":"\xff"}\n'))
    summary = run(dataset)
    name = "documents/bad.jsonl.gz"
    assert found(summary) == {
        "bad_record": [(name, number) for number in (1, 2, 3, 4, 5, 11, 12)],
        "empty_id": [(name, 6), (name, 7)],
        "bad_metadata": [(name, 8)],
    }
    first = summary.found["bad_record"].first
    assert first[0].found == f"wrong type at byte {len(document(20).encode()) + 1}"
    assert "a string in field 'id', found a number" in str(first[0])
    assert "'text', which is missing" in first[1].expected
    assert "invalid utf8" in first[6].found
    assert summary.found["bad_metadata"].first[0].found == "'[1]'"
    assert summary.exit_status == 1
    assert summary.failed == 0


def test_a_damaged_file_is_a_problem_and_the_rest_is_checked(tagged):
    path = tagged / "documents/x/a.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-10])
    write_lines(tagged / "documents/w.jsonl", [document(7)])
    other = tagged / "documents/v.parquet"
    other.write_bytes(b"PAR1 and nothing")
    summary = run(tagged, attributes=[])
    assert found(summary) == {
        "unreadable_file": [("documents/v.parquet", None), ("documents/x/a.jsonl.gz", None)],
        "duplicate_id": [("documents/y/z/b.jsonl.gz", 1)],
    }
    assert "truncated" in summary.found["unreadable_file"].first[1].found
    assert str(tagged) not in summary.found["unreadable_file"].first[1].found
    (tagged / "documents/w.jsonl").write_text(document(8) + "\n")
    again = run(tagged, attributes=[])  # the damaged file is not looked at again, and its identities are gone
    assert (again.done, found(again)["duplicate_id"]) == (1, [("documents/y/z/b.jsonl.gz", 2)])


def test_wrong_columns_of_tables(dataset):
    pq.write_table(pa.table({"id": ["a"], "text": ["x"]}), dataset / "documents/t.parquet")
    pq.write_table(pa.table({"id": [1], "text": ["x"], "source": ["s"]}), dataset / "documents/u.parquet")
    summary = run(dataset)
    assert found(summary) == {"schema": [("documents/t.parquet", None), ("documents/u.parquet", None)]}
    good = run(dataset, source="s")
    assert found(good)["schema"] == [("documents/u.parquet", None)]


def test_too_large_records(dataset):
    summary = run(dataset, max_record_bytes=100)
    assert found(summary) == {"bad_record": [("documents/x/a.jsonl.gz", 5)]}
    assert "max_record_bytes" in str(summary)


# ------------------------------------------------------------------------------------------------ unique ids


def test_ids_that_stand_twice_are_shown_with_both_places(dataset):
    write_lines(dataset / "documents/a.jsonl", [document(30), document(3), document(30), document(30)])
    write_lines(dataset / "documents/z.jsonl", [json.dumps({"id": "d3", "text": "x", "source": "other"})])
    summary = run(dataset)
    assert found(summary) == {
        "duplicate_id": [("documents/a.jsonl", 2), ("documents/a.jsonl", 3), ("documents/x/a.jsonl.gz", 3)]
    }
    shown = [problem.found for problem in summary.found["duplicate_id"].first]
    assert shown[0] == "source 's', id 'd30' stands in documents/a.jsonl, row 0 too"
    assert shown[2] == "source 's', id 'd3' stands in documents/a.jsonl, row 1 too"


def test_only_the_first_problems_are_shown_and_all_are_counted(dataset):
    write_lines(dataset / "documents/a.jsonl", [document(3)] * 200 + ["{"] * 100)
    summary = run(dataset, problems=4)
    assert [problem.row for problem in summary.found["duplicate_id"].first] == [1, 2, 3, 4]
    assert summary.found["duplicate_id"].count == 200
    assert [problem.row for problem in summary.found["bad_record"].first] == [200, 201, 202, 203]
    assert summary.found["bad_record"].count == 100
    assert "and 196 more" in str(summary)
    assert len(run(dataset, problems=70).found["bad_record"].first) == 70


# ------------------------------------------------------------------------------------------------ attributes


def test_spans_outside_of_texts(dataset):
    lengths = [len(json.loads(document(number))["text"]) for number in range(6)]
    rows = [row(number, [[0, lengths[number], 0.5]]) for number in range(6)]
    rows[1]["attributes"]["g__g__n"] = [[0, len("naïve café".encode()), 0.5]]  # bytes instead of code points
    rows[3]["attributes"]["g__g__s"] = [[-1, 3, 1], [5, 4, 1], [0, 26, 1], [26, 26, 1], [0, 27, 1]]
    attributes(rows, dataset / "attributes/g/x/a.jsonl.gz")
    attributes([row(number, []) for number in range(6, 10)], dataset / "attributes/g/y/z/b.jsonl.gz")
    summary = run(dataset)
    name = "attributes/g/x/a.jsonl.gz"
    assert found(summary) == {"span_outside_text": [(name, 1), (name, 3), (name, 3), (name, 3)]}
    assert "span [0, 12, 0.5] of g__g__n" in str(summary)
    assert "0 <= start <= end <= 10" in str(summary)
    assert any(note.endswith("made: g (2 files)") for note in summary.notes)


def test_values_that_are_not_what_their_key_is(dataset):
    rows = [row(number, [[0, 1, 0.5]]) for number in range(6)]
    rows[4]["attributes"]["g__g__n"] = [[0, 1, 0.5], [1, 2, 0.5]]
    rows[5]["attributes"]["g__g__n"] = [[1, 2, 0.5]]
    path = dataset / "attributes/g/x/a.jsonl.gz"
    attributes(rows, path)
    attributes([row(number, 7) for number in range(6, 10)], dataset / "attributes/g/y/z/b.jsonl.gz")
    summary = run(dataset)
    assert found(summary) == {
        "schema": [("attributes/g/y/z/b.jsonl.gz", None)],
        "span_outside_text": [("attributes/g/x/a.jsonl.gz", 2)],
    }, "the first rows say that the key has lists of spans"
    assert "key 'g__g__n' is number; expected spans, as in attributes/g/x/a.jsonl.gz" in str(summary)


def test_document_level_keys_have_one_span(tagged):
    path = tagged / "attributes/char_length_v1/x/a.jsonl.gz"
    lines = read_lines(path)
    lines[2] = lines[2].replace("[[0,", "[[0,0,1.0],[0,")
    lines[3] = lines[3].replace("[[0,", "[[1,")
    write_lines(path, lines)
    key = "char_length_v1__char_length_v1__length"
    # let the journal's record, which names the kinds, be of these bytes
    (segment,) = (tagged / "_journal/tag").glob("*.jsonl")
    changed = [json.loads(line) for line in unsealed(segment.read_text()).splitlines()]
    for record in changed:
        for file in record.get("files", ()):
            if file["path"] == "attributes/char_length_v1/x/a.jsonl.gz":
                file["bytes"] = path.stat().st_size
                file["checksum"] = xxhash.xxh3_128_hexdigest(path.read_bytes())
    segment.write_text("".join(json.dumps(record) + "\n" for record in changed))
    summary = run(tagged)
    name = "attributes/char_length_v1/x/a.jsonl.gz"
    assert found(summary) == {"not_document_level": [(name, 2), (name, 3)]}
    assert f"2 spans of {key}" in str(summary)
    assert f"span [1, 26, 26.0] of {key}" in str(summary)


def test_values_of_tables(dataset):
    """Parquet can hold what JSON cannot."""
    spans = [
        [{"start": 0, "end": 2, "score": math.inf}],
        [{"start": None, "end": 2, "score": 1.0}],
        None,
        [],
        [],
        [],
    ]
    table = pa.table(
        {
            "id": [f"d{number}" for number in range(6)],
            "source": ["s"] * 6,
            "n": [1.0, math.nan, None, -math.inf, 5.0, 6.0],
            "spans": pa.array(spans, SPANS),
        }
    )
    (dataset / "attributes/g/x").mkdir(parents=True)
    pq.write_table(table, dataset / "attributes/g/x/a.parquet")
    summary = run(dataset)
    name = "attributes/g/x/a.parquet"
    assert found(summary) == {
        "missing_attributes": [("attributes/g/y/z/b.jsonl.gz", None)],
        "span_outside_text": [(name, 1)],
        "not_finite": [(name, 0), (name, 1), (name, 3)],
    }


def test_every_unreadable_row_of_an_attribute_file_is_listed(tagged):
    path = tagged / "attributes/char_length_v1/x/a.jsonl.gz"
    lines = read_lines(path)
    lines[1], lines[4] = "{}", "nonsense"
    write_lines(path, lines)
    summary = run(tagged)
    name = "attributes/char_length_v1/x/a.jsonl.gz"
    assert found(summary) == {
        "bad_attribute_row": [(name, 1), (name, 4)],
        "journal_mismatch": [(name, None)],
    }
    assert "invalid json" in summary.found["bad_attribute_row"].first[1].found


def test_one_misaligned_file_stops_no_other(tagged):
    swapped = tagged / "attributes/char_length_v1/x/a.jsonl.gz"
    lines = read_lines(swapped)
    write_lines(swapped, [lines[0], lines[2], lines[1], *lines[3:]])
    short = tagged / "attributes/whitespace_tokenizer_v1/y/z/b.jsonl.gz"
    write_lines(short, read_lines(short)[:-1])
    long = tagged / "attributes/char_length_v1/y/z/b.jsonl.gz"
    write_lines(long, [*read_lines(long), json.dumps(row(99, []))])
    summary = run(tagged)
    assert found(summary)["misaligned"] == [
        ("attributes/char_length_v1/x/a.jsonl.gz", 1),
        ("attributes/char_length_v1/y/z/b.jsonl.gz", 4),
        ("attributes/whitespace_tokenizer_v1/y/z/b.jsonl.gz", 3),
    ]
    text = str(summary)
    assert (
        "has 6 rows, documents/x/a.jsonl.gz has 6; first difference at row 1 (id 'd2', expected 'd1')" in text
    )
    assert (
        "has 5 rows, documents/y/z/b.jsonl.gz has 4; first difference at row 4 (id 'd99', expected the end)"
        in text
    )
    assert (
        "has 3 rows, documents/y/z/b.jsonl.gz has 4; first difference at row 3 (no row, expected id 'd9')"
        in text
    )
    assert "Re-run: dolma-dask tag ... --only y/z/b" in text


def test_stale_attributes(tagged):
    path = tagged / "documents/x/a.jsonl.gz"
    lines = read_lines(path)
    write_lines(path, [lines[0].replace("one", "two"), *lines[1:]])
    summary = run(tagged)
    assert found(summary) == {
        "stale": [
            (f"attributes/{name}/x/a.jsonl.gz", None)
            for name in ("char_length_v1", "whitespace_tokenizer_v1")
        ]
    }
    assert "has the same ids but other text" in str(summary)


def test_files_that_are_missing_doubled_or_have_no_documents(tagged):
    folder = tagged / "attributes/char_length_v1"
    (folder / "x/a.jsonl.gz").unlink()
    shutil.copy(folder / "y/z/b.jsonl.gz", folder / "old.jsonl.gz")
    write_lines(folder / "y/z/b.jsonl", read_lines(folder / "y/z/b.jsonl.gz"))
    (folder / "README.md").write_text("notes")
    summary = run(tagged)
    assert found(summary) == {
        "missing_attributes": [("attributes/char_length_v1/x/a.jsonl.gz", None)],
        "two_attribute_files": [("attributes/char_length_v1/y/z/b.jsonl.gz", None)],
        "orphan_attributes": [("attributes/char_length_v1/old.jsonl.gz", None)],
    }
    assert any("README.md" in note for note in summary.notes)
    assert run(tagged, attributes=["whitespace_tokenizer_v1"]).found == {}
    assert run(tagged, attributes=[]).found == {}


def test_files_that_are_not_as_they_were_written(tagged):
    path = tagged / "attributes/char_length_v1/x/a.jsonl.gz"
    write_lines(path, [line.replace("[[0", "[[ 0") for line in read_lines(path)])
    summary = run(tagged)
    assert found(summary) == {"journal_mismatch": [("attributes/char_length_v1/x/a.jsonl.gz", None)]}
    assert "that tag wrote" in str(summary)
    assert not any("unproved" in note for note in summary.notes)
    v1 = tagged.parent / "v1"
    dk.mix(str(tagged), to=str(v1), progress=False)
    assert run(v1).found == {}
    changed = v1 / "documents/x/a.jsonl.gz"
    write_lines(changed, read_lines(changed))
    (v1 / "documents/y/z/b.jsonl.gz").unlink()
    summary = run(v1)
    assert found(summary) == {"journal_mismatch": [("documents/x/a.jsonl.gz", None)]}
    assert any("1 document file that a journal speaks of" in note for note in summary.notes)


# ------------------------------------------------------------------------------------------------ versions


@pytest.mark.slow
def test_what_an_earlier_version_does_not_have(dataset):
    v1 = dataset.parent / "v1"
    write_lines(
        v1 / "documents/x/a.jsonl", [document(number) for number in (0, 77, 3, 8)]
    )  # d8 was elsewhere
    write_lines(v1 / "documents/new.jsonl.gz", [document(9), document(78), document(78)])
    summary = run(v1, against=str(dataset))
    assert found(summary) == {
        "duplicate_id": [("documents/new.jsonl.gz", 2)],
        "not_in_against": [("documents/new.jsonl.gz", 1), ("documents/x/a.jsonl", 1)],
    }
    assert summary.found["not_in_against"].count == 3
    assert "source 's', id 'd77' is not in v0" in str(summary)
    assert run(dataset, against=str(v1)).found["not_in_against"].count == 10 - 4


def test_rows_keep_their_order(dataset):
    v1 = dataset.parent / "v1"
    write_lines(v1 / "documents/x/a.jsonl", [document(number) for number in (8, 0, 4, 2, 3, 5)])
    write_lines(v1 / "documents/y/z/b.jsonl.gz", [document(number) for number in (6, 9)])
    summary = run(v1, against=str(dataset))
    assert found(summary) == {"order_changed": [("documents/x/a.jsonl", 3)]}
    assert (
        "2 rows in another order than in v0/documents/x/a.jsonl.gz, first row 3 (row 2 there) behind row 2 (row 4 there)"
        in str(summary)
    )


def test_a_mix_is_a_version_of_what_it_was_made_from(tagged):
    v1 = tagged.parent / "v1"
    dk.mix(
        str(tagged),
        to=str(v1),
        where="char_length_v1__char_length_v1__length > 5",
        format="jsonl",
        progress=False,
    )
    assert run(v1, against=str(tagged)).found == {}
    assert run(v1).found == {}, "checked with and without the earlier version, neither redoes the other"
    assert run(v1, against=str(tagged)).done == 0


# ------------------------------------------------------------------------------------------------ resume


def test_checks_beside_other_attributes_do_not_replace_each_other(tagged):
    for attributes in ([], None, ["char_length_v1"]):
        assert run(tagged, attributes=attributes).done == 2
    for attributes in ([], None, ["char_length_v1"]):
        assert (run(tagged, attributes=attributes).done, attributes) == (0, attributes)


def test_what_changed_is_checked_again(tagged, monkeypatch):
    write_lines(tagged / "documents/bad.jsonl", ["{"])
    assert found(run(tagged, attributes=[])) == {"bad_record": [("documents/bad.jsonl", 0)]}
    (tagged / "documents/bad.jsonl").write_text(document(3) + "\n")
    summary = run(tagged, attributes=[])
    assert (summary.done, summary.skipped) == (1, 2)
    assert found(summary) == {"duplicate_id": [("documents/x/a.jsonl.gz", 3)]}
    (tagged / "documents/bad.jsonl").unlink()
    assert run(tagged).done == 2, "now with attributes"
    path = tagged / "attributes/char_length_v1/x/a.jsonl.gz"
    write_lines(path, read_lines(path)[1:])
    monkeypatch.setattr(module, "exchange", None)  # no document has changed
    summary = run(tagged)
    assert (summary.done, summary.skipped) == (1, 1)
    assert set(summary.found) == {"misaligned", "journal_mismatch"}
    monkeypatch.undo()
    assert run(tagged, overwrite=True).done == 2


def test_a_run_that_was_stopped_goes_on_with_what_it_knows(tagged):
    with failing(IdentityEmitter, method="emit"), pytest.raises(InterruptedStageError):
        run(tagged)
    (kept,) = tagged.glob("_work/validate-ids/*/keys")
    assert len(list(kept.rglob("*.keys"))) == 2
    (kept / "x/a.jsonl.gz.keys").unlink()  # is read from the documents then
    (kept / "y/z/b.jsonl.gz.keys").write_bytes(b"damaged")
    summary = run(tagged, attributes=[])
    assert found(summary) == {}
    assert not (tagged / "_work").exists()


# ------------------------------------------------------------------------------------------------ the report


def test_report_as_json_table_and_page(dataset, tmp_path):
    write_lines(dataset / "documents/a.jsonl", [json.dumps({"id": "<b>", "text": "x", "source": "s"})] * 2)
    summary = run(dataset, to=str(tmp_path / "report.json"))
    report = json.loads((tmp_path / "report.json").read_text())
    assert report == summary.report()
    assert report["problems"]["duplicate_id"] == {
        "count": 1,
        "expected": KINDS["duplicate_id"],
        "first": [
            {
                "file": "documents/a.jsonl",
                "row": 1,
                "found": "source 's', id '<b>' stands in documents/a.jsonl, row 0 too",
                "expected": KINDS["duplicate_id"],
            }
        ],
    }
    assert report["valid"] is False
    assert report["scope"] == {
        "files": 3,
        "files_of": 3,
        "attributes": [],
        "against": None,
        "sample": None,
        "seed": None,
    }
    assert {**summary.to_json(), **report} == summary.to_json()
    assert json.dumps(summary.to_json())
    assert summary.to_json()["exit_status"] == 1
    assert "id &#x27;&lt;b&gt;&#x27; stands" in summary._repr_html_()
    assert "  duplicate_id   1\n" in str(summary)
    run(dataset, to=str(tmp_path / "report.json"))
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(UsageError, match="no report of ours"):
        run(dataset, to=str(tmp_path / "mine.json"))
    with pytest.raises(UsageError, match=r"\.json"):
        run(dataset, to=str(tmp_path / "report.html"))


@pytest.mark.slow
def test_sampling_says_what_was_not_looked_at(dataset):
    for number in range(18):
        write_lines(dataset / f"documents/{number:02d}.jsonl", [document(100 + number)] * 2)
    summary = run(dataset, sample=0.2)
    assert summary.scope["files"] == 4
    assert summary.scope["files_of"] == 20
    assert "ONLY 4 of 20 files" in str(summary)
    assert any("NOTHING is known of the other 16" in note for note in summary.notes)
    assert summary.found["duplicate_id"].count == len(summary.found["duplicate_id"].first)
    same, other = run(dataset, sample=0.2), run(dataset, sample=0.2, seed=1)
    assert same.report() == summary.report()
    assert {p.file for p in other.found["duplicate_id"].first} != {
        p.file for p in same.found["duplicate_id"].first
    }
    assert run(dataset, only=["x/"]).scope["files"] == 1
    assert run(dataset).found["duplicate_id"].count == 18
    assert run(dataset, sample=1.0).found["duplicate_id"].count == 18


def test_a_sample_is_compared_with_the_files_of_its_names(dataset):
    v1 = Path(shutil.copytree(dataset, dataset.parent / "v1"))
    write_lines(v1 / "documents/x/a.jsonl.gz", [document(number) for number in (0, 70, 2)])
    write_lines(v1 / "documents/y/other.jsonl.gz", [document(50)])
    summary = run(v1, against=str(dataset), sample=0.99)
    assert summary.scope["files"] == 3
    assert found(summary)["not_in_against"] == [("documents/x/a.jsonl.gz", 1)]
    assert any("those of 1 file without such a file NOT at all" in note for note in summary.notes)


def test_the_form_of_the_seed(dataset, tmp_path):
    root = tmp_path / "lake"
    shutil.copytree(dataset, root / "sources/web/v0")
    shutil.copytree(dataset, root / "sources/web/v1")
    write_lines(
        root / "sources/web/v1/documents/x/a.jsonl.gz", ['{"id":"d0","text":"x"}', document(5), document(77)]
    )
    summary = run(root, source="web", version="v0")
    assert summary.found == {}
    assert summary.target == str(root / "sources/web/v0")
    summary = run(root, source="web", version="v1", against="v0")
    name = "documents/x/a.jsonl.gz"
    assert found(summary) == {"bad_record": [(name, 0)], "not_in_against": [(name, 2)]}
    assert "'source', which is missing" in str(summary)
    for options in ({"version": "v0"}, {"version": "v9", "source": "web"}):
        with pytest.raises(UsageError):
            run(root, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"against": "{}/none"}, "no document files"),
        ({"against": "{}/v0"}, "cannot be compared with itself"),
        ({"against": "{}/v0/documents"}, "cannot be compared with itself"),
        ({"attributes": ["none"]}, "no attribute set 'none'; it has: none"),
        ({"sample": 0.0}, "above 0"),
        ({"sample": 1.1}, "at most 1"),
        ({"sample": "3"}, "sample=.*expected"),
        ({"sample": True}, "sample=.*expected"),
        ({"sample": float("nan")}, "sample=.*expected"),
        ({"sample": 0.5, "seed": "x"}, "seed=.*expected"),
        ({"problems": 0}, "1 or more"),
        ({"problems": "3"}, "problems=.*expected"),
        ({"problems": 2.5}, "problems=.*expected"),
        ({"problems": True}, "problems=.*expected"),
        ({"max_record_bytes": "9"}, "max_record_bytes=.*expected"),
        ({"shuffle": "disk"}, "'files' or 'dask'"),
        ({"max_record_bytes": 0}, "1 or more"),
        ({"onyl": "x"}, "did you mean 'only'"),
        ({"only": ["none"]}, "no shard"),
    ],
)
def test_wrong_calls(dataset, tmp_path, options, message):
    options = {
        name: value.replace("{}", str(tmp_path)) if isinstance(value, str) else value
        for name, value in options.items()
    }
    with pytest.raises(UsageError, match=message):
        run(dataset, **options)
    with pytest.raises(UsageError, match="no document files"):
        run(tmp_path / "nowhere")
    assert not (dataset / "_journal").exists()


def test_a_file_that_cannot_be_checked_at_all_is_a_failure(dataset):
    write_lines(dataset / "documents/a.jsonl", ["{"])
    refused = failing(ValidateStage, PermissionError, lambda task: task.shard == "x/a.jsonl.gz")
    with refused, pytest.raises(StageError, match="1 of 3 shards failed") as caught:
        run(dataset)
    summary = caught.value.details["summary"]
    assert summary.exit_status == 1
    assert found(summary) == {"bad_record": [("documents/a.jsonl", 0)]}
    assert any("NOT checked" in note for note in summary.notes)
    assert run(dataset).done == 1


def test_in_an_object_store():
    root = f"memory://validate-{uuid.uuid4().hex}/v0"
    lines = "".join(document(number) + "\n" for number in (1, 2, 1))
    with publish(f"{root}/documents/a.jsonl") as out:
        out.write(lines.encode())
    dk.tag(root, ["char_length_v1"], progress=False)
    summary = run(root, to=f"{root}-report.json")
    assert found(summary) == {"duplicate_id": [("documents/a.jsonl", 2)]}
    assert (run(root).done, run(root).skipped) == (0, 1)
    fs, path = fsspec.core.url_to_fs(root)
    assert not [name for name in fs.find(path) if "_work" in name]


@pytest.mark.conformance
def test_what_is_wrong_in_files_of_the_original_toolkit(shared, tmp_path):
    """Folders that it lost, ends in bytes instead of code points, and spans that end behind their text."""
    root = Path(shutil.copytree(shared / "conformance/dolma/in", tmp_path / "in"))
    lost = run(root / "license")
    assert found(lost) == {
        "missing_attributes": [("attributes/lic/h/lic-0000.jsonl.gz", None)],
        "orphan_attributes": [("attributes/lic/lic-0000.jsonl.gz", None)],
    }
    ends = run(root / "dedupe", attributes=["doc_text"])
    assert [problem.row for problem in ends.found["span_outside_text"].first] == [8, 10, 12, 13]
    assert run(root, attributes=["gopher_v2", "char_length_v1", "pii_regex_v2", "repetitions_v1"]).found == {}


# ------------------------------------------------------------------------------------------------ oracles


def make_messy(root: Path, draw: random.Random, files: int = 4) -> None:
    """Write shards with problems of many kinds, and attributes beside them."""
    for number in range(files):
        lines, rows = [], []
        for _ in range(draw.randrange(12)):
            identity, text = f"m{draw.randrange(30)}", draw.choice(["", "é", "日本語 x", "plain words"])
            bad = draw.random() < 0.1
            body = {
                "id": identity,
                "text": text,
                "source": draw.choice("st"),
                "metadata": draw.choice([{}, 1, None]),
            }
            lines.append("{" if bad else json.dumps(body, ensure_ascii=draw.random() < 0.5))
            spans = [[draw.randrange(-1, 9), draw.randrange(-1, 12), 1.0] for _ in range(draw.randrange(3))]
            error = {"id": None, "attributes": {}, "error": "unreadable"}
            rows.append(
                error if bad else {"id": identity, "attributes": {"k": spans}, "source": body["source"]}
            )
        write_lines(root / f"documents/m{number}.jsonl", lines)
        write_lines(root / f"attributes/m/m{number}.jsonl", [json.dumps(one) for one in rows])


def expected_counts(root: Path) -> Counter[str]:
    """Count problems in the slowest and plainest way."""
    counts: Counter[str] = Counter()
    seen = set()
    for path in sorted((root / "documents").glob("m*.jsonl")):
        rows = [json.loads(line) for line in read_lines(root / "attributes/m" / path.name)]
        for line, attribute in zip(read_lines(path), rows, strict=True):
            if line == "{":
                counts["bad_record"] += 1
                continue
            body = json.loads(line)
            identity = body["source"], body["id"]
            counts["duplicate_id"] += identity in seen
            seen.add(identity)
            counts["bad_metadata"] += not isinstance(body["metadata"] or {}, dict)
            for start, end, _ in attribute["attributes"]["k"]:
                counts["span_outside_text"] += not 0 <= start <= end <= len(body["text"])
    return +counts


@pytest.mark.parametrize("seed", range(3))
def test_counts_equal_those_of_a_plain_reading(tmp_path, seed):
    draw = random.Random(seed)
    make_messy(tmp_path / "v0", draw, files=3)
    # so that the key is known to be lists of spans
    write_lines(tmp_path / "v0/documents/a.jsonl", [json.dumps({"id": "x", "text": "12345", "source": "s"})])
    write_lines(
        tmp_path / "v0/attributes/m/a.jsonl", ['{"id":"x","attributes":{"k":[[1,2,1],[2,3,1]]},"source":"s"}']
    )
    summary = run(tmp_path / "v0", problems=1000)
    counts = {
        kind: item.count
        for kind, item in summary.found.items()
        if kind not in ("not_document_level", "schema")
    }
    assert counts == expected_counts(tmp_path / "v0")
    assert all(item.count == len(item.first) for item in summary.found.values())


numbers = st.integers(-3, 12) | st.sampled_from([-(2**63), 2**63 - 1])
scores = st.sampled_from([0.0, -1.5, math.nan, math.inf, -math.inf])
span_lists = st.lists(st.tuples(numbers, numbers, scores), max_size=4)


@pytest.mark.slow
@given(
    st.lists(st.tuples(span_lists, st.integers(0, 10), st.booleans()), max_size=12),
    st.booleans(),
    st.integers(0, 5),
    st.integers(1, 9),
)
def test_spans_equal_the_oracle(rows, is_document, start, keep):
    """Rows of spans, length of the text, and whether the row is null, with spans below it all the same."""
    made = [
        [dict(zip(("start", "end", "score"), span, strict=True)) for span in spans] for spans, _, _ in rows
    ]
    plain, hidden = pa.array(made, SPANS), pa.array([is_null for _, _, is_null in rows], pa.bool_())
    column = pa.ListArray.from_arrays(plain.offsets, plain.values, mask=hidden).slice(start)
    rows = [(None if is_null else spans, length) for spans, length, is_null in rows[start:]]
    lengths = np.array([length for _, length in rows], np.int64)
    counts, first_rows, _ = find_bad_spans(column, lengths, is_document=is_document, keep=keep)
    outside, infinite, several = [], [], []
    for number, (spans, length) in enumerate(rows):
        if spans is None:
            continue
        if is_document and (len(spans) > 1 or any(span[0] != 0 for span in spans)):
            several.append(number)
        for first, last, score in spans:
            if not 0 <= first <= last <= length:
                outside.append(number)
            if not math.isfinite(score):
                infinite.append(number)
    for code, wanted in enumerate((outside, infinite, several)):
        assert counts[code] == len(wanted)
        assert first_rows[code, : len(wanted)].tolist() == wanted[:keep]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
    st.integers(1, 9),
)
def test_walk_over_keys_equals_the_oracle(rows, cuts, keep):
    """Each row is a key and whether it is of the earlier version."""
    records = np.zeros(len(rows), key_dtype())
    for place, (key, is_earlier) in enumerate(rows):
        records[place] = (key // 3, key % 3, place + (EARLIER if is_earlier else 0))
    records.sort()
    bounds = sorted({0, *cuts, len(records)})
    parts = [records[first:last] for first, last in pairwise(bounds) if first < len(records)]
    result = KeyReducer(keep, has_earlier=True).reduce(parts, print)
    ours = [(key, place) for place, (key, is_earlier) in enumerate(rows) if not is_earlier]
    first_of: dict[int, int] = {}
    for key, place in ours:
        first_of.setdefault(key, place)
    duplicates = [[place, first_of[key]] for key, place in ours if place != first_of[key]]
    theirs = {key for key, is_earlier in rows if is_earlier}
    assert result["duplicates"] == len(duplicates)
    assert result["first"] == duplicates[:keep]
    assert result["unmatched"] == sum(key not in theirs for key, _ in ours)
    assert (
        result["first_unmatched"]
        == sorted(place for key, place in first_of.items() if key not in theirs)[:keep]
    )


def is_subsequence(ours: list[int], theirs: list[int]) -> bool:
    rest = iter(theirs)
    return all(key in rest for key in ours)


@pytest.mark.slow
@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(1, 8), max_size=12))
@settings(max_examples=examples(80))
def test_order_equals_the_oracle(ours, theirs):
    """Key 0 is a row without identity."""
    ours_keys, theirs_keys = (
        np.array([[key, key] for key in keys], np.uint64).reshape(-1, 2) for keys in (ours, theirs)
    )
    result = order_break(ours_keys, theirs_keys)

    def kept(count: int) -> list[int]:
        return [key for key in ours[:count] if key and key in theirs]

    broken = [count for count in range(1, len(ours) + 1) if not is_subsequence(kept(count), theirs)]
    if not broken:
        assert result is None
        return
    assert result is not None
    count, first, there, last, last_there = result
    assert first == broken[0] - 1
    assert theirs[there] == ours[first]
    assert ours[last] == theirs[last_there]
    assert count >= 1
    assert there <= last_there


# ------------------------------------------------------------------------------------------- the exchange of identities


def named(identity: str) -> str:
    return json.dumps({"id": identity, "text": "t", "source": "s"})


def test_the_same_report_however_shards_share_a_task(tmp_path, monkeypatch):
    for number in range(9):
        ids = [f"d{number}-{row}" for row in range(3)] + ["twice"] * (number in (2, 7))
        write_lines(tmp_path / f"v0/documents/{number}.jsonl.gz", [named(one) for one in ids])
        write_lines(tmp_path / f"v1/documents/{number}.jsonl.gz", [named(one) for one in ids[::-1]])
    summaries = []
    for most in (4, 256, 1):
        monkeypatch.setattr(module, "MAX_GROUPED", most)
        summaries.append(run(tmp_path / "v1", against=str(tmp_path / "v0"), overwrite=True).report())
    assert summaries[0] == summaries[1] == summaries[2]
    assert summaries[0]["problems"]["order_changed"]["count"] == 9
    assert summaries[0]["problems"]["duplicate_id"]["count"] == 1


def test_attributes_of_another_journal_format_are_not_taken_for_foreign_ones(tagged, tmp_path):
    """They may be stale, and only the records that are not believed could tell."""
    for segment in (tagged / "_journal/tag").glob("*.jsonl"):
        segment.write_text(unsealed(segment.read_text()).replace('{"format":2,', "{"))
    with pytest.raises(
        StaleAttributesError, match=r"another release, whose journal is of another format.*dolma-dask tag"
    ):
        dk.mix(
            str(tagged),
            to=str(tmp_path / "v1"),
            where="char_length_v1__char_length_v1__length > 5",
            progress=False,
        )
    summary = run(tagged)
    assert "stale" in found(summary)
    assert any("another journal format" in note for note in dk.status(str(tagged)).notes)
    dk.tag(str(tagged), ["char_length_v1", "whitespace_tokenizer_v1"], progress=False)
    assert found(run(tagged)) == {}


def test_a_key_of_several_kinds_is_a_problem_that_status_and_mix_tell_too(dataset):
    path, *others = sorted((dataset / "documents").rglob("*.gz"))
    for other in others:
        other.unlink()
    documents = [json.loads(line) for line in read_lines(path)]
    path = dataset / "attributes/mine" / path.relative_to(dataset / "documents")
    values = ["good", *range(1, len(documents))]
    rows = [
        {"id": one["id"], "source": one["source"], "attributes": {"mine__q": value, "z": 1}}
        for one, value in zip(documents, values, strict=True)
    ]
    attributes(rows, path)
    summary = run(dataset, attributes=["mine"])
    (problem,) = summary.found["schema"].first
    assert "'mine__q' is a string in row 0 and a number in row 1" in problem.found
    (checked,) = [one for one in dk.status(str(dataset)).rows if one.verb == "validate"]
    assert (checked.state, checked.problems) == ("1 problem", {"schema": 1})
    assert "validate: 1 problem found (schema 1)" in str(dk.status(str(dataset)))
    assert dk.status(str(dataset)).exit_status == 1
    for more in ({}, {"attributes": ["mine"]}):
        with pytest.raises(
            ExpressionError, match=r"'mine__q' of several kinds.*a string in row 0 and a number"
        ):
            dk.mix(str(dataset), to=str(dataset.parent / "v1"), where="q > 2", **more)
