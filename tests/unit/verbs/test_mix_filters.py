"""Filters in JSONPath and jq: what is kept and counted, which attributes they see, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import BadRecordBudgetError, ExpressionError, StageError, UsageError

from .conftest import read_lines, write_lines

HERE: dict[str, Any] = {"scheduler": "synchronous", "progress": False}


def put(root: Path, documents: list[dict[str, Any]], **sets: list[dict[str, Any]]) -> str:
    """Write a shard of documents, and attribute sets of other tools beside it."""
    rows = [
        {"id": f"d{row}", "text": f"text number {row}", "source": "s", **each}
        for row, each in enumerate(documents)
    ]
    write_lines(root / "documents/a.jsonl.gz", [json.dumps(row) for row in rows])
    for name, values in sets.items():
        lines = [
            json.dumps({"id": row["id"], "attributes": each}) for row, each in zip(rows, values, strict=True)
        ]
        write_lines(root / f"attributes/{name}/a.jsonl.gz", lines)
    return str(root)


def kept(dataset: str, **options: Any) -> list[str]:
    target = Path(dataset).parent / "kept"
    dk.mix(dataset, to=str(target), overwrite=True, **options, **HERE)
    return [json.loads(line)["id"] for line in read_lines(target / "documents/a.jsonl.gz")]


@pytest.fixture
def scored(tmp_path: Path) -> str:
    scores = [
        {"t__t__x": [[0, 13, 0.5]]},
        {"t__t__x": [[0, 4, 2], [5, 6, 0.1]]},
        {},
        {"t__t__x": []},
        {"t__t__x": [[0, 13, 1.0]], "lang": {"en": 0.9}},
    ]
    return put(
        tmp_path / "v0", [{"metadata": {"lang": lang}} for lang in ("en", "fr", "en", "de", "fr")], one=scores
    )


def test_any_of_include_and_none_of_exclude(scored: str) -> None:
    assert kept(scored, include=["$.attributes[?(@.t__t__x && @.t__t__x[0] && @.t__t__x[0][2] >= 1.0)]"]) == [
        "d1",
        "d4",
    ]
    both = ["$.attributes[?(@.t__t__x[0][2] >= 1)]", "$.metadata[?(@.lang == 'en')]"]
    assert kept(scored, include=both) == ["d0", "d1", "d2", "d4"]
    assert kept(scored, include=both, exclude=["$.attributes.t__t__x[1]"]) == ["d0", "d2", "d4"]
    assert kept(scored, exclude=["$.attributes.t__t__x"]) == ["d2"]
    assert kept(scored, include=both, where="metadata.lang != 'fr'") == ["d0", "d2"]


def test_jq(scored: str) -> None:
    assert kept(scored, include=[".attributes.t__t__x[0][2] >= 1"], syntax="jq") == ["d1", "d4"]
    assert kept(scored, include=[".attributes.t__t__x[0][2] < 1"], syntax="jq") == ["d0", "d2", "d3"]
    assert kept(
        scored, include=['.metadata.lang == "fr" and (.attributes.t__t__x | length > 1)'], syntax="jq"
    ) == ["d1"]


@pytest.mark.parametrize(
    "text, syntax, expected",
    [
        ("$.attributes.t__t__x[?(@[2] < 0.3)]", "jsonpath", ["d1"]),
        ("$.attributes[?(@.t__t__x[*][2] > 0.3)]", "jsonpath", ["d0", "d4"]),
        ("$..en", "jsonpath", ["d4"]),
        ("$.text[?(@ ~= 'number [13]')]", "jsonpath", ["d1", "d3"]),
        ("any(.attributes.t__t__x[]?; .[2] < 0.3)", "jq", ["d1"]),
        ('.id | test("[03]")', "jq", ["d0", "d3"]),
        (".attributes.lang.en // 0", "jq", ["d4"]),
    ],
)
def test_what_no_column_holds_is_asked_of_each_document(
    scored: str, text: str, syntax: str, expected: list[str]
) -> None:
    assert kept(scored, include=[text], syntax=syntax) == expected
    summary = dk.mix(scored, to=f"{scored}-again", include=[text], syntax=syntax, **HERE)
    assert [rule.matched for rule in summary.rules] == [len(expected)]
    assert any("slow" in note for note in summary.notes)


def test_counts_and_notes(scored: str) -> None:
    include, exclude = ["$.attributes[?(@.t__t__x[0][2] > 0.1)]"], ["$.metadata[?(@.lang == 'it')]"]
    summary = dk.mix(scored, to=f"{scored}-out", include=include, exclude=exclude, **HERE)
    counts = {rule.name: rule.matched for rule in summary.rules}
    assert counts == {f"include {include[0]}": 3, f"exclude {exclude[0]}": 0}
    assert any(exclude[0] in note and "drops nothing" in note for note in summary.notes)
    assert f"include {include[0]}" in str(summary)


def test_an_attribute_that_cannot_be_there(scored: str) -> None:
    with pytest.raises(UsageError, match=r"no row has the attribute 'u__t__x'.*near it are: t__t__x"):
        dk.mix(scored, to=f"{scored}-out", include=["$.attributes[?(@.u__t__x[0][2] > 0.5)]"], **HERE)
    assert not Path(f"{scored}-out").exists()


@pytest.mark.parametrize(
    "text, syntax, rows",
    [
        ("$.attributes[?(@.dummy && @.dummy[0] && @.dummy[0][2] >= 1.0)]", "jsonpath", 0),
        ("$.attributes[?(!@.dummy || @.dummy[0][2] >= 1.0)]", "jsonpath", 5),
        ("$.attributes[?(@.t__t__x && (@.dummy != null && @.dummy[0][2] > 1))]", "jsonpath", 0),
        ("(.attributes.dummy // []) | length == 0", "jq", 5),
        ('.attributes["dummy"][0]? // [0, 0, 1] | .[2] > 0', "jq", 5),
        (".attributes.dummy and .attributes.dummy[0][2] > 1", "jq", 0),
    ],
)
def test_a_guarded_attribute_may_be_missing(scored: str, text: str, syntax: Any, rows: int) -> None:
    summary = dk.mix(scored, to=f"{scored}-out", include=[text], syntax=syntax, attributes=["one"], **HERE)
    assert summary.counts["documents_out"] == rows
    assert any("no row that was looked at has the attribute dummy: no attribute" in n for n in summary.notes)
    with pytest.raises(UsageError, match="no row has the attribute 'dummy'"):
        dk.mix(scored, to=f"{scored}-2", include=[text], exclude=[UNGUARDED[syntax]], syntax=syntax, **HERE)


UNGUARDED = {"jsonpath": "$.attributes[?(@.dummy[0][2] > 1)]", "jq": ".attributes.dummy[0][2] > 1"}


def test_spans_that_are_replaced_may_be_missing(scored: str) -> None:
    rule = {"span": "$.attributes.dummy", "replacement": "x"}
    summary = dk.mix(scored, to=f"{scored}-out", replace=[rule], **HERE)
    assert any("has the attribute dummy" in note for note in summary.notes)
    assert summary.counts["spans_replaced"] == 0


def test_empty_lists_are_as_good_as_none(scored: str) -> None:
    options: dict[str, Any] = {"include": [], "exclude": [], "discard_fields": [], "replace": []}
    assert kept(scored, **options) == kept(scored)


def test_an_attribute_that_only_was_not_found(scored: str) -> None:
    """A tagger leaves out what it does not find, so that its other keys show that it may be right."""
    summary = dk.mix(scored, to=f"{scored}-out", exclude=["$.attributes.t__t__y"], **HERE)
    assert any("no row that was looked at has the attribute t__t__y" in note for note in summary.notes)
    assert summary.counts["documents_out"] == 5


@pytest.mark.parametrize("slow", [False, True])
def test_later_sets_win_and_documents_lose(tmp_path: Path, slow: bool) -> None:
    documents = [
        {"attributes": {"k": [[0, 3, 1]]}},
        {"attributes": {"k": [[0, 3, 1]]}},
        {"attributes": {"k": [[0, 3, 1]], "own": 7}},
        {},
    ]
    first = [{"k": [[0, 3, 2]]}, {"k": [[0, 3, 2]]}, {}, {}]
    second = [{"k": [[0, 3, 3]]}, {}, {}, {}]
    dataset = put(tmp_path / "v0", documents, first=first, second=second)
    path = "$.attributes[?(@.k[*][2] == {0})]" if slow else "$.attributes[?(@.k[0][2] == {0})]"
    found = [
        kept(dataset, include=[path.format(score)], attributes=["first", "second"]) for score in (1, 2, 3)
    ]
    assert found == [["d2"], ["d1"], ["d0"]]
    assert kept(dataset, include=["$.attributes[?(@.own > 6)]"]) == ["d2"]


def test_a_key_in_two_sets_is_chosen_by_whoever_asks(tmp_path: Path) -> None:
    dataset = put(tmp_path / "v0", [{}], first=[{"k": [[0, 3, 2]]}], second=[{"k": [[0, 3, 3]]}])
    with pytest.raises(UsageError, match="stands in two attribute sets, first and second"):
        kept(dataset, include=["$.attributes.k"])


def test_values_that_are_no_spans(tmp_path: Path) -> None:
    values = [
        {"n": 0.7, "b": True, "t": "x", "o": {"en": 0.9}, "odd": 1},
        {"n": 2, "odd": "x"},
        {"b": False, "odd": [[0, 1, 1]]},
    ]
    dataset = put(tmp_path / "v0", [{}] * 3, one=values)
    assert kept(dataset, include=["$.attributes[?(@.n > 0.5 && @.n < 1)]"]) == ["d0"]
    assert kept(dataset, include=["$.attributes[?(@.b == false || @.o.en > 0.5)]"]) == ["d0", "d2"]
    assert kept(dataset, include=["$.attributes[?(@.odd == 'x')]"]) == ["d1"]
    assert kept(dataset, include=["$.attributes[?(@.t in ['x', 'y'])]"]) == ["d0"]


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("file_format", ["jsonl.gz", "jsonl.zst", "parquet"])
def test_our_own_attributes_in_all_formats(tmp_path: Path, file_format: str, slow: bool) -> None:
    dataset = put(tmp_path / "v0", [{}, {"text": "naïve 日本"}, {"text": ""}])
    dk.tag(dataset, ["char_length_v1"], format=file_format, **HERE)
    place = "[*]" if slow else "[0]"
    text = f"$.attributes[?(@.char_length_v1__char_length_v1__length{place}[2] < 9)]"
    assert kept(dataset, include=[text]) == ["d1", "d2"]


@pytest.mark.parametrize(
    "options",
    [
        {"include": ["$.attributes[?(@.toxicity > 0.1)]"]},
        {"include": [".attributes | .toxicity > 0.1"], "syntax": "jq", "attributes": ["tox"]},
    ],
)
def test_flat_attributes(tmp_path: Path, options: dict[str, Any]) -> None:
    dataset = put(tmp_path / "v0", [{}, {}])
    lines = [json.dumps({"source": "s", "id": f"d{row}", "toxicity": row / 2}) for row in range(2)]
    write_lines(Path(dataset) / "attributes/tox/a.jsonl.gz", lines)
    assert kept(dataset, **options) == ["d1"]


def test_jq_that_fails_names_document_and_filter(scored: str) -> None:
    with pytest.raises(StageError, match=r"jq cannot evaluate '\.id\.x == 1' for document 'd0'"):
        kept(scored, include=[".id.x == 1"], syntax="jq")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"include": ["$.a[?(@.b"]}, "cannot read this JSONPath"),
        ({"include": [".a |"], "syntax": "jq"}, "cannot read this jq filter"),
        ({"include": ["$.a"], "syntax": "xpath"}, "expected one of jsonpath, jq"),
    ],
)
def test_wrong_filters(scored: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ExpressionError, UsageError), match=message):
        dk.mix(scored, to=f"{scored}-out", **options, **HERE)


def test_bad_rows_match_nothing(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "v0/documents/a.jsonl.gz",
        ['{"id":"a","text":"x","source":"s"}', "{broken", '{"id":"b","text":"y","source":"s"}'],
    )
    options: dict[str, Any] = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5, **HERE}
    for number, text in enumerate(("$[?(@.metadata.n != 1)]", "$[?(@.id != 'a')]", "$[?(!@.nope)]")):
        summary = dk.mix(str(tmp_path / "v0"), to=str(tmp_path / f"v{number + 1}"), exclude=[text], **options)
        assert summary.counts["bad_records"] == 1


def test_lists_and_thresholds_join_the_rule(scored: str, tmp_path: Path) -> None:
    (tmp_path / "takedown.txt").write_text("d0\n")
    (tmp_path / "good.txt").write_text("d0\nd1\nd2\n")
    out = tmp_path / "v1"
    summary = dk.mix(
        scored,
        to=str(out),
        where="metadata.lang != 'it'",
        block=[str(tmp_path / "takedown.txt")],
        allow=[str(tmp_path / "good.txt")],
        **HERE,
    )
    assert [json.loads(line)["id"] for line in read_lines(out / "documents/a.jsonl.gz")] == ["d1", "d2"]
    counts = {rule.name: rule.matched for rule in summary.rules}
    assert (counts["where takedown is None"], counts["where good is not None"]) == (4, 3)
    told = [
        json.loads(line)
        for path in (out / "_journal/mix").iterdir()
        for line in path.read_text().splitlines()
    ]
    (where,) = {line["params"]["where"] for line in told if line.get("kind") == "run"}
    again = dk.mix(scored, to=str(tmp_path / "v2"), where=where, **HERE)
    assert again.counts["documents_out"] == 2


@pytest.mark.parametrize("kind", ["block", "allow"])
def test_entries_of_a_list_that_match_nothing_are_named(scored: str, tmp_path: Path, kind: str) -> None:
    write_lines(tmp_path / "wrong.txt", ["s,1", "s,2", "d1"])
    for name in ("v1", "v2"):  # the second time from the journal
        done = dk.mix(scored, to=str(tmp_path / name), **{kind: [str(tmp_path / "wrong.txt")]}, **HERE)
        (note,) = [note for note in done.notes if "no document has" in note]
        assert note.startswith("wrong: no document has 2 of 3 entries of the list, first 's,1'")
        assert "_quarantine/block/wrong.unmatched.jsonl" in note
        assert done.exit_status == 0


def test_documents_that_a_list_could_not_be_compared_with_are_bad_records(
    scored: str, tmp_path: Path
) -> None:
    write_lines(Path(scored) / "documents/b.jsonl.gz", ["nonsense"])
    write_lines(tmp_path / "l.txt", ["d1"])
    options = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5, **HERE}
    lists = {"block": [str(tmp_path / "l.txt")]}
    assert dk.mix(scored, to=str(tmp_path / "v1"), **lists, **options).exit_status == 0
    with pytest.raises(BadRecordBudgetError):
        dk.mix(scored, to=str(tmp_path / "v2"), **lists, **{**options, "max_bad_fraction": 0.1})


@pytest.mark.parametrize("second", ["other/takedown.jsonl.gz", "missing.txt", "-.txt"])
def test_all_lists_are_looked_at_before_one_is_written(scored: str, tmp_path: Path, second: str) -> None:
    lists = [tmp_path / "takedown.txt", tmp_path / second]
    (tmp_path / "other").mkdir()
    for path in lists:
        if path.stem != "missing":
            path.write_text("d0\n")
    before = sorted(Path(scored).rglob("*"))
    with pytest.raises(UsageError, match=r"takedown\.txt and .*other/takedown|no such file|'-'"):
        dk.mix(scored, to=str(tmp_path / "v1"), block=[str(path) for path in lists], **HERE)
    assert sorted(Path(scored).rglob("*")) == before


def test_a_rehearsal_marks_nothing(scored: str, tmp_path: Path) -> None:
    (tmp_path / "takedown.txt").write_text("d0\n")
    summary = dk.mix(
        scored, to=str(tmp_path / "v1"), block=str(tmp_path / "takedown.txt"), dry_run=True, **HERE
    )
    assert any("would be flagged first" in note for note in summary.notes)
    assert not (Path(scored) / "attributes/takedown").exists()
    assert not (tmp_path / "v1").exists()


def test_thresholds_of_a_file(tmp_path: Path) -> None:
    dataset = put(tmp_path / "v0", [{"text": "x" * (row + 1)} for row in range(20)])
    dk.tag(dataset, ["char_length_v1"], **HERE)
    dk.quantiles(dataset, signals=["length"], level="strict", tails=["length=both"], **HERE)
    (path,) = Path(dataset).rglob("*strict*.json")
    ids = kept(dataset, thresholds=str(path))
    assert ids == [f"d{row}" for row in range(20) if 4 <= row <= 15]


def test_attributes_are_written_into_documents(scored: str, tmp_path: Path) -> None:
    dk.tag(scored, ["char_length_v1"], **HERE)
    sets = ["one", "char_length_v1"]
    dk.mix(
        scored,
        to=str(tmp_path / "v1"),
        merge_attributes=True,
        attributes=sets,
        where="metadata.lang == 'fr'",
        **HERE,
    )
    rows = [json.loads(line) for line in read_lines(tmp_path / "v1/documents/a.jsonl.gz")]
    length = {"char_length_v1__char_length_v1__length": [[0, 13, 13.0]]}
    assert [row["attributes"] for row in rows] == [
        {"t__t__x": [[0, 4, 2], [5, 6, 0.1]], **length},
        {"t__t__x": [[0, 13, 1.0]], "lang": {"en": 0.9}, **length},
    ]
    assert kept(str(tmp_path / "v1"), include=["$.attributes[?(@.lang.en > 0.5)]"]) == ["d4"]
    with pytest.raises(UsageError, match="expected the sets to write"):
        dk.mix(scored, to=str(tmp_path / "v2"), merge_attributes=True, **HERE)


@pytest.mark.parametrize("file_format", ["jsonl.gz", "parquet"])
def test_merged_attributes_of_all_formats(tmp_path: Path, file_format: str) -> None:
    dataset = put(tmp_path / "v0", [{"text": "naïve 日本"}, {"text": ""}])
    dk.tag(dataset, ["gopher_v2"], format="jsonl", **HERE)
    dk.tag(dataset, ["gopher_v2"], experiment="other", format=file_format, **HERE)
    dk.mix(dataset, to=str(tmp_path / "v1"), merge_attributes=True, attributes=["gopher_v2", "other"], **HERE)
    for line in read_lines(tmp_path / "v1/documents/a.jsonl.gz"):
        attributes = json.loads(line)["attributes"]
        ours = {
            key.removeprefix("gopher_v2__"): value
            for key, value in attributes.items()
            if key.startswith("gopher_v2__")
        }
        theirs = {
            key.removeprefix("other__"): value
            for key, value in attributes.items()
            if key.startswith("other__")
        }
        assert ours == theirs
        assert ours


@pytest.mark.parametrize("slow", [False, True])
def test_documents_without_attributes_match_no_filter_on_them(tmp_path: Path, slow: bool) -> None:
    dataset = put(tmp_path / "v0", [{}, {"attributes": {"k": 1}}, {"attributes": {"j": 1}}])
    assert kept(dataset, include=["$.attributes[?(!@..k)]" if slow else "$.attributes[?(!@.k)]"]) == ["d2"]


def test_a_null_in_the_metadata_is_a_value_for_jsonpath(tmp_path: Path) -> None:
    fields = [{"lang": "en"}, {"lang": None}, {"other": 1}]
    dataset = put(tmp_path / "v0", [*({"metadata": each} for each in fields), {}])
    assert kept(dataset, include=["$.metadata[?(@.lang)]"]) == ["d0", "d1"]
    assert kept(dataset, include=["$.metadata[?(@.lang nin ['en'])]"]) == ["d1"]
    assert kept(dataset, include=["$.metadata[?($.id)]"]) == ["d0", "d1", "d2"]
    assert kept(dataset, include=["$.metadata[?(@.lang && @.lang == 'en')]"]) == ["d0"]


@pytest.mark.parametrize("number", ["1e999", "9" * 5000])
def test_what_cannot_be_looked_at_is_named(tmp_path: Path, number: str) -> None:
    dataset = put(tmp_path / "v0", [{}, {"metadata": {"n": "NUMBER"}}])
    shard = tmp_path / "v0/documents/a.jsonl.gz"
    write_lines(shard, [line.replace('"NUMBER"', number) for line in read_lines(shard)])
    with pytest.raises(StageError, match=r"documents/a\.jsonl\.gz, row 1: a number that no double holds"):
        kept(dataset, include=["$..n"])


NEIGHBOURS = [2**53 + step for step in (0, 1, 2)]


@pytest.mark.parametrize(
    "rule, rows",
    [
        ("{} == 9007199254740993", ["d1"]),
        ("{} != 9007199254740993", ["d0", "d2"]),
        ("{} in (9007199254740993, 3)", ["d1"]),
        ("{} not in (9007199254740992.0, 3)", ["d1", "d2"]),
        ("{} < 9007199254740993", ["d0"]),
        ("{} <= 9007199254740993", ["d0", "d1"]),
        ("{} > 9007199254740992.0", ["d1", "d2"]),
        ("{} >= 9007199254740993", ["d1", "d2"]),
        ("{} - 1 == {} - 1", ["d0", "d1", "d2"]),
    ],
)
@pytest.mark.parametrize("name", ["number", "lang.en", "score", "metadata.n", "table"])
def test_rules_compare_large_integers_exactly(tmp_path: Path, name: str, rule: str, rows: list[str]) -> None:
    sets = {
        "a": [{"number": n} for n in NEIGHBOURS],
        "b": [{"lang": {"en": n}} for n in NEIGHBOURS],
        "c": [{"score": [[0, 13, n]]} for n in NEIGHBOURS],
    }
    data = put(tmp_path / "v0", [{"metadata": {"n": n}} for n in NEIGHBOURS], **sets)
    table = pa.table({"id": ["d0", "d1", "d2"], "table": NEIGHBOURS})
    (tmp_path / "v0/attributes/d").mkdir()
    pq.write_table(table, tmp_path / "v0/attributes/d/a.parquet")
    assert kept(data, where=rule.format(name, name)) == rows


def test_filters_compare_large_integers_exactly(tmp_path: Path) -> None:
    documents = [{"metadata": {"n": n}, "attributes": {"own": n}} for n in NEIGHBOURS]
    data = put(tmp_path / "v0", documents, a=[{"k": n} for n in NEIGHBOURS])
    for name in ("attributes.k", "attributes.own", "metadata.n"):
        assert kept(data, include=[f".{name} == 9007199254740993"], syntax="jq") == ["d1"]
        outer, key = name.split(".")
        assert kept(data, include=[f"$.{outer}[?(@.{key} > 9007199254740992)]"]) == ["d1", "d2"]


def test_merged_attributes_of_tables_keep_large_integers(tmp_path: Path) -> None:
    data = put(tmp_path / "v0", [{}, {}])
    (tmp_path / "v0/attributes/d").mkdir(parents=True)
    table = pa.table({"id": ["d0", "d1"], "hash": [2**63 - 1, 5]})
    pq.write_table(table, tmp_path / "v0/attributes/d/a.parquet")
    dk.mix(data, to=str(tmp_path / "v1"), merge_attributes=True, attributes=["d"], **HERE)
    lines = [json.loads(line) for line in read_lines(tmp_path / "v1/documents/a.jsonl.gz")]
    assert [line["attributes"]["hash"] for line in lines] == [2**63 - 1, 5]


def bounds_file(path: Path, **more: object) -> str:
    path.write_text(json.dumps({"bounds": {"n": {"all": {"lower": 1, "upper": 2}}}, **more}))
    return str(path)


@pytest.fixture
def with_nulls(tmp_path: Path) -> Path:
    """Four documents, of which the third has no value, and one that cannot be read."""
    root = tmp_path / "nulls"
    rows = [{"id": f"d{row}", "source": "s", "text": "t"} for row in range(5)]
    lines = [json.dumps(row) for row in rows]
    write_lines(root / "documents/a.jsonl", [lines[0], "nonsense", *lines[2:]])
    values = [{"n": 1.0}, None, {"n": 3.0}, {}, {"n": 2.0}]
    attributes = [
        {"id": None, "attributes": {}, "error": "bad"}
        if value is None
        else {"id": row["id"], "source": "s", "attributes": value}
        for row, value in zip(rows, values, strict=True)
    ]
    write_lines(root / "attributes/x/a.jsonl", [json.dumps(row) for row in attributes])
    return root


@pytest.mark.parametrize(("nulls", "expected"), [("drop", ["d0", "d4"]), ("keep", ["d0", "d3", "d4"])])
def test_documents_without_a_value_follow_the_policy_and_are_counted(
    with_nulls: Path, tmp_path: Path, nulls: str, expected: list[str]
) -> None:
    cuts = bounds_file(tmp_path / "cuts.json", nulls=nulls)
    options = {"on_bad_record": "quarantine", "max_bad_fraction": 1.0, "progress": False}
    made = dk.mix(str(with_nulls), to=str(tmp_path / "v1"), thresholds=cuts, **options)
    assert [json.loads(line)["id"] for line in read_lines(tmp_path / "v1/documents/a.jsonl")] == expected
    assert [rule.missing for rule in made.rules] == [1, 1]
    assert "(1 document without a value)" in str(made)


def test_a_document_without_a_value_is_named_where_that_fails(with_nulls: Path, tmp_path: Path) -> None:
    cuts = bounds_file(tmp_path / "cuts.json", nulls="fail")
    options = {"on_bad_record": "quarantine", "max_bad_fraction": 1.0, "progress": False}
    with pytest.raises(
        StageError, match=r"documents/a.jsonl, row 3: document 'd3' has no n; expected a value.*nulls: fail"
    ):
        dk.mix(str(with_nulls), to=str(tmp_path / "v1"), thresholds=cuts, **options)
