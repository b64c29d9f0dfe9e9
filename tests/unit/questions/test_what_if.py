"""what_if: counts are those of a plain loop over all rows, for any scheduler; only attributes are read."""

import json
import math
from collections import Counter
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.engine import fold
from dolma_dask.errors import StageError, UsageError
from dolma_dask.io import documents as documents_module
from dolma_dask.questions.what_if import levels, sums, texts
from dolma_dask.questions.what_if.answer import rounded
from dolma_dask.questions.what_if.page import page_data
from dolma_dask.rules.strictness import LEVELS
from dolma_dask.rules.thresholds import Thresholds

HERE: Any = {"scheduler": "synchronous", "progress": False}
SIGNALS = ["words", "ratio", "mark"]
GROUPS = ["en", "de", "fr", None]


def row_of(number: int) -> dict[str, Any]:
    """A document with its signals; some lack one, some the group."""
    draw = np.random.default_rng(number)
    text = "wörd " * int(draw.integers(1, 60))
    signals = {
        "words": float(len(text.split())),
        "ratio": round(float(draw.normal()), 3),
        "mark": float(draw.integers(0, 4)),
    }
    if number % 11 == 0:
        del signals["ratio"]
    group = GROUPS[int(draw.integers(0, 40)) % 3 if number % 29 else 3]
    return {"id": f"d{number}", "text": text, "group": group, "signals": signals}


ROWS = [row_of(number) for number in range(400)]


def write(root: Path, rows: list[dict[str, Any]], shards: int = 4) -> str:
    """A dataset whose group and signals are attributes."""
    raw = root / "raw"
    raw.mkdir(parents=True)
    for number in range(shards):
        part = rows[number::shards]
        lines = [json.dumps({"id": row["id"], "text": row["text"]}) + "\n" for row in part]
        (raw / f"{number}.jsonl").write_text("".join(lines))
    dk.convert(str(raw), to=str(root / "v0"), source="s", **HERE)
    for number in range(shards):
        path = root / f"v0/attributes/own/{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(attributes(row)) + "\n" for row in rows[number::shards]))
    return str(root / "v0")


def attributes(row: dict[str, Any]) -> dict[str, Any]:
    length = len(row["text"])
    keys = {f"own__{name}": [[0, length, value]] for name, value in row["signals"].items()}
    keys["own__length"] = [[0, length, length]]
    if row["group"] is not None:
        keys["own__lang"] = row["group"]
    return {"id": row["id"], "source": "s", "attributes": keys}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = write(tmp_path_factory.mktemp("what_if"), ROWS)
    dk.quantiles(root, SIGNALS, by="lang", level="regular", tails=["words=lower", "mark=upper"], **HERE)
    dk.quantiles(root, SIGNALS, by=None, name="plain", **HERE)
    return root


def fails(row: dict[str, Any], cuts: Any, signal: str) -> bool:
    """Return whether a rule drops a row: the definition."""
    value, group = row["signals"].get(signal), row["group"] if cuts.by else "all"
    if group is None or value is None:
        return group is None or cuts.nulls != "keep"
    lower, upper = cuts.lower(signal, group), cuts.upper(signal, group)
    return (lower is not None and value < lower) or (upper is not None and value > upper)


def oracle(root: str, name: str, **options: Any) -> dict[str, Counter[Any]]:
    """All counts from a loop over the rows."""
    levels = {level: dk.thresholds(root, level, name=name, **options) for level in LEVELS}
    found: dict[str, Counter[Any]] = {
        key: Counter() for key in ("total", "kept", "alone", "only", "stricter", "missing", "both")
    }
    for row in ROWS:
        group = (row["group"] or "(no thresholds)") if levels["regular"].by else "all"
        dropped = {
            level: [signal for signal in SIGNALS if fails(row, cuts, signal)]
            for level, cuts in levels.items()
        }
        for part in {"all", group}:
            found["total"][part] += 1
            for level, rules in dropped.items():
                found["kept"][level, part] += not rules
            for signal in SIGNALS:
                found["missing"][signal, part] += row["signals"].get(signal) is None
            found["alone"].update((signal, part) for signal in dropped["regular"])
            found["both"].update((one, two, part) for one in dropped["regular"] for two in dropped["regular"])
            if len(dropped["regular"]) == 1:
                found["only"][dropped["regular"][0], part] += 1
            if not dropped["regular"]:
                found["stricter"].update((signal, part) for signal in dropped["strict"])
    return found


