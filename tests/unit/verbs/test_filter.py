"""filter: levels of thresholds as attributes that other commands see as columns, never stale, the same bytes always."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.engine.map import Map
from dolma_dask.errors import AlignmentError, StageError, StaleAttributesError, UsageError
from dolma_dask.io.documents import DocumentFile
from dolma_dask.journal import Journal
from dolma_dask.rules.thresholds import LEVELS, Thresholds

from .conftest import document, failing, read_lines, write_lines
from .report_pages import page_of
from .test_quantiles import LANG, ROWS, X, Y, ask, make_rows, write_attributes, write_dataset

HERE = {"scheduler": "synchronous", "progress": False}


@pytest.fixture
def corpus(tmp_path):
    """A dataset with quantiles of two signals by source."""
    root = write_dataset(tmp_path / "v0", ROWS)
    ask(root, by="source")
    return root


@pytest.fixture
def proved(tmp_path):
    """Tagged documents of two shards with quantiles: the journal proves their attributes."""
    root = tmp_path / "v0"
    for name in "ab":
        lines = [document(number, id=f"{name}{number}", text="word " * number) for number in range(40)]
        write_lines(root / f"documents/{name}.jsonl.gz", lines)
    dk.tag(str(root), ["char_length_v1", "whitespace_tokenizer_v1"], **HERE)
    dk.quantiles(str(root), **HERE)
    return root


def filter(root, *thresholds, **options):
    return dk.filter(str(root), *thresholds, **{**HERE, **options})


def files_of(root, name="quality"):
    paths = sorted((root / f"attributes/{name}").rglob("*.*"))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def frame(root, *columns, **options):
    return dk.read_dataframe(str(root), columns=["id", *columns], **options).compute()


def expected_levels(root, level_of=None):
    """Levels by id and signal from the thresholds as rules over one document."""
    found = {}
    for signal in (X, Y):
        cuts = [dk.thresholds(str(root), level).inside(signal) for level in LEVELS]
        masks = [_mask(one) for one in cuts]
        for row, (identity, _, _) in enumerate(ROWS):
            found.setdefault(identity, []).append(sum(mask[row] for mask in masks))
    return found


def _mask(rule):
    import pyarrow as pa

    columns = {signal: pa.array([row[2].get(signal) for row in ROWS], pa.float64()) for signal in (X, Y)}
    return rule.mask({**columns, "source": pa.array([row[1] for row in ROWS])}).to_pylist()


@pytest.mark.parametrize("format", [None, "jsonl", "parquet"])
def test_readers_see_the_levels_as_columns(corpus, format):
    summary = filter(corpus, format=format)
    expected = expected_levels(corpus)
    rows = frame(corpus, "quality.x", "quality.y", "quality.level").set_index("id")
    found = rows[["quality.x", "quality.y"]].astype(int)
    assert {
        identity: list(row) for identity, row in zip(found.index, found.to_numpy(), strict=True)
    } == expected
    assert rows["quality.level"].tolist() == rows[["quality.x", "quality.y"]].min(axis=1).tolist()
    least = [min(levels) for levels in expected.values()]
    assert [summary.kept(level) for level in range(1, 5)] == [
        sum(one >= level for one in least) for level in range(1, 5)
    ]
    sources = {identity: source for identity, source, _ in ROWS}
    web = [levels[0] for identity, levels in expected.items() if sources[identity] == "web"]
    assert summary.kept(2, "x", "web") == sum(level >= 2 for level in web)
    assert list(summary.passed) == ["books", "web", "wïki"]
    assert sum(rules["y"][-1] for rules in summary.passed.values()) == sum(Y not in row[2] for row in ROWS)


@pytest.mark.slow
def test_mix_chooses_levels_without_computing(corpus, tmp_path):
    filter(corpus)
    for level, name in enumerate(LEVELS, 1):
        one, other = (str(tmp_path / f"{name}{number}") for number in "12")
        dk.mix(str(corpus), to=one, where=f"quality.level >= {level}", **HERE)
        dk.mix(str(corpus), to=other, where=dk.thresholds(str(corpus), name), **HERE)
        kept = [frame(root)["id"].tolist() for root in (one, other)]
        assert kept[0] == kept[1]
        assert kept[0]
    dk.mix(str(corpus), to=str(tmp_path / "v1"), where="quality.level >= 1 and quality.y >= 3", **HERE)
    expected = [identity for identity, (x, y) in expected_levels(corpus).items() if x >= 1 and y >= 3]
    assert frame(tmp_path / "v1")["id"].tolist() == expected


def test_levels_make_groups_but_are_no_signals_of_themselves(corpus):
    filter(corpus)
    groups = dk.quantiles(str(corpus), [X], by="quality.level", name="by_level", **HERE).quantiles[X]
    assert set(groups) == {"all", "0", "1", "2", "3", "4"}
    assert "quality.level" not in ask(corpus, None, by="none", name="every").quantiles
    levels = ask(corpus, ["quality.y"], by="none", name="levels").quantiles["quality.y"]["all"]
    assert (levels["min"], levels["max"], levels["nulls"]) == (0.0, 4.0, 0)


def test_rows_hold_one_number_and_the_record_holds_the_names(corpus):
    filter(corpus)
    row = json.loads(read_lines(corpus / "attributes/quality/0.jsonl.gz")[0])
    x, y = expected_levels(corpus)[row["id"]]
    assert row["attributes"] == {"quality": x | y << 3}
    record = Journal(str(corpus), "filter").by_file()["attributes/quality/0.jsonl.gz"]
    assert record.info["levels"] == ["quality.level", "quality.x", "quality.y"]
    filter(corpus, format="parquet", overwrite=True)
    table = pq.read_table(corpus / "attributes/quality/0.parquet")
    assert table.schema.names == ["id", "source", "error", "quality"]
    assert table.column("quality")[0].as_py() == x | y << 3


def test_a_rule_without_values_is_named(tmp_path):
    every = [(f"d{n}", "web" if n % 2 else "books", {X: float(n), Y: 1.0}) for n in range(20)]
    some = [(one, source, a if source == "web" else {X: a[X]}) for one, source, a in every]
    root, other = write_dataset(tmp_path / "v0", some), write_dataset(tmp_path / "other", every)
    ask(root, by="source")
    (note,) = filter(root).notes
    assert note.startswith("y has no value in any document of books, so it drops all of them;")
    assert dk.what_if(str(root), **HERE).notes == (note,)
    ask(other, by="source")
    cuts = dk.thresholds(str(other), "regular")
    (note,) = filter(root, [cuts], nulls="keep", name="kept").notes
    assert note == "y has no value in any document of books: it drops none of them"
    ask(root, by="none", name="all")
    assert not filter(root, quantiles="all", name="all").notes, "half of the documents have a value"


def test_more_than_17_rules_take_more_numbers(tmp_path):
    rows = [
        (identity, source, {X: 1.0, **{f"s__t__r{k}": float((number * (k + 3)) % 50) for k in range(19)}})
        for number, (identity, source, _) in enumerate(make_rows(100))
    ]
    root = write_dataset(tmp_path / "v0", rows)
    dk.quantiles(str(root), by="none", **HERE)
    summary = filter(root)
    names = [f"quality.{name}" for name in summary.names]
    assert len(names) == 20
    found = frame(root, "quality.level", *names)
    assert found["quality.level"].tolist() == found[names].min(axis=1).tolist()
    assert set(found["quality.r18"]) == {0.0, 1.0, 2.0, 3.0, 4.0}
    row = json.loads(read_lines(root / "attributes/quality/0.jsonl.gz")[0])
    assert set(row["attributes"]) == {"quality", "quality_2"}


def test_no_document_is_opened_where_attributes_are_proved(proved, monkeypatch):
    expected = filter(proved)
    files = files_of(proved)
    monkeypatch.setattr(DocumentFile, "__iter__", lambda self: pytest.fail("a document was read"))
    assert filter(proved, overwrite=True).passed == expected.passed
    assert files_of(proved) == files
    assert len(frame_without_documents(proved)) == 80


def frame_without_documents(root):
    return dk.read_dataframe(str(root), columns=["quality.level"]).compute()


def test_signals_that_were_made_again_make_the_levels_stale(proved):
    filter(proved)
    dk.tag(str(proved), ["char_length_v1", "whitespace_tokenizer_v1"], overwrite=True, **HERE)
    assert len(frame(proved, "quality.level")) == 80, "the same bytes: nothing has changed"
    path = proved / "attributes/char_length_v1/a.jsonl.gz"
    path.unlink()
    with pytest.raises(
        StaleAttributesError,
        match=r"char_length_v1/a.jsonl.gz, of which it was made, is gone since. Re-run: dolma-dask filter",
    ):
        frame(proved, "quality.level")


def test_levels_of_a_copied_dataset_hold_and_no_attributes_are_hashed_for_that(proved, tmp_path, monkeypatch):
    filter(proved)
    shutil.copytree(proved, tmp_path / "copy", copy_function=shutil.copyfile)
    hashed = []
    monkeypatch.setattr("dolma_dask.reading.catalog.is_same_file", lambda *_: hashed.append(1))
    assert len(frame(tmp_path / "copy", "quality.level")) == 80
    assert not hashed
    monkeypatch.undo()
    dk.tag(str(tmp_path / "copy"), ["gopher_v2"], experiment="char_length_v1", overwrite=True, **HERE)
    with pytest.raises(StaleAttributesError, match="of which it was made, has changed since"):
        frame(tmp_path / "copy", "quality.level")


def test_other_documents_make_the_levels_stale(proved):
    filter(proved)
    lines = read_lines(proved / "documents/a.jsonl.gz")
    write_lines(proved / "documents/a.jsonl.gz", [line.replace("word", "wird") for line in lines])
    with pytest.raises(StaleAttributesError, match="stale"):
        frame(proved, "quality.level")
    with pytest.raises(StageError, match="stale"):
        filter(proved)


def test_levels_of_two_sets_of_thresholds_are_never_side_by_side(corpus):
    filter(corpus)
    ask(corpus, by="none", overwrite=True)
    with (
        failing(Map, at=lambda task: task.shard.startswith("1")),
        pytest.raises(Exception, match="stopped"),
    ):
        filter(corpus)
    with pytest.raises(AlignmentError, match="was not made by one run of `filter` that has ended"):
        frame(corpus, "quality.level")
    assert filter(corpus).done >= 1
    assert len(frame(corpus, "quality.level")) == len(ROWS)


def test_the_same_thresholds_again_do_nothing_and_other_ones_all(corpus):
    assert filter(corpus).done == 3
    files = files_of(corpus)
    again = filter(corpus)
    assert (again.done, again.skipped) == (0, 3)
    assert again.kept(1) > 0
    assert filter(corpus, nulls="keep").done == 3
    assert files_of(corpus) != files
    assert filter(corpus, tails=["x=upper"]).done == 3
    assert filter(corpus).done == 3
    assert files_of(corpus) == files


def test_thresholds_in_files_from_the_loosest_on(corpus):
    for level in ("strict", "strictest"):
        ask(corpus, by="source", level=level)
    paths = [str(corpus / f"quantiles/quantiles.{level}.json") for level in ("strict", "strictest")]
    two = filter(corpus, paths, name="two")
    four = filter(corpus)
    assert [two.kept(1), two.kept(2)] == [four.kept(2), four.kept(4)]
    assert set(frame(corpus, "two.level")["two.level"]) == {0.0, 1.0, 2.0}
    assert filter(corpus, [dk.thresholds(str(corpus), "strict")], name="one").kept(1) == four.kept(2)
    assert filter(corpus, ask(corpus, by="source"), name="of_summary").passed == four.passed
    with pytest.raises(UsageError, match="from the loosest to the strictest"):
        filter(corpus, paths[::-1], name="wrong")
    with pytest.raises(UsageError, match="the one or the other"):
        filter(corpus, paths, quantiles="quantiles")


def test_a_signal_without_value_fails_where_that_is_asked(corpus):
    with pytest.raises(StageError, match=rf"row \d+ has no value of {Y}"):
        filter(corpus, nulls="fail")
    assert filter(corpus, [dk.thresholds(str(corpus)).inside(X)], nulls="fail").kept(0) == len(ROWS)


def test_a_document_that_could_not_be_read_has_no_level(proved):
    lines = read_lines(proved / "documents/a.jsonl.gz")
    write_lines(proved / "documents/a.jsonl.gz", [*lines[:5], "no json", *lines[6:]])
    options = {"on_bad_record": "quarantine"}
    dk.tag(str(proved), ["char_length_v1", "whitespace_tokenizer_v1"], **options, **HERE)
    for format in ("jsonl.gz", "parquet"):
        summary = filter(proved, format=format, overwrite=True, **options)
        assert (summary.exit_status, summary.counts["bad_records"], summary.kept(0)) == (1, 1, 79)
        found = frame(proved, "quality.level", on_bad_record="null")["quality.level"]
        assert np.flatnonzero(found.isna()).tolist() == [5]


def test_only_some_shards(corpus):
    assert filter(corpus, only=["0", "1"]).done == 2
    assert filter(corpus).done == 1
    assert len(frame(corpus, "quality.level")) == len(ROWS)
    plan = filter(corpus, nulls="keep", dry_run=True)
    assert len(plan.planned) == 3


def test_what_is_missing_is_named(corpus):
    with pytest.raises(UsageError, match=r"no file .*quantiles/other.json"):
        filter(corpus, quantiles="other")
    (corpus / "attributes/s/1.jsonl.gz").unlink()
    with pytest.raises(Exception, match=r"1\.jsonl\.gz is missing"):
        filter(corpus)
    with pytest.raises(UsageError, match="thresholds=3 is of type int"):
        filter(corpus, 3)
    write_attributes(corpus / "attributes/s/1.jsonl.gz", ROWS)


def test_the_report_shows_what_each_level_keeps(corpus, plain, tmp_path):
    summary = filter(corpus)
    mixed = dk.mix(str(corpus), to=str(tmp_path / "v1"), where="quality.level >= 2", **HERE)
    told, _ = page_of(mixed.target)
    table = next(table for table in told["results"] if table["title"] == "quality in v0")
    assert table["rows"] == [list(line) for line in summary.lines()]
    assert table["rows"][0] == ["all rules", "all", *(summary.kept(level) for level in range(1, 5)), None]
    assert len(table["rows"]) == 3 * 4, "two signals and both together, in all documents and three sources"
    assert "quality.level" in json.dumps(told["signals"]), "what the rule names has a distribution"


def test_levels_depend_on_the_metadata_also_where_signals_are_unproved(corpus):
    ask(corpus, [X], by="metadata.lang", overwrite=True)
    filter(corpus)
    path = corpus / "documents/1.jsonl.gz"
    lines = read_lines(path)
    write_lines(path, [line.replace('"lang": "en"', '"lang": "de"') for line in lines])
    assert read_lines(path) != lines
    with pytest.raises(StaleAttributesError, match="it depends on metadata"):
        frame(corpus, "quality.level")
    assert filter(corpus).done == 1
    assert len(frame(corpus, "quality.level")) == len(ROWS)


def test_a_set_is_not_replaced_by_its_own_levels(corpus):
    filter(corpus)
    ask(corpus, ["quality.x"], by="none", name="levels")
    with pytest.raises(UsageError, match=r"'quality' would be written and is read for quality\.x"):
        filter(corpus, quantiles="levels")
    assert filter(corpus, quantiles="levels", name="of_levels").kept(0) == len(ROWS)


def test_thresholds_of_no_groups_keep_nothing(corpus):
    nothing = Thresholds.from_json({"by": "source", "bounds": {X: {"all": {"lower": 0}}}})
    assert filter(corpus, [nothing]).passed == {"": {"x": [len(ROWS), 0, 0], "level": [len(ROWS), 0, 0]}}


def test_documents_of_no_group_and_of_the_empty_one_are_counted_together(tmp_path):
    rows = [(f"d{number}", "s", {X: 1.0, **({LANG: ""} if number < 3 else {})}) for number in range(10)]
    root = write_dataset(tmp_path / "v0", rows)
    bounds = {X: {"": {"lower": 0}, "en": {"lower": 0}}}
    cuts = Thresholds.from_json({"by": LANG, "bounds": bounds})
    assert filter(root, [cuts]).passed == {"": {"x": [7, 3, 0], "level": [7, 3, 0]}}
