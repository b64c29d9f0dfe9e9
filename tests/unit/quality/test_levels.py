"""Levels: how many thresholds a row passes in each rule is what plain Python says, and what the thresholds say as rules of their own."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.errors import DataError, ExpressionError, UsageError
from dolma_dask.formats.levels import BITS
from dolma_dask.rules.levels import Levels
from dolma_dask.rules.quantile_table import PROBABILITIES, probability_name
from dolma_dask.rules.strictness import LEVELS
from dolma_dask.rules.thresholds import Thresholds, thresholds_of

X, Y, Z = "g__g__mid_length", "perplexity", "g__g__level"
DRAW = random.Random(3)
ROWS = 400


def some(values, seed):
    draw = random.Random(seed)
    return [draw.choice([*values, None]) for _ in range(ROWS)]


COLUMNS = {
    X: pa.array(some([-1.0, 0.0, 10.0, 20.0, 50.0, 80.0, 90.5], 1), pa.float64()),
    Y: pa.array(some([1.0, 5.5, 6.0, 7.0, float("nan")], 2), pa.float64()),
    Z: pa.array(some([3, 4, 9, 2**60], 3), pa.int64()),
    "source": pa.array(some(["a", "all", "other"], 4)),
}


def table(scales):
    return {
        signal: {
            group: {
                "n": count, "nulls": 0, "min": 0.0, "max": scale,
                "q": {probability_name(p): scale * p if count else None for p in PROBABILITIES},
            }
            for group, (scale, count) in groups.items()
        }
        for signal, groups in scales.items()
    }  # fmt: skip


GROUPS = {"all": (10.0, 9), "a": (100.0, 9), "=all": (9.0, 9), "empty": (1.0, 0)}
TABLE = table({X: GROUPS, Y: {**GROUPS, "all": (7.0, 9)}, Z: GROUPS})


def cuts(by="source", nulls="drop"):
    return [thresholds_of(TABLE, level, by, nulls=nulls) for level in LEVELS]


def each_level(levels, columns=COLUMNS, rows=ROWS):
    """The levels (n,) of each rule, out of their bits."""
    (number,), counts = levels.passed(columns, rows)
    return [number >> BITS * place & 7 for place in range(len(levels.rules))], counts


def expected(signal, by, nulls="drop"):
    """The level of each row by the definition: each level's bounds of its group, inclusive."""
    side = "upper" if signal == Y else "both"
    found = []
    for value, source in zip(COLUMNS[signal].to_pylist(), COLUMNS["source"].to_pylist(), strict=True):
        group = {"a": "a", "all": "=all"}.get(source) if by else "all"
        passed = 0
        if value is None or value != value:
            passed = 4 if nulls == "keep" and group is not None else 0
        elif group is not None:
            q = TABLE[signal][group]["q"]
            for low, high in LEVELS.values():
                is_above = side == "upper" or q[probability_name(low)] <= value
                passed += is_above and value <= q[probability_name(high)]
        found.append(passed)
    return found


@pytest.mark.parametrize("by", [None, "source"])
@pytest.mark.parametrize("nulls", ["drop", "keep"])
def test_levels_are_those_of_the_definition(by, nulls):
    levels = Levels.of(cuts(by), nulls)
    found, counts = each_level(levels)
    assert levels.names == ("mid_length", "perplexity", Z), (
        "the name of the least level is not that of a rule"
    )
    rules = [expected(signal, by, nulls) for signal in (X, Y, Z)]
    assert [level.tolist() for level in found] == rules
    least = [min(row) for row in zip(*rules, strict=True)]
    for number, level in enumerate([*rules, least]):
        assert counts[:, number, :5].sum(axis=0).tolist() == [level.count(k) for k in range(5)]
    assert counts[:, 0, 5].sum() == COLUMNS[X].null_count
    sources = COLUMNS["source"].to_pylist()
    if by:
        assert levels.groups == ("=all", "a", "")
        assert counts[:, 0, :5].sum(axis=1).tolist() == [
            sources.count("all"), sources.count("a"), sources.count("other") + sources.count(None)
        ]  # fmt: skip