TAILS = {"words": "lower", "mark": "upper"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("quantiles", {"tails": TAILS}),
        ("plain", {}),
        ("quantiles", {"nulls": "keep"}),
        ("plain", {"nulls": "keep"}),
    ],
)
def test_counts_are_those_of_a_loop_over_all_rows(root: str, name: str, options: dict[str, Any]) -> None:
    expected = oracle(root, name, **options)
    answer = dk.what_if(root, dk.thresholds(root, name=name, **options), name=name, **HERE)
    assert {row.group: row.documents.documents for row in answer.groups} == expected["total"]
    assert {row.group: row.kept.documents for row in answer.groups} == {
        row.group: expected["kept"]["regular", row.group] for row in answer.groups
    }
    assert len(answer.rules) == len(SIGNALS) * len(answer.groups)
    for row in answer.rules:
        key = row.rule, row.group
        assert (row.alone.documents, row.only.documents) == (expected["alone"][key], expected["only"][key])
        assert row.missing == expected["missing"][key]
        assert (row.stricter.documents if row.stricter else 0) == expected["stricter"][key]
    assert {(row.level, row.group): row.kept.documents for row in answer.levels} == {
        (level, group): expected["kept"][level, group] for level in LEVELS for group in expected["total"]
    }
    names = answer.rule_names
    assert names == SIGNALS
    for group, matrix in answer.overlap.items():
        for one, line in zip(names, matrix, strict=True):
            assert list(line) == [expected["both"][one, two, group] for two in names]
    kept = expected["kept"]
    assert answer.stricter is not None
    assert answer.stricter.documents == kept["regular", "all"] - kept["strict", "all"]


def test_levels_of_single_groups_and_signals(root: str) -> None:
    level = ["strict", "de=regular", "en.words=strictest"]
    cuts = dk.thresholds(root, level)
    answer = dk.what_if(root, " ".join(level), **HERE)
    assert answer.level == "strict de=regular en.words=strictest"
    following = {"fr": "even_stricter", "de": "strict", "en": "even_stricter"}
    for row in answer.rules:
        if row.group in following:
            rows = [one for one in ROWS if one["group"] == row.group]
            kept = [one for one in rows if not any(fails(one, cuts, signal) for signal in SIGNALS)]
            assert row.alone.documents == sum(fails(one, cuts, row.rule) for one in rows)
            level_of = None if (row.group, row.rule) == ("en", "words") else following[row.group]
            assert row.stricter_level == level_of
            harsher = (
                0
                if level_of is None
                else sum(fails(one, dk.thresholds(root, level_of), row.rule) for one in kept)
            )
            assert (row.stricter.documents if row.stricter else 0) == harsher
    assert len(page_data(answer)["levels"]) == 4


def test_groups_by_two_columns(root: str) -> None:
    cuts = {
        "by": ["lang", "source"],
        "bounds": {"words": {f"{name}/s": {"lower": 20} for name in ("en", "de")}},
    }
    answer = dk.what_if(root, Thresholds.from_json(cuts), name="none", **HERE)
    short = Counter(row["group"] for row in ROWS if row["signals"]["words"] < 20)
    found = {row.group: row.alone.documents for row in answer.rules}
    every = Counter(row["group"] for row in ROWS)
    others = every["fr"] + every[None]
    assert found == {
        "all": others + short["en"] + short["de"],
        "(no thresholds)": others,
        "de/s": short["de"],
        "en/s": short["en"],
    }


@pytest.mark.slow
def test_levels_files_thresholds_and_summaries_are_the_same_question(root: str, tmp_path: Path) -> None:
    expected = dk.what_if(root, dk.thresholds(root, "strict"), **HERE).to_json()
    dk.quantiles(root, SIGNALS, by="lang", level="strict", **HERE)
    summary = dk.quantiles(root, SIGNALS, by="lang", level="strict", **HERE)
    for level in LEVELS:
        path = tmp_path / f"thresholds_{level}.json"
        path.write_text(json.dumps(dk.thresholds(root, level).to_json()))
    file = f"{root}/quantiles/quantiles.strict.json"
    for thresholds in ("strict", file, summary, str(tmp_path / "thresholds_strict.json")):
        assert dk.what_if(root, thresholds, **HERE).to_json() == expected
    alone = tmp_path / "mine.json"
    alone.write_text(json.dumps(dk.thresholds(root, "strict").to_json()))
    assert dk.what_if(root, str(alone), **HERE).to_json() == expected


