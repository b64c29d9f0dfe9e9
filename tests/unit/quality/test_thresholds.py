"""Thresholds: levels, tails, groups, what they mean as a rule, JSON, errors."""

import itertools
import json
import pickle

import pyarrow as pa
import pytest

from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.rules.quantile_table import PROBABILITIES, probability_name
from dolma_dask.rules.rules import And
from dolma_dask.rules.strictness import LEVELS
from dolma_dask.rules.tails import KNOWN_TAILS, OTHER_TAILS
from dolma_dask.rules.thresholds import Thresholds, thresholds_of
from dolma_dask.rules.where import parse, resolve

WORDS, NOISE = "g__g__mid_length", "r__r__ccnet_perplexity"


def entry(scale, count=9):
    """Quantiles of a uniform distribution from 0 to `scale`."""
    found = {probability_name(item): scale * item if count else None for item in PROBABILITIES}
    return {"n": count, "nulls": 0, "min": 0.0, "max": scale, "q": found}


TABLE = {
    WORDS: {"all": entry(100.0), "a": entry(10.0), "=all": entry(20.0), "empty": entry(1.0, 0)},
    NOISE: {"all": entry(5.0), "a": entry(1.0), "=all": entry(2.0), "empty": entry(1.0, 0)},
}
SOURCES = ["a", "all", "empty", "other", None]
COLUMNS = {
    name: pa.array(values)
    for name, values in zip(
        (WORDS, NOISE, "source"),
        zip(
            *itertools.product([None, 0.5, 1.0, 2.0, 9.0, 18.0, 19.0], [None, -1.0, 0.9, 1.8, 3.0], SOURCES),
            strict=True,
        ),
        strict=True,
    )
}


def inside(words, noise, source):
    """The regular level in plain Python: both tails of the words, the upper one of the perplexity."""
    scales = {"a": (10.0, 1.0), "all": (20.0, 2.0)}
    if words is None or noise is None or source not in scales:
        return False
    one, other = scales[source]
    return one * 0.1 <= words <= one * 0.9 and noise <= other * 0.9


def test_the_rule_is_the_plain_python_one():
    cuts = thresholds_of(TABLE, "regular", by="source")
    rows = list(zip(*(COLUMNS[name].to_pylist() for name in (WORDS, NOISE, "source")), strict=True))
    expected = [inside(*row) for row in rows]
    assert any(expected)
    assert cuts.mask(COLUMNS).to_pylist() == expected
    assert (~cuts).mask(COLUMNS).to_pylist() == [not one for one in expected]


def test_without_groups_the_bounds_of_all_rows_hold():
    cuts = thresholds_of(TABLE, "strict")
    assert str(cuts) == f"{WORDS} >= 20.0 and {WORDS} <= 80.0 and {NOISE} <= 4.0"
    assert parse(str(cuts)) == And(cuts.rules)
    assert cuts.names == {WORDS, NOISE}


@pytest.mark.parametrize("level", LEVELS)
def test_bounds_are_the_quantiles_of_the_level_in_each_group(level):
    cuts = thresholds_of(TABLE, level, by="source")
    low, high = LEVELS[level]
    assert (cuts.lower(WORDS), cuts.upper(WORDS)) == (100.0 * low, 100.0 * high)
    assert (cuts.lower("mid_length", "a"), cuts.upper("mid_length", "=all")) == (10.0 * low, 20.0 * high)
    assert cuts.lower("ccnet_perplexity", "a") is None
    assert cuts.signals == (WORDS, NOISE)
    assert set(cuts.groups) == {"all", "a", "=all"}


def test_bounds_are_inclusive():
    cuts = thresholds_of(TABLE, "regular", by="source").inside("mid_length")
    columns = {WORDS: pa.array([1.0, 9.0, 0.99, 9.01]), "source": pa.array(["a"] * 4)}
    assert cuts.mask(columns).to_pylist() == [True, True, False, False]


@pytest.mark.parametrize("groups", [("all", "a"), ("all", "a", "=all"), ("all",), ("all", "empty")])
def test_the_spelling_parses_back_to_the_same_rows(groups):
    table = {signal: {name: entries[name] for name in groups} for signal, entries in TABLE.items()}
    cuts = thresholds_of(table, "regular", by="source")
    assert parse(str(cuts)).mask(COLUMNS).to_pylist() == cuts.mask(COLUMNS).to_pylist()
    assert parse(str(~cuts)).mask(COLUMNS).to_pylist() == (~cuts).mask(COLUMNS).to_pylist()


