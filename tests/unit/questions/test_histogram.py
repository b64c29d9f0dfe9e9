"""histogram: the counts are those of numpy on all values, however the shards are cut; what it counts as kept is what mix keeps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import UsageError
from dolma_dask.io import documents as documents_module
from dolma_dask.questions import histogram as module

HERE: Any = {"scheduler": "synchronous", "progress": False}


def write(root: Path, values: list[float | None], cuts: list[int]) -> str:
    """A dataset cut into shards, with a signal and a group for each document."""
    for number, (first, stop) in enumerate(zip([0, *cuts], [*cuts, len(values)], strict=True)):
        rows = [{"id": f"d{row}", "source": "s", "text": "words"} for row in range(first, stop)]
        attributes = [
            {
                "id": f"d{row}",
                "source": "s",
                "attributes": {"own__lang": f"g{row % 10}"}
                | ({} if values[row] is None else {"own__words": [[0, 5, values[row]]]}),
            }
            for row in range(first, stop)
        ]
        for folder, lines in (("documents", rows), ("attributes/own", attributes)):
            path = root / folder / f"{number}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(root)


VALUES: list[float | None] = [
    None if number % 17 == 0 else float(value)
    for number, value in enumerate(np.random.default_rng(1).lognormal(4, 1.2, 500).round(1))
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("histogram") / "v0", VALUES, [100, 350])


NUMBERS = st.one_of(
    st.none(),
    st.integers(-5, 300).map(float),
    st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: round(value, 3)),
)


@settings(max_examples=examples(12))
@given(values=st.lists(NUMBERS, min_size=1, max_size=40), data=st.data())
def test_counts_are_those_of_numpy_for_any_cut(
    tmp_path_factory: pytest.TempPathFactory, values: list[float | None], data: st.DataObject
) -> None:
    known = np.array([value for value in values if value is not None])
    if not len(known):
        values, known = [*values, 1.0], np.array([1.0])
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(values) - 1, 1)), max_size=3)) - {len(values)})
    root = write(tmp_path_factory.mktemp("cut") / "v0", values, cuts)
    log = data.draw(st.sampled_from([None, True, False]))
    signal = dk.histogram(root, "words", where="words >= 10", log=log, **HERE).panels[0]
    # the last bin of numpy holds its upper end, and no value may lie there
    assert signal.counts.tolist() == np.histogram(known, signal.edges)[0].tolist()
    assert signal.edges[-1] > known.max()
    assert signal.kept_counts.tolist() == np.histogram(known[known >= 10], signal.edges)[0].tolist()
    assert (signal.n, signal.nulls) == (len(known), len(values) - len(known))


@pytest.mark.parametrize(
    "where", ["words >= 50 and words < 300", "not words > 80", "own__lang == 'g1' or words > 100"]
)
def test_what_is_kept_is_what_mix_keeps(root: str, tmp_path: Path, where: str) -> None:
    mixed = dk.mix(root, to=str(tmp_path / "v1"), where=where, **HERE)
    figure = dk.histogram(root, "words", where=where, **HERE)
    assert f"{mixed.counts['documents_out']:,} kept" in figure.notes[0]


def test_groups_may_be_numbers(root: str) -> None:
    figure = dk.histogram(root, "words", by="words", **HERE)
    assert figure.panels[0].key == "(no value)"
    assert figure.panels[1].key in {f"{value:g}" for value in VALUES if value is not None}


def test_groups_share_bins_and_the_small_ones_are_together(root: str) -> None:
    figure = dk.histogram(root, "words", by="lang", **HERE)
    assert [panel.key for panel in figure.panels] == [f"g{number}" for number in range(7)] + ["(others)"]
    assert {panel.edges.tobytes() for panel in figure.panels} == {figure.panels[0].edges.tobytes()}
    whole = dk.histogram(root, "words", **HERE).panels[0]
    assert np.array_equal(sum(panel.counts for panel in figure.panels), whole.counts)
    assert "3 groups" in figure.notes[1]


def test_bounds_are_those_of_the_rule(root: str) -> None:
    figure = dk.histogram(root, "words", where="words >= 50 and 300 > words and lang != 'g1'", **HERE)
    assert list(figure.panels[0].threshold) == [(">=", 50.0), ("<", 300.0)]


def test_thresholds_have_their_own_bounds_in_each_group(root: str) -> None:
    cuts = dk.quantiles(root, ["words"], by="lang", level="regular", overwrite=True, **HERE)
    figure = dk.histogram(root, "words", where=cuts, by="lang", **HERE)
    for panel in figure.panels[:-1]:
        assert list(panel.threshold) == [
            (">=", cuts.lower("words", panel.key)),
            ("<=", cuts.upper("words", panel.key)),
        ]
    drawn = cuts.plot("words").panels[0]
    assert drawn.lower.tolist() == [cuts.lower("words", group) for group in drawn.groups]
    table = cuts.quantiles["own__words"]
    assert drawn.median.tolist() == [table[group]["q"]["0.5"] for group in drawn.groups]
    assert dk.thresholds(root).plot().frame().equals(cuts.plot().frame())


def test_no_text_is_read(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dk.histogram(root, "words", **HERE)  # proves once that files without a record line up

    original = documents_module.DocumentFile.__init__
    seen: list[tuple[str, ...]] = []

    def note(self: Any, url: str, columns: tuple[str, ...], *args: Any, **options: Any) -> None:
        seen.append(columns)
        original(self, url, columns, *args, **options)

    monkeypatch.setattr(documents_module.DocumentFile, "__init__", note)
    dk.histogram(root, "words", where="words > 3", by="lang", **HERE)
    assert not any("text" in columns for columns in seen)


def test_pictures_are_written_and_other_names_refused_before_anything_is_read(
    root: str, tmp_path: Path
) -> None:
    dk.histogram(root, "words", to=str(tmp_path / "words.png"), **HERE)
    assert (tmp_path / "words.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UsageError, match="no name of a picture"):
        dk.histogram("nowhere", "words", to="words.gif", **HERE)
    for call in (
        lambda **to: dk.histogram(root, "words", **to, **HERE),
        lambda **to: dk.rule_overlap(root, "words > 3", **to, **HERE),
    ):
        with pytest.raises(UsageError, match="to=3 is of type int"):
            call(to=3)
        with pytest.raises(UsageError, match="lies among the documents or attributes"):
            call(to=f"{root}/attributes/own/words.svg")


def test_values_are_joined_in_parts(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dk.histogram(root, "words", by="lang", **HERE)
    monkeypatch.setattr(module, "AT_ONCE", 7)
    assert dk.histogram(root, "words", by="lang", **HERE).frame().equals(whole.frame())


def test_overlaps_are_those_of_a_loop(root: str) -> None:
    rules = {
        "words >= 50": lambda value: value is not None and value >= 50,
        "words < 300": lambda value: value is not None and value < 300,
        "words != 80": lambda value: value is not None and value != 80,
    }
    frame = dk.rule_overlap(root, " and ".join(rules), **HERE).frame()
    assert frame["condition"].tolist() == list(rules)
    drops = [{row for row, value in enumerate(VALUES) if not holds(value)} for holds in rules.values()]
    assert frame["dropped_documents"].tolist() == [len(rows) for rows in drops]
    alone = [len(rows - set().union(*(other for other in drops if other is not rows))) for rows in drops]
    assert frame["dropped_alone_documents"].tolist() == alone
    for row, mine in enumerate(drops):
        for column, other in enumerate(drops):
            share = frame.iloc[row, 3 + column]
            assert np.isnan(share) if row == column else share == len(mine & other) / len(mine)


def test_one_signal_of_thresholds_is_one_condition(root: str) -> None:
    cuts = dk.quantiles(root, ["words"], by=None, level="regular", name="plain", **HERE)
    frame = dk.rule_overlap(root, cuts, **HERE).frame()
    assert len(frame) == 1
    mixed = sum(1 for v in VALUES if v is not None and cuts.lower("words") <= v <= cuts.upper("words"))
    assert frame["dropped_documents"].tolist() == [len(VALUES) - mixed]


def test_conditions_are_called_as_they_are_written(tmp_path: Path) -> None:
    root = write(tmp_path, [3.0, 5.0], [])
    attributes = tmp_path / "attributes/own/0.jsonl"
    attributes.write_text(attributes.read_text().replace("own__words", "rps_doc_word_count"))
    frame = dk.rule_overlap(root, "number_of_words >= 5 and rps_doc_word_count < 9", **HERE).frame()
    assert frame["condition"].tolist() == ["number_of_words >= 5", "rps_doc_word_count < 9"]
    cuts = dk.quantiles(root, ["number_of_words"], by=None, level="regular", **HERE)
    (called,) = dk.rule_overlap(root, cuts, **HERE).frame()["condition"]
    assert called.startswith("number_of_words >= ")


def test_thresholds_join_with_the_text_of_a_rule(root: str) -> None:
    cuts = dk.quantiles(root, ["words"], by="lang", level="regular", overwrite=True, **HERE).inside()
    text = "words > 60 or lang == 'g1'"
    both = dk.histogram(root, "words", where=cuts & text, **HERE).notes
    assert both == dk.histogram(root, "words", where=f"({cuts}) and ({text})", **HERE).notes


def test_bins_are_spaced_as_a_bool_says(root: str) -> None:
    with pytest.raises(UsageError, match="log='no'; expected True, False or None"):
        dk.histogram(root, "words", log="no", **HERE)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", ["histogram {} words", "rule-overlap {} words>=50"])
def test_commands_print_json(words: str, root: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words.format(root).split(), "--scheduler", "synchronous", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["exit_status"] == 0
    assert found["panels"][0]["columns"]
