"""report --compare: two versions, two runs; signals in the same bins; what cannot be compared."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import dolma_dask as dk
from dolma_dask.cli import main
from dolma_dask.errors import UsageError
from dolma_dask.figures.histogram import Histogram
from dolma_dask.pages import comparison_page
from dolma_dask.pages.compare import distance, signal_change
from dolma_dask.pages.model import ComparisonPart, ReportData, SignalChange
from dolma_dask.testing.tokenizer import train_tokenizer

from .conftest import write_lines
from .report_pages import LENGTH, QUIET, lines_of


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Documents, and two selections of them."""
    root = tmp_path_factory.mktemp("versions")
    write_lines(root / "v0/documents/a.jsonl.gz", lines_of(range(60)))
    dk.tag(str(root / "v0"), ["char_length_v1"], **QUIET)
    for name, where in (("long", "length > 30"), ("odd", "length > 30 and source == 'odd'")):
        dk.mix(str(root / "v0"), to=str(root / name), where=where, **QUIET)
    return root


def compared(world: Path, name: str, other: str, **options):
    to = world / f"{name}-{other}.html"
    summary = dk.report(str(world / name), compare=str(world / other), to=str(to), **{**QUIET, **options})
    return json.loads(to.with_suffix(".json").read_text()), to.read_text(), summary


def test_a_version_beside_the_one_that_it_was_selected_from(world):
    content, page, summary = compared(world, "long", "v0")
    lengths = [len(json.loads(line)["text"]) for line in lines_of(range(60))]
    kept = [length for length in lengths if length > 30]
    assert content["format"] == "dolma_dask.comparison"
    assert (content["before"]["dataset"], content["after"]["dataset"]) == ("v0", "long")
    (signal,) = content["signals"]
    assert (signal["before"]["n"], signal["after"]["n"]) == (60, len(kept))
    assert signal["before"]["edges"] == signal["after"]["edges"]
    assert signal["after"]["counts"] == np.histogram(kept, signal["after"]["edges"])[0].tolist()
    assert signal["distance"] == pytest.approx(1 - len(kept) / 60), "all that are short are gone"
    assert {"verb": "mix", "option": "", "before": "did not run", "after": "ran"} in content["options"]
    assert f"long has {len(kept)} documents, {60 - len(kept)} fewer than v0" in page
    assert "It has " in page
    assert "Copies are those" not in page
    assert str(world) not in page
    assert summary.counts["signals"] == 1
    assert "<iframe" not in page
    assert len(page) < 60_000


def test_two_runs_with_other_rules_and_the_same_command_twice(world):
    content, _, summary = compared(world, "odd", "long")
    assert summary.done
    (option,) = content["options"]
    assert (option["verb"], option["option"]) == ("mix", "where")
    assert [row["rule"] for row in content["after"]["rules"]] == ["length > 30", "source == 'odd'"]
    assert compared(world, "odd", "long")[2].done == 0, "nothing has changed"
    assert compared(world, "odd", "v0")[2].done, "that is another page"


def test_signals_of_its_own_come_first_and_those_of_one_side_are_said(world):
    dk.tag(str(world / "odd"), ["whitespace_tokenizer_v1"], **QUIET)
    content, page, _ = compared(world, "odd", "v0")
    assert content["signals"] == []
    assert content["only_before"] == [LENGTH]
    assert len(content["only_after"]) == 1
    assert f"Only v0 has 1 signal: {LENGTH}." in page


def test_documents_are_those_that_were_written_where_more_than_a_rule_decided(world):
    for name, options in (
        ("sampled", {"sample": 0.5}),
        ("both", {"sample": 0.5, "where": f"{LENGTH} > 30"}),
        ("least", {"min_text_length": 50}),
    ):
        written = dk.mix(str(world / "v0"), to=str(world / name), **options, **QUIET).counts["documents_out"]
        assert 0 < written < 60
        content, page, _ = compared(world, name, "v0")
        assert sum(row["documents"] for row in content["after"]["sources"]) == written
        assert f"{name} has {written} documents, {60 - written} fewer than v0" in page
        assert content["signals"] == [], "those of the documents before are of others too"
        assert f"more than the rule of {name} decided" in page


def test_token_shards_belong_to_one_of_both(world, tmp_path):
    train_tokenizer(lines_of(range(60)), tmp_path / "t.json", 300)
    folders = [str(tmp_path / name) for name in ("v0", "long")]
    made = [
        dk.ragged(str(world / Path(folder).name), folder, tokenizer=str(tmp_path / "t.json"), **QUIET).counts["tokens"]
        for folder in folders
    ]  # fmt: skip
    content, page, _ = compared(world, "long", "v0", tokens=folders)
    assert [content[side]["stages"][-1]["tokens"] for side in ("before", "after")] == made
    assert f"{made[0]:,}" in page
    with pytest.raises(UsageError, match="expected token shards of"):
        compared(world, "long", "odd", tokens=folders)