def test_tails_can_be_chosen_and_known_signals_have_theirs():
    cuts = thresholds_of(TABLE, "regular", tails={"mid_length": "lower", NOISE: "both"})
    assert cuts.upper("mid_length") is None
    assert cuts.lower("ccnet_perplexity") == 0.5
    assert KNOWN_TAILS["rps_doc_word_count"] == "lower"
    every = {**KNOWN_TAILS, **OTHER_TAILS}
    assert (
        every["length"] == every["word_count"] == every["fraction_of_words_with_alpha_character"] == "lower"
    )
    assert every["fraction_of_duplicate_lines"] == "upper"
    full = {name: f"x{number}__x__{name}" for number, name in enumerate(every)}
    known = {key: {"all": entry(1.0)} for key in full.values()}
    found = thresholds_of(known, "regular")
    for name, tail in every.items():
        key = full[name]
        assert (found.lower(key) is None, found.upper(key) is None) == (tail == "upper", tail == "lower")


def test_thresholds_join_with_rules_and_each_other():
    cuts = thresholds_of(TABLE, "regular", by="source")
    other = parse("source != 'a'")
    for joined in (cuts & other, other & cuts, cuts & cuts.inside("mid_length") & other):
        assert joined.mask(COLUMNS).to_pylist() == [
            one and source is not None and source != "a"
            for one, source in zip(cuts.mask(COLUMNS).to_pylist(), COLUMNS["source"].to_pylist(), strict=True)
        ]
    assert len((other & cuts).rules) == 3, "one part per signal, so that each is counted for itself"
    assert (cuts | other).mask(COLUMNS).true_count > (cuts & other).mask(COLUMNS).true_count


def test_thresholds_display_short():
    cuts = thresholds_of(TABLE, "regular", by="source")
    rule = (cuts.inside("mid_length") | parse("x > 1")) & ~parse("y is None")
    assert rule.short == "((mid_length within regular by source) or x > 1) and y is not None"
    assert repr(rule) == rule.short
    assert "regular" not in str(rule) + json.dumps(rule.canonical())


def test_thresholds_are_values():
    cuts = thresholds_of(TABLE, "regular", by="source")
    cuts.mask(COLUMNS)
    assert pickle.loads(pickle.dumps(cuts)) == cuts
    assert hash(cuts) == hash(thresholds_of(TABLE, "regular", by="source"))
    assert (
        json.loads(json.dumps(cuts.canonical())) == thresholds_of(TABLE, "regular", by="source").canonical()
    )
    assert cuts.canonical() != thresholds_of(TABLE, "strict", by="source").canonical()
    short = cuts.renamed({WORDS: "mid_length", NOISE: "noise"})
    assert short.names == {"mid_length", "noise", "source"}
    assert resolve(short.renamed({"noise": NOISE}), [WORDS, NOISE, "source"]).mask(COLUMNS) == cuts.mask(
        COLUMNS
    )
    assert cuts.mask({name: column.slice(0, 0) for name, column in COLUMNS.items()}).to_pylist() == []


@pytest.mark.parametrize(
    "kind, labels, column",
    [
        ("number", ("0", "2.5"), pa.array([0.0, -0.0, 2.5, 1.0, None])),
        ("number", ("0", "2"), pa.array([0, 0, 2, 1, None])),
        ("bool", ("true", "false"), pa.array([True, True, False, None, None])),
    ],
)
def test_groups_of_numbers_and_bools(kind, labels, column):
    table = {WORDS: {"all": entry(1.0), labels[0]: entry(10.0), labels[1]: entry(1000.0)}}
    cuts = thresholds_of(table, "regular", by="bucket", kind=kind)
    columns = {WORDS: pa.array([5.0, 5.0, 500.0, 5.0, 5.0]), "bucket": column}
    assert cuts.mask(columns).to_pylist() == [True, True, True, False, False]
    assert parse(str(cuts)).mask(columns).to_pylist() == [True, True, True, False, False]


def test_columns_of_another_type_are_refused():
    cuts = thresholds_of(TABLE, "regular", by="source")
    with pytest.raises(ExpressionError, match="to be a string"):
        cuts.mask({**COLUMNS, "source": pa.nulls(175, pa.float64())})
    with pytest.raises(ExpressionError, match="to be a number"):
        cuts.mask({**COLUMNS, WORDS: pa.array(["x"] * 175)})
    assert cuts.mask({**COLUMNS, "source": pa.nulls(175)}).true_count == 0


def test_json_and_back():
    cuts = thresholds_of(TABLE, "even_stricter", by="source", tails={"mid_length": "upper"})
    content = json.loads(json.dumps(cuts.to_json()))
    assert content["level"] == "even_stricter"
    assert content["bounds"][WORDS]["a"] == {"lower": None, "upper": 7.0}
    assert Thresholds.from_json(content) == cuts


