"""Names of metrics: columns come first, signals that are missing and languages that are unknown are named."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import dolma_dask as dk
from dolma_dask.errors import ExpressionError, StageError, UsageError
from dolma_dask.formats.json.lines import SPAN
from dolma_dask.reading.columns import find_columns
from dolma_dask.rules.metrics import METRICS, find_metric, metric_of
from dolma_dask.rules.values import Name
from dolma_dask.rules.where import parse

WORDS, ENDS = "rps_lines_num_words", "rps_lines_ending_with_terminal_punctution_mark"
HERE = {"scheduler": "synchronous", "progress": False}


def lines(*scores: list[float]) -> pa.Array:
    rows = [[{"start": at, "end": at + 1, "score": score} for at, score in enumerate(row)] for row in scores]
    return pa.array(rows, pa.list_(SPAN))


def test_a_column_of_the_name_is_no_metric():
    assert find_metric("perplexity", ["perplexity"]) is None
    assert find_metric("perplexity", ["a__b__perplexity"]) is None
    metric = find_metric("perplexity", ["a__b__ccnet_perplexity"])
    assert metric is not None
    assert metric.short == Name("a__b__ccnet_perplexity")
    assert find_metric("nothing", ["ccnet_perplexity"]) is None


def test_rules_of_metrics_are_spelled_by_their_names():
    known = [WORDS, "rps_doc_word_count"]
    written = parse("words_per_line_mean >= 2 and number_of_words > 3")
    metrics = {name: metric for name in written.names if (metric := find_metric(name, known))}
    rule = written.substituted({name: metric.short for name, metric in metrics.items()})
    assert str(rule) == "words_per_line_mean >= 2 and rps_doc_word_count > 3"
    assert rule.names == {WORDS, "rps_doc_word_count"}
    assert rule.lists == {WORDS}
    columns = {WORDS: lines([1, 2], [4], []), "rps_doc_word_count": pa.array([9.0, 9.0, 9.0])}
    assert rule.mask(columns).to_pylist() == [False, True, False]


def test_missing_and_unclear_signals_are_named():
    with pytest.raises(
        ExpressionError, match=r"words_per_line_mean, and rps_lines_num_words is missing.*dolma-dask tag"
    ):
        find_metric("words_per_line_mean", ["ccnet_nlines"])
    with pytest.raises(ExpressionError, match="short for several columns: a__rps_doc_word_count, b__rps"):
        find_metric("number_of_words", ["b__rps_doc_word_count", "a__rps_doc_word_count"])


def short_lines(name: str, language: str) -> list[float | None]:
    columns = {
        WORDS: lines([19, 20], [5]),
        "ccnet_nlines": pa.array([2.0, 1.0]),
        "metadata.language": pa.array([language, None]),
    }
    metric = find_metric(name, list(columns))
    assert metric is not None
    return metric.number(columns).to_pylist()


def test_the_length_of_words_of_a_language_can_be_given():
    assert short_lines("short_line_ratio", "en") == [0.5, None]
    with pytest.raises(
        UsageError, match=r"not known for .*metadata.language 'nl'.*short_line_ratio\(nl=5.2\)"
    ):
        short_lines("short_line_ratio", "nl")
    assert short_lines("short_line_ratio(nl=5.2)", "nl") == [0.5, None]
    assert short_lines("short_line_ratio(nl=4, pl=6)", "nl") == [1.0, None]
    for wrong in ("nl", "nl=x", "nl=0", "=5", "nl=nan"):
        with pytest.raises(UsageError, match="expected LANGUAGE=LENGTH"):
            metric_of(f"short_line_ratio({wrong})")


@pytest.fixture
def signals(tmp_path: Path) -> Path:
    """Three documents with signals, one of them without lines."""
    root = tmp_path / "v0"
    (root / "documents").mkdir(parents=True)
    (root / "attributes/rps").mkdir(parents=True)
    texts = ["one two\nthree.\n", "", "four five six"]
    scores = [([2, 1], [0, 1]), ([], []), ([3], [0])]
    with (
        (root / "documents/a.jsonl").open("w") as documents,
        (root / "attributes/rps/a.jsonl").open("w") as attributes,
    ):
        for row, (text, (words, marks)) in enumerate(zip(texts, scores, strict=True)):
            own = {"id": f"{row}", "source": "s"}
            documents.write(json.dumps({**own, "text": text, "metadata": {"language": "en"}}) + "\n")
            values = {WORDS: words, ENDS: marks}
            spans = {
                name: [[at, at + 1, score] for at, score in enumerate(of)] for name, of in values.items()
            }
            spans["ccnet_nlines"] = [[0, len(text), float(len(words))]]
            attributes.write(json.dumps({**own, "attributes": spans}) + "\n")
    return root


@pytest.mark.slow
def test_metrics_stand_wherever_signals_are_named(signals: Path, tmp_path: Path):
    found = dk.quantiles(
        str(signals), ["words_per_line_mean", "short_line_ratio", "lines_end_in_punct"], by="none", **HERE
    )
    assert {name: (groups["all"]["n"], groups["all"]["nulls"], groups["all"]["max"]) for name, groups in found.quantiles.items()} == {
        "words_per_line_mean": (2, 1, 3.0), "short_line_ratio": (2, 1, 1.0), "lines_end_in_punct": (2, 1, 0.5),
    }  # fmt: skip
    where = "lines_end_in_punct < 0.5 or words_per_line_mean < 2 and short_line_ratio == 1.0"
    kept = dk.mix(str(signals), to=str(tmp_path / "v1"), where=where, **HERE)
    assert kept.counts["documents_out"] == 2
    assert [rule.short or rule.rule for rule in kept.rules] == [where]
    columns = find_columns(dk.open_dataset(str(signals)), ["id", "words_per_line_mean"])
    (shard,) = columns.dataset.shards
    assert [block.batch.to_pydict() for block in columns.work(shard).open()] == [
        {"id": ["0", "1", "2"], "words_per_line_mean": [1.5, None, 3.0]}
    ]


def test_dataframes_and_bags_have_metrics(signals: Path):
    names = ["words_per_line_mean", "short_line_ratio"]
    expected = [["0", 1.5, 1.0], ["1", None, None], ["2", 3.0, 1.0]]
    frame = dk.read_dataframe(str(signals), ["id", *names, "ccnet_nlines"])
    found = frame.compute(scheduler="synchronous")
    assert (
        found[["id", *names]].astype(object).where(found[["id", *names]].notna(), None).values.tolist()
        == expected
    )
    assert frame["short_line_ratio"].sum().compute(scheduler="synchronous") == 2.0
    assert dk.read_dataframe(str(signals), [names[0]], ["rps"]).columns[0] == names[0]
    rows = dk.read_bag(str(signals), ["id", *names]).compute(scheduler="synchronous")
    assert [list(row.values()) for row in rows] == expected
    with pytest.raises(ExpressionError, match="rps_doc_word_count is missing"):
        dk.read_dataframe(str(signals), ["number_of_words"])


def test_a_metric_without_its_signals_is_refused_before_a_shard_is_read(signals: Path, tmp_path: Path):
    for call in (
        lambda: dk.quantiles(str(signals), ["perplexity"], **HERE),
        lambda: dk.mix(str(signals), to=str(tmp_path / "v1"), where="perplexity < 3", **HERE),
    ):
        with pytest.raises(ExpressionError, match="ccnet_perplexity is missing"):
            call()


def test_lines_by_themselves_are_no_signal(signals: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="has many spans per document"):
        dk.mix(str(signals), to=str(tmp_path / "v1"), where=f"{WORDS} > 2", **HERE)
    with pytest.raises(ExpressionError, match="cannot compare"):
        dk.mix(
            str(signals), to=str(tmp_path / "v1"), where=f"{WORDS} > 2 and words_per_line_mean > 2", **HERE
        )


def test_every_metric_has_a_tail():
    from dolma_dask.rules.tails import KNOWN_TAILS, tails_of

    assert set(METRICS) <= set(KNOWN_TAILS)
    assert tails_of(["short_line_ratio(nl=5.2)"], None) == {"short_line_ratio(nl=5.2)": "upper"}


def test_an_unknown_language_fails_its_shard(signals: Path):
    path = signals / "documents/a.jsonl"
    path.write_text(path.read_text().replace('"en"', '"nl"'))
    with pytest.raises((StageError, UsageError), match="short_line_ratio"):
        dk.quantiles(str(signals), ["short_line_ratio"], **HERE)