def test_copies_that_a_rule_has_dropped_are_no_copies_in_the_version(world):
    dk.dedupe(str(world / "v0"), **QUIET)
    dk.mix(str(world / "v0"), to=str(world / "unique"), where="exact is None", **QUIET)
    _, page, _ = compared(world, "unique", "v0")
    assert "Copies marked by exact" in page
    assert "marked on the way to each version, whether or not a rule has dropped them since" in page


def test_versions_without_a_signal_in_common_say_so():
    side = ReportData("t", "v0", "c", "v")
    data = ComparisonPart(
        "t", side, replace(side, dataset="v1"), only_before=["a"], only_after=[f"s{n}" for n in range(7)]
    )
    lead = " ".join(comparison_page.chapters(data)["signals"].lead)
    assert lead.startswith("No signal is in both, so no values can be compared. Only v0 has 1 signal: a.")
    assert lead.endswith("s4 and 2 more.")


def test_a_dataset_is_not_compared_with_itself(world):
    with pytest.raises(UsageError, match="the dataset itself"):
        compared(world, "v0", "v0")


def test_on_the_command_line(world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    assert main(["report", "long", "--compare", "v0", "--to", "cli.html", "--no-progress"]) == 0
    assert "documents before" in capsys.readouterr().out


def signal(key: str, before: list[float], after: list[float]) -> SignalChange:
    return signal_change(key, Histogram.of(before), Histogram.of(after))


def test_missing_and_infinite_values_are_said():
    nan, inf = float("nan"), float("inf")
    changes = [
        signal("still", [1, 2, nan], [1, 1, 2, 2, nan, nan]),
        signal("lost", [1, 2], [1, 2, nan, nan]),
        signal("infinite", [1, inf], [1, 1, inf]),
        signal("empty", [1, 2], [nan]),
        signal("nothing", [nan], [nan]),
        signal("gone", [1], []),
    ]
    assert [round(change.change, 3) for change in changes] == [0, 0.5, 0.167, 1, 0, 1]
    side = ReportData("t", "v0", "c", "v")
    data = ComparisonPart("t", side, replace(side, dataset="v1"), changes)
    words = " ".join(comparison_page.chapters(data)["signals"].lead)
    assert "6 signals of both can be compared; 2 did not change." in words
    assert (
        "The share of missing values, which are no part of it, changed in 2 signals, most in empty: "
        "0 of 2 documents in v0 (0 %), 1 of 1 document in v1 (100 %)."
    ) in words
    assert "infinite values, which are no part of it, changed in 1 signal, most in infinite: 1 of 2" in words
    assert "3 signals have no finite value on one side or both, and so no distance." in words
    columns = [column.heading for column in comparison_page.signal_table(data).columns]
    assert columns[-4:] == ["Missing, v0", "Missing, v1", "Infinite, v0", "Infinite, v1"]
    assert "0 missing, now 2." in comparison_page.render(data)
    still = replace(data, signals=changes[:1])
    assert "The share of missing values, which are no part of it, is the same in each." in " ".join(
        comparison_page.chapters(still)["signals"].lead
    )
    assert "issing" not in " ".join(
        comparison_page.chapters(replace(data, signals=[signal("k", [1], [1])]))["signals"].lead
    )


def test_names_from_right_to_left_move_no_word_of_a_comparison():
    name = "\u05d0 7"
    before, after = ReportData("t", name, "c", "v"), ReportData("t", f"{name}b", "c", "v")
    data = ComparisonPart("t", before, after, [signal(name, [1], [2])], only_before=[name, "b"])
    for chapter in comparison_page.chapters(data).values():
        for sentence in chapter.lead:
            assert sentence.count("\u05d0") == sentence.count("\u2068\u05d0") == sentence.count("\u2069")


numbers = st.lists(st.integers(-8000, 8000), min_size=1, max_size=40)


@given(numbers, numbers)
def test_the_distance_is_that_of_kolmogorov_and_smirnov(before, after):
    values = sorted({*before, *after})
    shares = [[sum(one <= value for one in side) / len(side) for value in values] for side in (before, after)]
    expected = max(abs(a - b) for a, b in zip(*shares, strict=True))
    assert distance(Histogram.of(before), Histogram.of(after)) == pytest.approx(expected)
    assert distance(Histogram.of(before), Histogram()) is None


def test_the_page_escapes_what_it_shows(world):
    content, page, _ = compared(world, "long", "v0", title="<script>alert(1)</script>")
    assert "<script>alert" not in page
    assert content["format_version"] == comparison_page.FORMAT_VERSION