@pytest.mark.parametrize("nulls", ["drop", "keep"])
@pytest.mark.parametrize("by", [None, "source"])
def test_a_level_is_passed_where_the_thresholds_hold_as_a_rule(by, nulls):
    found, _ = each_level(Levels.of(cuts(by, nulls)))
    for number, one in enumerate(cuts(by, nulls), 1):
        masks = [level >= number for level in found]
        assert np.all(masks, axis=0).tolist() == one.mask(COLUMNS).to_pylist()
        for signal, mask in zip((X, Y, Z), masks, strict=True):
            assert mask.tolist() == one.inside(signal).mask(COLUMNS).to_pylist()


def test_a_missing_value_may_be_an_error():
    levels = Levels.of(cuts(), "fail")
    row = COLUMNS[X].to_pylist().index(None)
    with pytest.raises(
        DataError, match=rf"row {row} of the batch has no value of {X}.*--nulls drop"
    ) as caught:
        levels.passed(COLUMNS, ROWS)
    assert caught.value.details["row"] == row
    whole = {name: column.slice(0, 0) for name, column in COLUMNS.items()}
    assert [len(number) for number in levels.passed(whole, 0)[0]] == [0]


def test_thresholds_are_each_inside_of_those_before():
    with pytest.raises(UsageError, match=r"level 2 in group '=all' are .* from the loosest to the strictest"):
        Levels.of(cuts()[::-1])
    with pytest.raises(UsageError, match="of level 2 are of perplexity by source, those of level 1 of"):
        Levels.of([cuts()[0], cuts()[1].inside("perplexity")])
    with pytest.raises(UsageError, match="0 levels; expected 1 to 7"):
        Levels.of([])
    with pytest.raises(UsageError, match="nulls='skip'; expected drop, keep or fail"):
        Levels.of(cuts(), "skip")


def test_thresholds_have_one_policy_for_missing_values_unless_another_is_given():
    mixed = [cuts()[0], *cuts(nulls="keep")[1:]]
    with pytest.raises(
        UsageError, match="level 2 keep documents without a value, those of level 1 drop them"
    ):
        Levels.of(mixed)
    assert Levels.of(mixed, "keep") == Levels.of(cuts(nulls="keep"))


def test_groups_may_be_of_several_columns():
    bounds = {X: {"en/head": {"lower": 1.0}, "en/tail": {"lower": 5.0}}}
    cut = Thresholds.from_json({"by": ["lang", "bucket"], "bounds": bounds})
    columns = {
        X: pa.array([3.0, 3.0, 9.0]),
        "lang": pa.array(["en", "en", "en"]),
        "bucket": pa.array(["head", "tail", None]),
    }
    levels = Levels.of([cut])
    assert levels.columns == (X, "lang", "bucket")
    assert each_level(levels, columns, 3)[0][0].tolist() == cut.mask(columns).to_pylist() == [1, 0, 0]
    assert levels.renamed({"lang": "metadata.lang"}).by == ("metadata.lang", "bucket")


def test_a_group_without_bounds_at_some_levels_passes_none_of_these():
    loose, tight = (
        Thresholds.from_json({"by": "source", "bounds": {X: groups}})
        for groups in ({"a": {"lower": 1}, "all": {}}, {"a": {"lower": 5}})
    )
    columns = {X: pa.array([3.0, 9.0, 7.0]), "source": pa.array(["a", "a", "b"])}
    found, _ = each_level(Levels.of([loose, tight]), columns, 3)
    assert found[0].tolist() == [1, 2, 0]
    with pytest.raises(UsageError, match="inside of those"):
        Levels.of(
            [tight, Thresholds.from_json({"by": "source", "bounds": {X: {"a": {"lower": 5}, "b": {}}}})]
        )


def test_the_column_of_the_groups_has_the_type_that_the_thresholds_know():
    with pytest.raises(ExpressionError, match="source to be a string, it is a number"):
        Levels.of(cuts()).passed({**COLUMNS, "source": pa.array([1.0] * ROWS)}, ROWS)
    nothing = {**COLUMNS, "source": pa.nulls(ROWS)}
    assert not np.any(Levels.of(cuts()).passed(nothing, ROWS)[0])


def test_what_decides_the_levels_is_json():
    other = Levels.of(cuts(), "keep")
    assert Levels.of(cuts()).canonical() != other.canonical()
    assert Levels.of(cuts(None)).canonical() != Levels.of(cuts()).canonical()
    renamed = other.renamed({X: "x", "source": "s"})
    assert renamed.columns == ("x", Y, Z, "s")
