"""quantiles: exact, by groups, the same bytes from any cut of the data, resuming, samples, thresholds, errors."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import BadRecordError, ExpressionError, StageError, UsageError
from dolma_dask.reading.thresholds import read_thresholds, thresholds
from dolma_dask.rules import groups
from dolma_dask.rules.quantile_table import PROBABILITIES, probability_name
from dolma_dask.verbs.quantiles import files as quantile_files
from dolma_dask.verbs.quantiles import order_statistics, shares
from dolma_dask.verbs.quantiles import values as quantile_values
from dolma_dask.verbs.quantiles.verb import quantiles

from .conftest import write_lines

X, Y, LANG, FLAG, LEVEL = "s__t__x", "s__t__y", "s__t__lang", "s__t__flag", "s__t__level"


def make_rows(count, seed=0):
    """Return documents with a few signals and labels, some of them missing."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        found = {
            X: float(np.floor(rng.lognormal(3, 1))),
            LEVEL: float(rng.integers(0, 3)),
            FLAG: bool(rng.random() < 0.5),
        }
        found |= {Y: float(rng.normal())} if rng.random() < 0.8 else {}
        found |= {LANG: str(rng.choice(["en", "uk", "all"]))} if rng.random() < 0.9 else {}
        rows.append((f"id-{number}", str(rng.choice(["web", "books", "wïki"])), found))
    return rows


