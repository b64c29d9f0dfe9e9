"""Summaries that verbs return: one object that is a table, HTML, JSON and an exit status."""

import json
import pickle

import pytest

from dolma_dask.errors import Failure
from dolma_dask.io.records import RuleCount
from dolma_dask.results.summary import Summary, count_fact

FULL = Summary(
    "mix",
    "/corpus/v1",
    done=1200,
    skipped=3,
    failed=1,
    seconds=61.25,
    counts={"tokens": 5_000_000, "documents_in": 1234567, "text_bytes_in": 2_500_000, "mean_score": 0.12346},
    rules=(RuleCount("where", "x > 1", 7),),
    notes=("x <is> small",),
    failures=(Failure("a&b.jsonl.gz", "DataError", "row 7 <bad>"),),
)


def test_table():
    lines = [" ".join(line.split()) for line in str(FULL).splitlines()]
    assert lines == [
        "mix",
        "shards 1,200 done, 3 done before, 1 failed",
        "documents in 1,234,567",
        "text in 2.50 MB",
        "tokens 5,000,000",
        "where x > 1 7",
        "mean score 0.1235",
        "where /corpus/v1",
        "wall time 1 min 1 s",
        "note: x <is> small",
        "FAILED a&b.jsonl.gz: DataError: row 7 <bad>",
    ]


def test_values_stand_in_one_column():
    lines = [line for line in str(FULL).splitlines() if line.startswith("  ") and ":" not in line]
    starts = {line.rindex("  ") + 2 for line in lines}
    assert len(starts) == 1


def test_rehearsal_shows_what_would_be_done():
    planned = tuple(f"{number}.jsonl" for number in range(25))
    shown = str(Summary("tag", "/v0", skipped=1, planned=planned))
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[1:4] == ["would work on 25 shards", "done before 1 shard", "0.jsonl"]
    assert "19.jsonl" in lines
    assert "20.jsonl" not in lines
    assert "and 5 more" in lines


def test_html_is_escaped():
    page = FULL._repr_html_()
    assert "a&amp;b.jsonl.gz" in page
    assert "row 7 &lt;bad&gt;" in page
    assert "x &lt;is&gt; small" in page
    assert "where x &gt; 1" in page
    assert "<bad>" not in page


def test_whole_counts_are_ints_in_json():
    shown = json.dumps(Summary("mix", "x", counts={"documents_in": 3.0, "share": 0.5}, lost=True).to_json())
    assert '"documents_in": 3,' in shown
    assert '"share": 0.5' in shown
    assert '"lost": true' in shown


def test_json_and_pickle_keep_all():
    content = json.loads(json.dumps(FULL.to_json()))
    assert content["failures"] == [{"shard": "a&b.jsonl.gz", "error": "DataError", "message": "row 7 <bad>"}]
    assert content["counts"]["documents_in"] == 1234567
    assert (content["lost"], content["exit_status"]) == (False, 1)
    assert (content["done"], content["skipped"], content["failed"], content["seconds"]) == (1200, 3, 1, 61.25)
    assert pickle.loads(pickle.dumps(FULL)) == FULL
    assert repr(FULL) == str(FULL)


@pytest.mark.parametrize(
    "summary, status",
    [
        (Summary("tag", "x"), 0),
        (Summary("tag", "x", failed=1), 1),
        (Summary("tag", "x", lost=True), 1),
        (Summary("tag", "x", skipped=5, notes=("y",)), 0),
    ],
)
def test_exit_status(summary, status):
    assert summary.exit_status == status


@pytest.mark.parametrize(
    "name, value, label, shown",
    [
        ("bytes_in", 1_234_000, "bytes in", "1.23 MB"),
        ("text_bytes_out", 0, "text out", "0 B"),
        ("text_bytes", 49_960, "text", "50.0 kB"),
        ("documents_in", 1e9, "documents in", "1,000,000,000"),
        ("bad_records", 3.0, "bad records", "3"),
        ("cpu_seconds", 2, "cpu seconds", "2.00 s"),
        ("share", 0.5, "share", "0.5"),
    ],
)
def test_counts_have_the_units_that_their_names_tell(name, value, label, shown):
    fact = count_fact(name, value)
    assert (fact.label, fact.text) == (label, shown)


def test_a_very_long_rule_is_cut_in_the_table_but_not_in_json():
    rule = " or ".join(f"word_count == {number}" for number in range(100))
    summary = Summary("mix", "v1", rules=(RuleCount("where", rule, 5),))
    assert max(len(line) for line in str(summary).splitlines()) < 200
    assert summary.to_json()["rules"] == [
        {"kind": "where", "name": rule, "rule": rule, "matched": 5, "missing": 0}
    ]
    assert summary.to_json()["counts"] == {}