@pytest.mark.slow
def test_the_same_for_any_number_of_workers(root: str, tmp_path: Path) -> None:
    pages = []
    for number, how in enumerate(({"scheduler": "synchronous"}, {"scheduler": "threads", "workers": 3}, {"scheduler": "processes", "workers": 2})):  # fmt: skip
        to = str(tmp_path / f"{number}.html")
        answer = dk.what_if(root, "regular", to=to, progress=False, **how)
        pages.append((Path(to).read_bytes(), {**answer.to_json(), "page": None}))
    assert pages[0] == pages[1] == pages[2]


@pytest.mark.parametrize("tasks", [1, 2, 256])
def test_sums_are_the_same_in_any_order(root: str, monkeypatch: pytest.MonkeyPatch, tasks: int) -> None:
    monkeypatch.setattr(sums, "SAMPLE_ROWS", 60)
    expected = page_data(dk.what_if(root, "regular", **HERE))

    def backwards(stage: Any, tasks: Any, options: Any, add: Any) -> None:
        for task in reversed(tasks):
            add(stage.run_shard(task))

    monkeypatch.setattr(fold, "MAX_TASKS", tasks)
    monkeypatch.setattr(fold, "gather", backwards)
    assert page_data(dk.what_if(root, "regular", **HERE)) == expected


def test_bins_stay_few_however_many_are_added(root: str) -> None:
    bins = dk.what_if(root, "regular", **HERE).counts.sums.bins
    total = reduce(add, [bins] * 600)
    assert (total.dense() == 600 * bins.dense()).all()
    assert len(total.parts) < 600


def test_documents_stay_closed_for_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path, ROWS[:40], 2)
    dk.tag(root, ["gopher_v2", "char_length_v1"], **HERE)
    dk.quantiles(root, ["word_count", "median_word_length"], by=None, **HERE)
    with monkeypatch.context() as patch:
        patch.setattr(
            documents_module.DocumentFile, "__iter__", lambda self: pytest.fail("a document was read")
        )
        answer = dk.what_if(root, "regular", **HERE)
    assert answer.groups[0].documents.documents == 40
    assert answer.examples
    text = sum(len(row["text"].encode()) for row in ROWS[:40])
    assert answer.groups[0].documents.bytes == text
    assert answer.groups[0].documents.tokens == round(text * texts.TOKENS_PER_BYTE)
    assert "length x 1.2," in answer.measure


@pytest.mark.parametrize("taggers", [["gopher_v2"], ["gopher_v2", "char_length_v1"]])
def test_a_rule_with_other_conditions_counts_bytes_of_text(tmp_path: Path, taggers: list[str]) -> None:
    rows = [row_of(number) | {"text": "letters" * (number + 1)} for number in range(40)]
    root = write(tmp_path, rows, 2)
    dk.tag(root, taggers, **HERE)
    answer = dk.what_if(root, where="character_count >= 30 and lang == 'de'", **HERE)
    held = [row for row in rows if row["group"] == "de"]
    assert 0 < len(held) < len(rows)
    assert answer.groups[0].documents.bytes == sum(len(row["text"]) for row in held)


def test_words_are_no_bytes_where_no_verb_has_counted_the_text(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "text_bytes_of", lambda dataset: {})
    answer = dk.what_if(root, "regular", name="plain", length="words", **HERE)
    words = sum(row["signals"]["words"] for row in ROWS)
    assert answer.groups[0].documents.bytes == words  # a column of another name is taken as it is
    per_word = texts.measure_of("own__word_count", np.zeros((2, 2), np.int64), 0.25, "").per_unit
    assert per_word.tolist() == [texts.BYTES_PER_WORD]