def write_dataset(root, rows, shards=3, name="s"):
    """Write rows into shards of unequal size, with their attributes beside them."""
    cuts = [len(rows) * k * k // (shards * shards) for k in range(shards + 1)]
    for shard in range(shards):
        part = rows[cuts[shard] : cuts[shard + 1]]
        documents = [
            json.dumps({"id": i, "text": "t", "source": s, "metadata": _metadata(a)}) for i, s, a in part
        ]
        write_lines(root / f"documents/{shard}.jsonl.gz", documents)
        write_attributes(root / f"attributes/{name}/{shard}.jsonl.gz", part)
    return root


def _metadata(a):
    return {"n": a[X], "lang": a.get(LANG), "page": {"er": {"lang": a.get(LANG), "flag": a.get(FLAG)}}}


def write_attributes(path, part):
    write_lines(path, [json.dumps({"id": i, "source": s, "attributes": a}) for i, s, a in part])


ROWS = make_rows(600)


@pytest.fixture
def corpus(tmp_path):
    return write_dataset(tmp_path / "v0", ROWS)


def count_calls(monkeypatch, stage):
    calls = []
    original = stage.run_shard

    def run_shard(self, task):
        calls.append(task.shard)
        return original(self, task)

    monkeypatch.setattr(stage, "run_shard", run_shard)
    return calls


def ask(root, signals=(X, Y), **options):
    options = {"progress": False, "scheduler": "synchronous", **options}
    return quantiles(str(root), signals, **options)


def expected_entry(values):
    """The definition: NumPy's quantiles of the values that are there."""
    there = np.array([value for value in values if value is not None])
    names = [probability_name(item) for item in PROBABILITIES]
    found = np.quantile(there, PROBABILITIES).tolist() if len(there) else [None] * len(names)
    least, most = (float(there.min()), float(there.max())) if len(there) else (None, None)
    counts = {"n": len(there), "nulls": len(values) - len(there), "min": least, "max": most}
    return {**counts, "q": dict(zip(names, found, strict=True))}


def expected_table(rows, label, signals=(X, Y)):
    """`label` gives the name of the group of a row, None for no group."""
    names = sorted({label(row) for row in rows} - {None})
    members = {"all": rows} | {name: [row for row in rows if label(row) == name] for name in names}
    return {
        signal: {name: expected_entry([row[2].get(signal) for row in part]) for name, part in members.items()}
        for signal in signals
    }


def stored(root, name="quantiles"):
    return json.loads((root / f"quantiles/{name}.json").read_text())


# ------------------------------------------------------------------------------------------------- what is found


def test_by_source_as_numpy_and_nothing_is_left_behind(corpus):
    summary = ask(corpus)
    assert stored(corpus) == summary.quantiles == expected_table(ROWS, lambda row: row[1])
    assert not (corpus / "_work").exists()
    assert (summary.done, summary.skipped, summary.exit_status) == (3, 0, 0)
    assert summary.counts["documents_in"] == 600
    assert summary.counts["values"] + summary.counts["missing_values"] == 1200
    assert summary.parameters["method"] == "exact"


LABELS = {
    LANG: lambda row: {"all": "=all"}.get(row[2].get(LANG), row[2].get(LANG)),
    FLAG: lambda row: "true" if row[2][FLAG] else "false",
    LEVEL: lambda row: str(int(row[2][LEVEL])),
    "metadata.lang": lambda row: {"all": "=all"}.get(row[2].get(LANG), row[2].get(LANG)),
    "metadata.page.er.lang": lambda row: {"all": "=all"}.get(row[2].get(LANG), row[2].get(LANG)),
    "metadata.page.er.flag": lambda row: "true" if row[2][FLAG] else "false",
    None: lambda row: None,
}


@pytest.mark.parametrize("by", LABELS)
def test_any_scalar_column_makes_groups(corpus, by):
    summary = ask(corpus, by=by)
    assert stored(corpus) == expected_table(ROWS, LABELS[by])
    without = sum(LABELS[by](row) is None for row in ROWS) if by else 0
    assert summary.counts.get("documents_without_group", 0) == without
    assert any("in the group 'all' alone" in note for note in summary.notes) == (without > 0)


@pytest.mark.parametrize("missing", [0, 7])
def test_one_group_is_all_only_if_nothing_is_outside_of_it(tmp_path, missing):
    rows = [(i, s, {**a, LANG: "en"}) for i, s, a in ROWS[missing:50]] + ROWS[:missing]
    rows = [
        (i, s, {key: value for key, value in a.items() if key != LANG or at < 50 - missing})
        for at, (i, s, a) in enumerate(rows)
    ]
    found = ask(write_dataset(tmp_path / "one", rows), X, by="lang").quantiles[X]
    assert (found["en"] == found["all"]) == (missing == 0)
    assert (found["en"]["n"], found["all"]["n"]) == (50 - missing, 50)
    assert {X: found} == expected_table(rows, LABELS[LANG], [X])


def test_short_names_fields_and_all_signals(corpus):
    ask(corpus, ["x", "metadata.n"], by="lang", name="short")
    found = stored(corpus, "short")
    assert list(found) == [X, "metadata.n"]
    assert found[X] == found["metadata.n"]
    summary = ask(corpus, None)
    assert ask(corpus, ()).skipped == 3
    assert set(summary.quantiles) == {X, Y, LEVEL}
    assert set(ask(corpus, None, by="level", overwrite=True).quantiles) == {X, Y, LEVEL}
    assert ask(corpus, "x", by="none", overwrite=True).quantiles[X].keys() == {"all"}


def test_document_level_spans_of_taggers(tagged):
    summary = ask(tagged, None, by="source")
    lengths = [13, 10, 0, 26, 8, 120, 13, 10, 0, 26]
    assert summary.quantiles["char_length_v1__char_length_v1__length"]["s"] == expected_entry(lengths)
    assert len(summary.quantiles) == 2


def test_the_same_bytes_from_any_cut(tmp_path, monkeypatch):
    results = set()
    for shards in (1, 2, 7):
        root = write_dataset(tmp_path / f"{shards}", ROWS, shards)
        ask(root, scheduler="threads", workers=3)
        results.add((root / "quantiles/quantiles.json").read_bytes())
    monkeypatch.setattr(quantile_values, "GROUP_BYTES", 1)
    monkeypatch.setattr(quantile_files, "SEGMENT_ROWS", 17)
    monkeypatch.setattr(order_statistics, "MAX_COLLECTED", 50)
    monkeypatch.setattr(order_statistics, "MAX_SORTED", 400)
    root = write_dataset(tmp_path / "small", ROWS[::-1], 5)
    ask(root, attributes=["s"])
    results.add((root / "quantiles/quantiles.json").read_bytes())
    assert len(results) == 1


def test_missing_not_a_number_and_infinite_values_are_left_out(tmp_path):
    documents = [json.dumps({"id": str(number), "text": "", "source": "s"}) for number in range(6)]
    write_lines(tmp_path / "documents/a.jsonl", documents)
    values = [1.0, None, math.nan, math.inf, -math.inf, -0.0]
    table = pa.table({"id": [str(number) for number in range(6)], "source": ["s"] * 6, X: values})
    (tmp_path / "attributes/s").mkdir(parents=True)
    pq.write_table(table, tmp_path / "attributes/s/a.parquet")
    summary = ask(tmp_path, X)
    found = summary.quantiles[X]["s"]
    assert (found["n"], found["nulls"], found["min"], found["max"]) == (2, 4, 0.0, 1.0)
    assert "-0.0" not in (tmp_path / "quantiles/quantiles.json").read_text()
    assert any("2 infinite values" in note for note in summary.notes)


def test_no_values_at_all(tmp_path):
    rows = [("a", "one", {X: 1.0, Y: 2.0}), ("b", "two", {X: 1.0})]
    write_dataset(tmp_path, rows, 1)
    write_lines(tmp_path / "documents/z.jsonl", [])
    write_lines(tmp_path / "attributes/s/z.jsonl", [])
    summary = ask(tmp_path, level="regular")
    entry = summary.quantiles[Y]["two"]
    assert (entry["n"], entry["nulls"], entry["min"], entry["q"]["0.5"]) == (0, 1, None, None)
    assert (summary.lower("y", "one"), summary.upper("x", "two")) == (2.0, 1.0)
    part = ask(tmp_path, "metadata.n", only=["0.jsonl", "z.jsonl"], name="part")
    assert part.quantiles["metadata.n"]["two"]["n"] == 1


def test_probabilities_can_be_chosen(corpus):
    found = ask(corpus, X, by=None, probabilities=[1, 0.5, 0]).quantiles[X]["all"]
    assert list(found["q"]) == ["0", "0.5", "1"]
    assert (found["q"]["0"], found["q"]["1"]) == (found["min"], found["max"])


# --------------------------------------------------------------------------- groups of several columns, some documents


def test_groups_of_several_columns(corpus):
    def label(row):
        lang = row[2].get(LANG)
        return None if lang is None else f"{row[1]}/{lang}/{'true' if row[2][FLAG] else 'false'}"

    summary = ask(corpus, by=["source", "lang", "flag"], level=["regular"])
    assert stored(corpus) == expected_table(ROWS, label)
    assert summary.parameters["by"] == ["source", LANG, FLAG]
    assert summary.counts["documents_without_group"] == sum(label(row) is None for row in ROWS)
    assert summary.thresholds == read_thresholds(str(corpus / "quantiles/quantiles.regular.json"))
    assert summary.thresholds == thresholds(str(corpus), "regular")
    assert "books/uk/true" in str(summary)
    with pytest.raises(UsageError, match="a column of `by` was given twice"):
        ask(corpus, by=["lang", "lang"], overwrite=True)


def test_only_documents_for_which_a_rule_holds(corpus):
    where = "x > 10 and metadata.lang != 'uk'"
    summary = ask(corpus, where=where, name="some")
    rows = [row for row in ROWS if row[2][X] > 10 and row[2].get(LANG) not in (None, "uk")]
    assert stored(corpus, "some") == expected_table(rows, lambda row: row[1])
    assert summary.counts["documents_excluded"] == 600 - len(rows)
    assert any(f"{600 - len(rows)} documents left out (where: {where})" in note for note in summary.notes)
    with pytest.raises(UsageError, match=r"some\.json, made with other options"):
        ask(corpus, where="x > 11", name="some")
    every = ask(corpus, where="metadata.n == 0 or metadata.n != 0", name="every")
    assert every.quantiles == ask(corpus).quantiles
    none = ask(corpus, where="id == 'nothing'", name="none")
    assert none.quantiles[X]["all"]["n"] == 0


def test_only_documents_that_no_set_of_duplicates_flags(corpus):
    with pytest.raises(UsageError, match="has no set of duplicates"):
        ask(corpus, over="kept")
    dk.dedupe(str(corpus), by="x", name="same_x", progress=False)
    dk.dedupe(str(corpus), by="lang", name="same_lang", progress=False)
    first_x, first_lang = ({row[2].get(key): row[0] for row in ROWS[::-1]} for key in (X, LANG))
    rows = [row for row in ROWS if first_x[row[2][X]] == row[0]]
    rows = [row for row in rows if row[2].get(LANG) is None or first_lang[row[2][LANG]] == row[0]]
    for sets in ((), ("s",)):
        summary = ask(corpus, over="kept", attributes=sets, overwrite=True)
        assert summary.quantiles == expected_table(rows, lambda row: row[1])
    assert summary.counts["documents_excluded"] == 600 - len(rows)
    with pytest.raises(UsageError, match="over"):
        ask(corpus, over="some")


# ------------------------------------------------------------------------------------ levels of single groups and signals


def test_levels_of_single_groups_and_signals(corpus):
    summary = ask(corpus, level=["strict", "web=regular", "y=strictest"])
    path = corpus / "quantiles/quantiles.mixed.json"
    assert read_thresholds(str(path)) == summary.thresholds
    assert summary.thresholds == thresholds(
        summary, {"default": "strict", "web": "regular", "y": "strictest"}
    )
    table = stored(corpus)
    assert summary.lower("x", "web") == table[X]["web"]["q"]["0.1"]
    assert summary.lower("x", "books") == table[X]["books"]["q"]["0.2"]
    assert summary.lower("y", "web") == table[Y]["web"]["q"]["0.4"]
    again = ask(corpus, level=["strict", "web=regular", "y=strictest"])
    assert (again.thresholds, again.skipped) == (summary.thresholds, 3)
    other = ask(corpus, level=["strict", "web=strictest"], nulls="keep")
    assert read_thresholds(str(path)) == other.thresholds != summary.thresholds
    assert json.loads(path.read_text())["nulls"] == "keep"
    ask(corpus, X, overwrite=True)
    assert not path.exists()
    for _ in range(2):
        with pytest.raises(UsageError, match="no signal or group is called 'wob'; near it are web"):
            ask(corpus, X, level=["strict", "wob=regular"])


# ----------------------------------------------------------------------------------------------- samples


def test_a_sample_is_a_fraction_and_the_same_in_any_cut(tmp_path):
    tables = []
    for shards in (1, 4):
        root = write_dataset(tmp_path / f"{shards}", ROWS, shards)
        summary = ask(root, X, sample=0.3, seed=5)
        tables.append(summary.quantiles)
        assert summary.counts["documents_in"] == 600
        assert summary.counts["documents_sampled"] == summary.quantiles[X]["all"]["n"]
    assert tables[0] == tables[1]
    assert 120 < tables[0][X]["all"]["n"] < 240
    assert "a sample of 0.3 of the documents (seed 5)" in str(summary)
    assert ask(root, X, sample=0.3, seed=6, name="other").quantiles != tables[0]
    by_group = ask(root, X, sample=["web=0.3"], seed=5, name="web").quantiles[X]
    assert by_group["web"] == tables[0][X]["web"]
    whole = ask(root, X, name="whole").quantiles[X]
    assert {name: by_group[name] for name in whole if name not in ("web", "all")} == {
        name: entry for name, entry in whole.items() if name not in ("web", "all")
    }
    with pytest.raises(UsageError, match=r"sample names source 'wob', of which .* did you mean 'web'"):
        ask(root, X, sample={"wob": 0.3}, name="wrong")
    with pytest.raises(UsageError, match="expected `by`"):
        ask(root, X, sample={"web": 0.3}, name="wrong", by=None)
    assert ask(root, X, sample=1, overwrite=True).quantiles[X]["all"]["n"] == 600


# ---------------------------------------------------------------------------------------------------------- thresholds


def test_a_level_gives_a_rule_for_mix(corpus, tmp_path):
    cuts = ask(corpus, [X, Y], by="lang", level="strict")
    assert json.loads((corpus / "quantiles/quantiles.strict.json").read_text()) == cuts.thresholds.to_json()
    table = stored(corpus)

    def inside(row):
        label = LABELS[LANG](row)
        return label is not None and all(
            row[2].get(signal) is not None
            and table[signal][label]["q"]["0.2"] <= row[2][signal] <= table[signal][label]["q"]["0.8"]
            for signal in (X, Y)
        )

    mixed = dk.mix(str(corpus), to=str(tmp_path / "v1"), where=cuts.inside(), progress=False)
    assert mixed.counts["documents_out"] == sum(map(inside, ROWS)) > 0
    outside = dk.mix(str(corpus), to=str(tmp_path / "v2"), where=~cuts & ~cuts.inside("x"), progress=False)
    assert 0 < outside.counts["documents_out"] < 600 - mixed.counts["documents_out"]
    with pytest.raises(ExpressionError, match="no truth value"):
        dk.mix(str(corpus), to=str(tmp_path / "v3"), where=cuts and ~cuts.inside("x"), progress=False)
    assert cuts.lower("x", "en") == table[X]["en"]["q"]["0.2"]
    assert cuts.upper("x") == table[X]["all"]["q"]["0.8"]


def test_another_level_takes_no_second_pass(corpus, monkeypatch):
    ask(corpus, level="regular")
    read = count_calls(monkeypatch, quantile_values.ValueStage)
    ask(corpus, level="strictest")
    assert read == []
    assert sorted(path.name for path in (corpus / "quantiles").iterdir()) == [
        "quantiles.json",
        "quantiles.regular.json",
        "quantiles.strictest.json",
    ]


def test_thresholds_from_wherever_quantiles_are(corpus, tmp_path):
    summary = ask(corpus, by="level")
    expected = thresholds(summary, "regular")
    path = corpus / "quantiles/quantiles.json"
    assert (
        expected
        == thresholds(str(path))
        == thresholds(str(corpus))
        == thresholds(dk.open_dataset(str(corpus)))
    )
    assert (expected.by, expected.kind) == (LEVEL, "number")
    assert thresholds(summary, tails={"x": "lower"}).upper("x") is None
    with pytest.raises(UsageError, match="by which column"):
        thresholds(stored(corpus))
    shutil.copyfile(path, tmp_path / "copied.json")
    assert thresholds(str(tmp_path / "copied.json"), by="source").by == "source"
    with pytest.raises(UsageError, match="no level was asked for"):
        summary.inside()
    with pytest.raises(UsageError, match="no level"):
        _ = summary & expected


def test_thresholds_files_are_read_and_wrong_ones_told(corpus, tmp_path):
    cuts = ask(corpus, by="lang", level="regular")
    assert read_thresholds(str(corpus / "quantiles/quantiles.regular.json")) == cuts.thresholds
    for content in ("{", "[]", '{"x": 3}', '{"x": {"en": {"n": 1, "q": {}}}}'):
        (tmp_path / "wrong.json").write_text(content)
        with pytest.raises(UsageError, match=r"wrong\.json"):
            thresholds(str(tmp_path / "wrong.json"))
    with pytest.raises(UsageError, match="no file"):
        read_thresholds(str(tmp_path / "none.json"))
    with pytest.raises(UsageError, match="no file"):
        thresholds(str(tmp_path))


# -------------------------------------------------------------------------------------------------- errors and looks


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"signals": ["xx"]}, ExpressionError, "xx"),
        ({"signals": ["lang"]}, UsageError, "holds strings"),
        ({"signals": ["flag"]}, UsageError, "true or false"),
        ({"signals": ["source"]}, UsageError, "holds strings"),
        ({"signals": []}, UsageError, "signals"),
        ({"signals": [X, X]}, UsageError, "twice"),
        ({"by": "languag"}, ExpressionError, "languag"),
        ({"by": ""}, UsageError, "by"),
        ({"level": "lax"}, UsageError, "regular"),
        ({"level": "regular", "probabilities": [0.5]}, UsageError, "0.1 and 0.9"),
        (
            {"level": ["regular", "x=strict"], "probabilities": [0.1, 0.9]},
            UsageError,
            "0.1 and 0.2 and 0.8 and 0.9",
        ),
        ({"level": ["x=strict"]}, UsageError, "no level for all other"),
        ({"nulls": "keep"}, UsageError, "there is no level"),
        ({"level": "strict", "nulls": "skip"}, UsageError, "drop, keep, fail"),
        ({"where": "xx > 1"}, ExpressionError, "xx"),
        ({"probabilities": [2]}, UsageError, "probabilities"),
        ({"sample": 0}, UsageError, "sample"),
        ({"sample": 1.5}, UsageError, "sample"),
        ({"seed": -1}, UsageError, "seed"),
        ({"name": "a/b"}, UsageError, "name"),
        ({"name": "x.strict"}, UsageError, "strict"),
        ({"name": "x.mixed"}, UsageError, "mixed"),
        ({"attributes": ["none"]}, UsageError, "none"),
        ({"dryrun": True}, UsageError, "did you mean 'dry_run'"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_read(corpus, options, error, message):
    with pytest.raises(error, match=message):
        ask(corpus, **{"signals": [X], **options})
    assert not (corpus / "quantiles").exists()
    assert not (corpus / "_work").exists()


def test_a_key_of_spans_is_no_signal(tmp_path):
    write_lines(tmp_path / "documents/a.jsonl", ['{"id":"0","text":"abcdef","source":"s"}'])
    row = {"id": "0", "source": "s", "attributes": {"s__t__lines": [[0, 2, 1.0], [2, 4, 0.5]]}}
    write_lines(tmp_path / "attributes/s/a.jsonl", [json.dumps(row)])
    for options in ({"signals": "lines"}, {"signals": "metadata.n", "by": "lines"}):
        with pytest.raises(UsageError):
            ask(tmp_path, **options)
    with pytest.raises(UsageError, match="no key of the attribute sets s has one number"):
        ask(tmp_path, None)


def test_a_dataset_without_attributes(dataset):
    with pytest.raises(UsageError, match="dolma-dask tag"):
        ask(dataset, None)


def test_too_many_groups_name_the_column(corpus, monkeypatch):
    monkeypatch.setattr(groups, "MAX_GROUPS", 50)
    with pytest.raises(UsageError, match=f"by='{Y}' has more than 50"):
        ask(corpus, X, by="y")
    monkeypatch.setattr(groups, "MAX_GROUPS", 2)
    with pytest.raises(UsageError, match="by='source'"):
        ask(corpus, X)


def test_too_many_groups_over_all_shards(tmp_path):
    rows = [(f"{number}", f"source {number}", {X: 1.0}) for number in range(1800)]
    write_dataset(tmp_path, rows, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantile_values, "GROUP_BYTES", 1)
        with pytest.raises(UsageError, match="by='source' has more than 1,000"):
            ask(tmp_path, X)
    with pytest.raises(UsageError, match="by='source' has more than 1,000"):
        ask(tmp_path, X)
    assert not (tmp_path / "_work").exists()


def test_bad_records_fail_or_are_set_aside(corpus):
    lines = [json.dumps({"id": i, "text": "t", "source": s}) for i, s, _ in ROWS[:66]]
    write_lines(corpus / "documents/0.jsonl.gz", [*lines[:5], "nonsense", *lines[6:]])
    attributes = [(i, s, a) for i, s, a in ROWS[:66]]
    rows = [json.dumps({"id": i, "source": s, "attributes": a}) for i, s, a in attributes]
    rows[5] = json.dumps({"id": None, "attributes": {}, "error": "bad"})
    write_lines(corpus / "attributes/s/0.jsonl.gz", rows)
    with pytest.raises(StageError, match=f"{BadRecordError.__name__}.*row 5"):
        ask(corpus)
    summary = ask(corpus, on_bad_record="quarantine")
    assert (summary.exit_status, summary.counts["bad_records"]) == (0, 1)
    assert stored(corpus)[X]["all"]["nulls"] == 1
    assert (corpus / "_quarantine/quantiles/0.jsonl.gz.jsonl").exists()
    assert ask(corpus, on_bad_record="quarantine").skipped == 3


def test_attributes_that_do_not_line_up_are_an_error(corpus):
    write_attributes(corpus / "attributes/s/1.jsonl.gz", ROWS[66:265])
    with pytest.raises(StageError, match="AlignmentError") as caught:
        ask(corpus)
    assert caught.value.details["summary"].target == str(corpus)


def test_tables_for_the_terminal_and_the_notebook(corpus):
    summary = ask(corpus, by="lang", level="regular")
    assert "p10" in str(summary)
    assert "=all" in str(summary)
    assert "<table>" in summary._repr_html_()
    assert summary.to_json()["thresholds"]["level"] == "regular"
    json.dumps(summary.to_json(), allow_nan=False)
    assert Path(summary.target, summary.file).exists()
    assert "p0" in str(ask(corpus, probabilities=[0, 1], name="ends"))


@pytest.mark.parametrize("content", [b'{"bounds": {"len\xffth": {}}}', b"[" * 5000, b'{"bounds": ', b""])
def test_damaged_thresholds_and_quantiles_are_named(tmp_path, content):
    (tmp_path / "cuts.json").write_bytes(content)
    for read in (read_thresholds, lambda path: thresholds(path, level="regular")):
        with pytest.raises(UsageError, match=r"cuts.json is no JSON"):
            read(str(tmp_path / "cuts.json"))


def test_quantiles_that_are_no_numbers(tmp_path):
    (tmp_path / "cuts.json").write_text('{"x": {"all": {"n": 1, "q": {"0.1": "a", "0.9": []}}}}')
    with pytest.raises(UsageError, match="no quantiles"):
        thresholds(str(tmp_path / "cuts.json"), level="regular")


@pytest.mark.parametrize("tails", [["x=upper"], {X: "upper"}], ids=["words", "mapping"])
def test_tails_of_thresholds(corpus, tails):
    path = corpus / "quantiles/quantiles.regular.json"
    ask(corpus, level="regular")
    both = json.loads(path.read_text())["bounds"]
    ask(corpus, level="regular", tails=tails)
    found = json.loads(path.read_text())["bounds"]
    assert found[Y] == both[Y]
    for label, ends in found[X].items():
        assert ends == {**both[X][label], "lower": None}
    assert ask(corpus, level="regular", tails=tails).thresholds.lower(X) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tails": ["x"], "level": "regular"}, "NAME=lower, NAME=upper or NAME=both"),
        ({"tails": ["x=low"], "level": "regular"}, "expected lower, upper or both"),
        ({"tails": ["z=lower"], "level": "regular"}, "no signal is called 'z'"),
        ({"tails": ["x=lower"]}, "there is no level"),
    ],
)
def test_tails_that_cannot_be(corpus, options, message):
    with pytest.raises(UsageError, match=message):
        ask(corpus, **options)