def test_json_of_a_person():
    cuts = Thresholds.from_json({"bounds": {"x": {"all": {"lower": 1}}, "y": {"all": {}}}})
    columns = {"x": pa.array([0.0, 1.0, 2.0]), "y": pa.array([0.0, None, 2.0])}
    assert cuts.mask(columns).to_pylist() == [False, False, True]


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"bounds": {}},
        {"bounds": {"x": 3}},
        {"bounds": {"x": {"all": {"least": 3}}}},
        {"bounds": {"x": {"all": {"lower": "3"}}}},
        {"bounds": {"x": {"all": {"lower": True}}}},
        {"bounds": {"x": {}}, "kind": "float"},
        {"bounds": {"x": {}}, "level": "lax"},
        {"bounds": {"x": {"all": {"lower": 10**400}}}},
    ],
)
def test_json_of_something_else(content):
    with pytest.raises(UsageError):
        Thresholds.from_json(content)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"level": "regulr"}, "did you mean 'regular'"),
        ({"tails": {"mid_length": "low"}}, "lower, upper or both"),
        ({"tails": {"words": "lower"}}, "words"),
    ],
)
def test_what_is_unknown_is_named(change, message):
    with pytest.raises(UsageError, match=message):
        thresholds_of(TABLE, **{"level": "regular", **change})


def test_missing_probabilities_signals_and_groups_are_named():
    cuts = thresholds_of(TABLE, "regular", by="source")
    with pytest.raises(UsageError, match="mid_length"):
        cuts.lower("word_cont")
    with pytest.raises(UsageError, match=r"'b'.*expected one of =all, a, all"):
        cuts.lower("mid_length", "b")
    with pytest.raises(UsageError, match="noise"):
        cuts.inside(["noise"])
    few = {WORDS: {"all": {**entry(1.0), "q": {"0.1": 1.0, "0.5": 2.0}}}}
    with pytest.raises(UsageError, match=r"0.1 and 0.9, there are 0.1, 0.5"):
        thresholds_of(few, "regular")
    with pytest.raises(UsageError, match="no signals"):
        thresholds_of({}, "regular")


def test_tables_show_signals_groups_and_bounds():
    cuts = thresholds_of(TABLE, "regular", by="source")
    assert "mid_length" in repr(cuts)
    table = cuts.wide_table()
    assert [tuple(table.headings), *table.rows] == [
        ("signal", "drops", "=all", "a", "all"),
        ("mid_length", "both ends", "2 to 18", "1 to 9", "10 to 90"),
        ("ccnet_perplexity", "large values", "\N{LESS-THAN OR EQUAL TO} 1.8", "\N{LESS-THAN OR EQUAL TO} 0.9", "\N{LESS-THAN OR EQUAL TO} 4.5"),
    ]  # fmt: skip
    many = {f"s{number}": {"all": entry(1.0)} for number in range(50)}
    assert "and 20 more" in repr(thresholds_of(many, "regular"))
    groups = {f"s{number}": {f"g{group}": entry(1.0) for group in range(12)} for number in range(50)}
    table = thresholds_of(groups, "regular", by="source").wide_table()
    assert (table.headings[-1], table.cells()[-1][0], len(table.headings)) == (
        "and 4 more",
        "and 20 more",
        11,
    )


def test_levels_of_single_groups_and_signals():
    cuts = thresholds_of(
        TABLE, "strict a=regular ccnet_perplexity=strictest a.ccnet_perplexity=regular", by="source"
    )
    assert (cuts.lower(WORDS), cuts.lower(WORDS, "a")) == (20.0, 1.0)
    assert (cuts.upper(NOISE), cuts.upper(NOISE, "a"), cuts.upper(NOISE, "=all")) == (3.0, 0.9, 1.2)
    assert cuts.strictness == cuts.to_json()["level"]
    assert Thresholds.from_json(json.loads(json.dumps(cuts.to_json()))) == cuts
    with pytest.raises(UsageError, match="no signal or group is called 'b'"):
        thresholds_of(TABLE, "strict b=regular", by="source")