def test_documents_beside_the_bounds(root: str) -> None:
    answer = dk.what_if(root, "regular", examples=3, **HERE)
    cuts = dk.thresholds(root, "regular", tails=TAILS)
    known = {row["id"]: row for row in ROWS}
    order = {row["id"]: (number % 4, number // 4) for number, row in enumerate(ROWS)}
    assert {row.side for row in answer.examples} == {"inside", "outside"}
    for signal in SIGNALS:
        for group in ("en", "de", "fr"):
            for bound, end in (("lower", cuts.lower), ("upper", cuts.upper)):
                limit = end(signal, group)
                for side in ("inside", "outside"):
                    shown = [row for row in answer.examples if (row.rule, row.group, row.bound, row.side) == (signal, group, bound, side)]  # fmt: skip
                    fit = [
                        row
                        for row in ROWS
                        if limit is not None and row["group"] == group and row["signals"].get(signal) is not None
                        and [name for name in SIGNALS if fails(row, cuts, name)] == ([signal] if side == "outside" else [])
                        and (side == "inside" or (row["signals"][signal] < limit if bound == "lower" else row["signals"][signal] > limit))
                    ]  # fmt: skip
                    fit.sort(key=lambda row: (abs(row["signals"][signal] - limit), order[row["id"]]))
                    assert [row.id for row in shown] == [row["id"] for row in fit[:3]]
                    for row in shown:
                        assert (row.value, row.limit) == (known[row.id]["signals"][signal], limit)
                        assert row.excerpt == known[row.id]["text"][:400]
    assert not any(row.excerpt for row in dk.what_if(root, "regular", **HERE).examples)


def test_the_sample_is_that_of_the_seed(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "SAMPLE_ROWS", 60)
    answer = dk.what_if(root, "regular", seed=3, **HERE)
    sample = answer.counts.sums.sample.settled().rows
    assert len(sample) == 60
    groups = answer.counts.bounds.groups
    for code in (1, 2, 3):
        hashes = sorted(
            xxhash.xxh64(row["id"].encode(), 3).intdigest() for row in ROWS if row["group"] == groups[code]
        )
        assert sample["hash"][sample["group"] == code].tolist() == hashes[:20]


def test_cuts_are_exact(root: str) -> None:
    data = page_data(dk.what_if(root, "regular", **HERE))
    rows = {name: [row for row in ROWS if row["group"] == name] for name in ("en", "de", "fr")}
    for group in data["groups"]:
        own = rows[group["name"]]
        for signal, rule in zip(SIGNALS, group["rules"], strict=True):
            values = [row["signals"][signal] for row in own if signal in row["signals"]]
            assert rule["whole"][0] == sum(rule["bars"]) == len(values)
            assert rule["missing"][0] == len(own) - len(values)
            assert rule["cuts"] == sorted(rule["cuts"])
            assert [left[0] for left in rule["left"]] == [
                sum(value < cut for value in values) for cut in rule["cuts"]
            ]


def test_hostile_thresholds_and_arguments(root: str, tmp_path: Path) -> None:
    for words, message in (
        (("harsh",), "level='harsh' is unknown"),
        (("regular.json",), "there is no file"),
        ((7,), "expected a level"),
    ):
        with pytest.raises(UsageError, match=message):
            dk.what_if(root, *words, **HERE)
    for options, message in (
        ({"to": "page.txt"}, r"ends in \.html"),
        ({"to": 3}, "to=3 is of type int"),
        ({"to": f"{root}/documents/page.html"}, "lies among the documents or attributes"),
        ({"examples": -1}, "examples=-1"),
        ({"tokens_per_byte": 0}, "tokens_per_byte=0"),
        ({"tokens_per_byte": 1, "tokenizer": "x"}, "one of them"),
        ({"seed": -1}, "seed=-1"),
    ):
        with pytest.raises(UsageError, match=message):
            dk.what_if(root, "regular", **options, **HERE)
    dk.what_if(root, "regular", to=tmp_path / "path.html", **HERE)  # type: ignore[arg-type]
    other = tmp_path / "page.html"
    other.write_text("mine")
    with pytest.raises(UsageError, match="no page of what-if"):
        dk.what_if(root, "regular", to=str(other), **HERE)


def test_without_quantiles_stricter_levels_are_not_known(root: str, tmp_path: Path) -> None:
    cuts = {"bounds": {"words": {"all": {"lower": 10}}, "ratio": {"all": {"upper": 1.5}}}}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(cuts))
    answer = dk.what_if(root, str(path), name="none", tokens_per_byte=0.5, length="length", **HERE)
    dropped = [row for row in ROWS if row["signals"]["words"] < 10]
    assert answer.of_group("all")[0].alone.documents == len(dropped)
    assert (answer.levels, answer.stricter) == ((), None)
    assert "not known" in str(answer)
    every = answer.groups[0].documents
    assert every.tokens == pytest.approx(sum(len(row["text"].encode()) for row in ROWS) / 2, abs=1)


def test_an_empty_text_is_one_that_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"id": f"d{number}", "text": "w " * number, "group": None, "signals": {"words": float(number)}}
        for number in range(6)
    ]
    root = write(tmp_path, rows, shards=3)
    notes = dk.what_if(root, where="words >= 2", examples=3, **HERE).notes
    assert not any("were not read" in note for note in notes), notes
    monkeypatch.setattr(texts, "MAX_SHARDS", 2)
    notes = dk.what_if(root, where="words >= 2", examples=3, **HERE).notes
    assert any("beside the bounds were not read" in note for note in notes), notes