def test_levels_tell_documents_and_text_that_they_keep(tmp_path, monkeypatch):
    length = "c__char_length_v1__length"
    rows = [(i, s, {**a, length: 10 * a[X]}) for i, s, a in ROWS]
    root = write_dataset(tmp_path / "v0", rows)
    summary = ask(root, [X, Y], by="source", level="strict")
    read = [(s, a) for _, s, a in rows]
    for name, documents, text in summary.levels["kept"]:
        cuts = thresholds(summary, "strict" if name == "all" else name)
        inside = [
            name == "all"
            or all(
                signal in a
                and (cuts.lower(signal, s) or -math.inf) <= a[signal] <= (cuts.upper(signal, s) or math.inf)
                for signal in (X, Y)
            )
            for s, a in read
        ]
        kept = [a[length] for (_, a), holds in zip(read, inside, strict=True) if holds]
        assert (documents, text) == (len(kept), sum(kept)), name
    levels = summary.levels["kept"][1:]
    assert [name for name, *_ in levels] == ["strict", "regular", "even_stricter", "strictest"]
    assert ask(root, [X, Y], by="source", level="strict").levels == summary.levels, "the journal has it"
    shown = str(summary)
    assert "what the thresholds of each level keep of 600 documents; text by length" in shown
    monkeypatch.setattr(shares, "SHARE_BYTES", 1)
    part = ask(root, [X], by="source", level="regular", name="part")
    assert (part.levels["shards"], part.levels["shards_of"]) == (1, 3)
    assert "in 1 of 3 shards" in str(part)