@pytest.mark.parametrize("groups", [("all", "a"), ("all", "a", "=all")])
@pytest.mark.parametrize("by", ["source", None])
def test_missing_values_are_kept_where_the_group_is_known(groups, by):
    table = {signal: {name: entries[name] for name in groups} for signal, entries in TABLE.items()}
    dropping, keeping, failing = (
        thresholds_of(table, "regular", by=by, nulls=nulls) for nulls in ("drop", "keep", "fail")
    )
    rows = list(zip(*(COLUMNS[name].to_pylist() for name in (WORDS, NOISE, "source")), strict=True))
    filled = [
        (5.0 if words is None else words, 0.5 if noise is None else noise, of) for words, noise, of in rows
    ]
    if by is None:
        filled = [
            (50.0 if row[0] is None else words, noise, of)
            for (words, noise, of), row in zip(filled, rows, strict=True)
        ]
    columns = dict(zip((WORDS, NOISE, "source"), map(pa.array, zip(*filled, strict=True)), strict=True))
    assert keeping.mask(COLUMNS).to_pylist() == dropping.mask(columns).to_pylist()
    assert keeping.mask(COLUMNS) != dropping.mask(COLUMNS)
    assert parse(str(keeping)).mask(COLUMNS) == keeping.mask(COLUMNS)
    assert failing.mask(COLUMNS) == dropping.mask(COLUMNS)
    assert {str(value) for value in failing.required} >= {WORDS, NOISE}
    assert dropping.required == keeping.required == ()
    for cuts in (dropping, keeping, failing):
        assert Thresholds.from_json(json.loads(json.dumps(cuts.to_json()))) == cuts
        assert cuts.inside("mid_length").nulls == cuts.nulls
    assert len({json.dumps(cuts.canonical()) for cuts in (dropping, keeping, failing)}) == 3


def test_a_signal_that_is_no_column_is_missing():
    for nulls, kept in (("drop", 0), ("keep", 1)):
        cuts = thresholds_of(TABLE, "regular", by="source", nulls=nulls).inside(WORDS)
        assert cuts.mask({WORDS: pa.nulls(2), "source": pa.array(["a", "b"])}).true_count == kept


def test_groups_of_several_columns():
    table = {WORDS: {"all": entry(1.0), "en/head": entry(10.0), "en/1\\/2": entry(1000.0)}}
    by = ("metadata.language", "bucket")
    cuts = thresholds_of(table, "regular", by=by, kind=("string", "string"))
    columns = {
        WORDS: pa.array([5.0, 5.0, 500.0, 5.0]),
        "metadata.language": pa.array(["en", "de", "en", "en"]),
        "bucket": pa.array(["head", "head", "1/2", None]),
    }
    assert cuts.names == {WORDS, *by}
    assert cuts.mask(columns).to_pylist() == [True, False, True, False]
    assert parse(str(cuts)).mask(columns) == cuts.mask(columns)
    assert cuts.rules[0].short == "mid_length within regular by language/bucket"
    assert Thresholds.from_json(json.loads(json.dumps(cuts.to_json()))) == cuts
    one = thresholds_of(
        {WORDS: {"all": entry(1.0), "en/head": entry(10.0)}}, "regular", by, ("string", "string")
    )
    assert one.mask(columns).to_pylist() == [True, False, False, False]
    assert "by metadata.language/bucket" in repr(one)


def test_labels_of_another_number_of_columns_are_named():
    with pytest.raises(UsageError, match="the group 'en' has another number of values"):
        Thresholds.from_json({"by": ["a", "b"], "bounds": {"x": {"en": {"lower": 1}}}})


@pytest.mark.parametrize(
    "change",
    [
        {"by": []},
        {"by": [3]},
        {"by": ["a", "b"], "kind": ["string"]},
        {"nulls": "skip"},
        {"level": 3},
        {"kind": []},
    ],
)
def test_json_with_wrong_columns_levels_and_policies(change):
    with pytest.raises(UsageError):
        Thresholds.from_json({"bounds": {"x": {"all": {"lower": 1}}}, **change})


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "found the group 'en' and no column of groups"),
        ({"by": "g", "kind": "number"}, "the group 'en' is no number"),
        ({"by": "g", "kind": "bool"}, "the group 'en' is no bool"),
        ({"by": ["g", "h"], "kind": ["string", "number"]}, "the group 'en/x' is no string/number"),
    ],
)
def test_groups_of_no_column_or_of_another_type_are_named(groups, message):
    label = "en/x" if isinstance(groups.get("by"), list) else "en"
    with pytest.raises(UsageError, match=message):
        Thresholds.from_json({"bounds": {"x": {label: {"lower": 1}}}, **groups})


def test_groups_of_numbers_are_spelled_as_by_quantiles():
    cuts = {"by": "g", "kind": "number", "bounds": {"x": {"0.5": {}, "2": {"lower": 1.0}}}}
    assert Thresholds.from_json(cuts).groups == ("0.5", "2")
    with pytest.raises(UsageError, match=r"the group '2\.0' is no number"):
        Thresholds.from_json({**cuts, "bounds": {"x": {"2.0": {"lower": 1.0}}}})