def test_of_a_single_rule_nothing_is_said_beside_others(root: str) -> None:
    dk.quantiles(root, ["words"], name="one", level="regular", **HERE)
    shown = str(dk.what_if(root, "regular", name="one", **HERE))
    assert "is the only rule" in shown
    assert "The next stricter level (strict) would keep" in shown
    assert "Of the rules" not in shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (1234, "1,230"),
        (999_499, "999,000"),
        (999_600, "1 million"),
        (999_600_000, "1 billion"),
    ],
)
def test_estimates_are_as_exact_as_they_are(count: int, shown: str) -> None:
    assert rounded(count) == shown


def test_tables_json_and_a_page_on_the_command_line(root: str, tmp_path: Path, capsys: Any) -> None:
    here = ["--scheduler", "synchronous", "--no-progress"]
    page = str(tmp_path / "page.html")
    assert cli.main(["what-if", root, "regular", "--to", page, *here]) == 0
    shown = capsys.readouterr().out
    assert "is the rule that costs most" in shown
    assert "next stricter level (strict)" in shown
    assert " inside " not in shown, "the page shows documents beside the bounds"
    assert Path(page).stat().st_size < 1_000_000
    assert cli.main(["what-if", root, "regular", "--to", page, "--json", *here]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == page
    assert len(found["sentences"]) == 2
    assert found["overlap"]["rules"] == SIGNALS
    html = dk.what_if(root, "regular", **HERE)._repr_html_()
    assert html.startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts"' in html


def test_bounds_of_a_group_that_no_document_has(root: str, tmp_path: Path) -> None:
    cuts = {
        "by": "lang",
        "bounds": {"words": {"xx": {"lower": 10}}, "ratio": {"xx": {"upper": 1.5}, "yy": {}}},
    }
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(cuts))
    answer = dk.what_if(root, str(path), name="none", to=str(tmp_path / "page.html"), **HERE)
    assert [(row.group, row.documents.documents, row.kept.documents) for row in answer.groups] == [
        ("all", 400, 0),
        ("(no thresholds)", 400, 0),
    ]
    assert {row.alone.documents for row in answer.of_group("all")} == {400}


def test_estimates_of_bytes_say_where_they_come_from(tmp_path: Path) -> None:
    root = write(tmp_path, ROWS[:40], 2)
    dk.quantiles(root, SIGNALS, by="lang", **HERE)
    by_document = dk.what_if(root, "regular", **HERE)
    text = sum(len(row["text"].encode()) for row in ROWS[:40])
    assert by_document.groups[0].documents.bytes == pytest.approx(text, abs=2)
    assert "equally long" in by_document.measure
    for journal in Path(root, "_journal/convert").iterdir():
        journal.unlink()
    unknown = dk.what_if(root, "regular", **HERE)
    assert unknown.groups[0].documents.bytes is None
    assert "not known" in unknown.measure
    assert not math.isnan(unknown.counts.sizes.tokens_per_byte)


def test_bounds_that_a_person_changed_count_and_not_the_level_that_they_are_called_after(
    root: str, tmp_path: Path
) -> None:
    cuts = dk.thresholds(root, "regular").to_json()
    cuts["bounds"]["own__words"]["en"]["lower"] += 2
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(cuts))
    changed = Thresholds.from_json(cuts)
    answer = dk.what_if(root, str(path), **HERE)
    kept = [row for row in ROWS if not any(fails(row, changed, signal) for signal in SIGNALS)]
    assert answer.groups[0].kept.documents == len(kept)
    assert answer.level is None
    assert any("the bounds are called regular, and are not what the quantiles give" in note for note in answer.notes)  # fmt: skip
    assert next(row for row in answer.of_group("en") if row.rule == "words").stricter_level == "strict"


def test_some_signals_of_several_levels(root: str) -> None:
    cuts = dk.thresholds(root, "strict words=regular de.ratio=regular").inside(["ratio", "mark"])
    answer = dk.what_if(root, cuts, **HERE)
    following = {row.group: row.stricter_level for row in answer.rules if row.rule == "ratio"}
    assert following == {
        "all": None,
        "(no thresholds)": None,
        "en": "even_stricter",
        "de": "strict",
        "fr": "even_stricter",
    }


@pytest.mark.slow
def test_columns_and_groups_of_other_types_are_refused(root: str, tmp_path: Path) -> None:
    by_number = {"by": "lang", "kind": "number", "bounds": {"words": {"1": {"lower": 1}}}}
    with pytest.raises(StageError, match="need column own__lang to be a number, it is a string"):
        dk.what_if(root, Thresholds.from_json(by_number), **HERE)
    with pytest.raises(UsageError, match="'own__lang' holds strings; expected one number per document"):
        dk.what_if(root, Thresholds.from_json({"bounds": {"lang": {"all": {"lower": 1}}}}), **HERE)
    with pytest.raises(UsageError, match="'own__lang' holds strings"):
        dk.what_if(root, "regular", length="lang", **HERE)
    assert "words" in dk.what_if(root, "regular", length="words", **HERE).measure
    of_others = {"by": "lang", "bounds": {"words": {"en": {"lower": 1}}}}
    answer = dk.what_if(root, Thresholds.from_json(of_others), name="plain", **HERE)
    assert answer.levels == ()
    assert "the quantiles of words have no group 'en'" in answer.notes[0]
    many = {"by": "lang", "bounds": {"words": {str(number): {} for number in range(66_000)}}}
    with pytest.raises(UsageError, match=r"thresholds of 66,000 groups; expected at most 65,534"):
        dk.what_if(root, Thresholds.from_json(many), **HERE)


def test_what_fails_elsewhere_is_noted(root: str) -> None:
    answer = dk.what_if(root, dk.thresholds(root, nulls="fail"), **HERE)
    assert "documents without a value count as dropped; mix and filter fail" in answer.notes[-1]
    assert answer.rules == dk.what_if(root, dk.thresholds(root), **HERE).rules


def test_many_rules_share_the_memory_of_histograms(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = dk.what_if(root, "regular", **HERE)
    monkeypatch.setattr(levels, "MAX_HISTOGRAMS", 2 * len(SIGNALS))
    answer = dk.what_if(root, "regular", **HERE)
    assert (every.counts.sums.bins.shape, answer.counts.sums.bins.shape) == ((3, 3), (3, 2))
    assert (answer.groups, answer.rules, answer.levels) == (every.groups, every.rules, every.levels)
    sizes = sorted((row.documents.documents, row.group) for row in answer.groups[1:] if row.group in GROUPS)
    assert {group["name"] for group in page_data(answer)["groups"]} == {group for _, group in sizes[1:]}


def test_of_some_shards_those_groups_are_shown_that_are_the_largest_of_all(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "MAX_PLACES", 1)
    (largest,) = page_data(dk.what_if(root, "regular", **HERE))["groups"]
    (shown,) = page_data(dk.what_if(root, "regular", only=["0"], **HERE))["groups"]
    assert shown["name"] == largest["name"] != sorted(filter(None, GROUPS))[0]


RULE = "words >= 20 and words < 50 and 0.5 > ratio and lang != 'de'"


def test_the_conditions_of_a_rule_are_looked_at_as_thresholds(root: str, tmp_path: Path) -> None:
    answer = dk.what_if(root, where=RULE, **HERE)
    counted = [row for row in ROWS if row["group"] not in ("de", None)]
    held = {
        "words": lambda row: 20 <= row["signals"]["words"] < 50,
        "ratio": lambda row: row["signals"].get("ratio", math.inf) < 0.5,
    }
    drops = {name: {row["id"] for row in counted if not holds(row)} for name, holds in held.items()}
    assert {row.rule: row.alone.documents for row in answer.rules} == {n: len(d) for n, d in drops.items()}
    assert answer.groups[0].documents.documents == len(counted)
    mixed = dk.mix(root, to=str(tmp_path / "v1"), where=RULE, **HERE)
    assert answer.groups[0].kept.documents == mixed.counts["documents_out"]
    text = str(answer)
    assert ">= 20 and < 50" in text
    heading, sentence = text.splitlines()[:2]
    assert heading.endswith(f" and lang != 'de', {root}")
    assert " is the bound that costs most: " in sentence
    assert sentence.strip().startswith("Where lang != 'de' holds, ")
    either = dk.what_if(root, where="words >= 20 and (lang == 'de' or lang == 'fr')", **HERE)
    assert "what if: words >= 20 and (lang == 'de' or lang == 'fr'), " in str(either)
    assert "is the only bound: " in str(either)
    assert "Where lang == 'de' or lang == 'fr' holds, " in str(either)
    assert f"{len(ROWS) - len(counted)} documents left out: lang != 'de' does not hold" in text


def test_integers_that_no_double_holds_are_compared_as_mix_does(tmp_path: Path) -> None:
    rows = [row_of(number) | {"signals": {"words": 2**53 + number}} for number in range(4)]
    root = write(tmp_path, rows, 1)
    rule = f"words >= {2**53 + 1} and words >= 5"
    mixed = dk.mix(root, to=str(tmp_path / "v1"), where=rule, **HERE)
    assert dk.what_if(root, where=rule, **HERE).groups[0].kept.documents == mixed.counts["documents_out"] == 3


def test_examples_lie_just_inside_and_outside_of_a_rule(root: str) -> None:
    answer = dk.what_if(root, where="ratio < 0.5", **HERE)
    assert str(answer).startswith("what if: ratio < 0.5, ")
    frame = answer.examples_frame()
    assert set(frame["side"]) == {"inside", "outside"}
    assert frame["excerpt"].str.startswith("wörd").all()
    values = sorted(row["signals"]["ratio"] for row in ROWS if "ratio" in row["signals"])
    below, above = [v for v in values if v < 0.5], [v for v in values if v >= 0.5]
    assert sorted(frame.loc[frame["side"] == "inside", "value"]) == below[-2:]
    assert sorted(frame.loc[frame["side"] == "outside", "value"]) == above[:2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"where": "lang == 'de' and mark != 2"}, "no condition of .*lang == 'de' and mark != 2"),
        ({"where": "words > 3", "thresholds": "strict"}, "thresholds and where were given"),
    ],
)
def test_rules_without_a_bound_are_refused(root: str, options: dict[str, Any], expected: str) -> None:
    named = [options.pop("thresholds")] if "thresholds" in options else []
    with pytest.raises(UsageError, match=expected):
        dk.what_if(root, *named, **options, **HERE)


def test_a_bound_that_differs_by_group_is_not_taken_for_none(root: str) -> None:
    groups = {label: {"lower": low, "upper": 2} for label, low in (("en", -1), ("de", 0), ("fr", 0.5))}
    cuts = Thresholds.from_json({"by": "lang", "bounds": {"ratio": groups}})
    assert ">= by lang and <= 2" in str(dk.what_if(root, cuts, **HERE))


def test_sides_say_where_a_rule_cuts(root):
    answer = dk.what_if(root, "regular", length="own__length", **HERE)
    cuts = dk.thresholds(root, "regular", tails={"words": "lower", "mark": "upper"})
    sides = answer.sides("ratio")
    for group in ("en", "de", "fr"):
        rows = [row for row in ROWS if row["group"] == group]
        values = [row["signals"].get("ratio") for row in rows]
        low, high = cuts.lower("ratio", group), cuts.upper("ratio", group)
        below = [row for row, value in zip(rows, values, strict=True) if value is not None and value < low]
        above = [row for row, value in zip(rows, values, strict=True) if value is not None and value > high]
        found = sides.loc[group]
        assert tuple(found[["documents", "below", "above", "missing"]]) == (
            len(rows),
            len(below),
            len(above),
            values.count(None),
        )
        assert found["inside"] == len(rows) - len(below) - len(above) - values.count(None)
        text = sum(len(row["text"]) for row in rows)
        assert found["text_above"] == pytest.approx(sum(len(row["text"]) for row in above) / text, abs=2e-3)
    assert sides.loc["all", "below"] == sides.loc[["en", "de", "fr"], "below"].sum()
    assert answer.sides().equals(answer.sides(answer.costliest.rule))
    assert f"Where {answer.costliest.rule} cuts" in str(answer)
    with pytest.raises(UsageError, match="no rule 'ratios'; did you mean 'ratio'"):
        answer.sides("ratios")
