"""Strictness of single groups and signals: how they are given, which goes first, what is unknown."""

import pytest

from dolma_dask.errors import UsageError
from dolma_dask.rules.strictness import LEVELS, Strictness, level_at

SIGNALS = ["s__t__ccnet_perplexity", "number_of_words", "metadata.language_score", "short_line_ratio(nl=5.2)"]
GROUPS = ["all", "de", "en", "=all", "en/head"]


@pytest.mark.parametrize(
    "given",
    [
        "strict de=regular",
        ["strict", "de=regular"],
        ("de=regular", "strict"),
        ["strict de=regular"],
        {"default": "strict", "de": "regular"},
    ],
)
def test_levels_are_words_or_a_mapping(given):
    levels = Strictness.of(given)
    assert levels == Strictness("strict", (("de", "regular"),))
    assert str(levels) == "strict de=regular"
    assert Strictness.of(str(levels)) == levels
    assert levels.name == "mixed"
    assert levels.probabilities == (0.1, 0.2, 0.8, 0.9)


def test_names_with_blanks_are_quoted():
    levels = Strictness.of(
        {"default": "strict", "New York": "regular", "short_line_ratio(nl=5, pl=6)": "regular"}
    )
    assert Strictness.of(str(levels)) == levels
    with pytest.raises(UsageError, match="expected words"):
        Strictness.of("strict 'New York=regular")


def test_one_level_is_its_own_name():
    for level in LEVELS:
        assert str(Strictness.of(level)) == Strictness.of([level]).name == level


def test_the_nearest_level_goes_first():
    given = "strict de=regular ccnet_perplexity=strictest en.ccnet_perplexity=regular =all=regular en/head=regular"
    places = Strictness.of([*given.split(), "short_line_ratio(nl=5.2)=regular"]).places(SIGNALS, GROUPS)
    found = {(group, signal): level_at(places, group, signal) for group in GROUPS for signal in SIGNALS}
    perplexity, words, score, short = SIGNALS
    assert found["de", words] == found["de", score] == "regular"
    assert found["de", perplexity] == found["all", perplexity] == "strictest"
    assert found["en", perplexity] == found["=all", words] == found["en/head", words] == "regular"
    assert found["en", words] == found["all", words] == "strict"
    assert {found[group, short] for group in GROUPS} == {"regular"}
    dotted = Strictness.of("strict en.metadata.language_score=regular").places(SIGNALS, GROUPS)
    assert dotted["en", score] == "regular"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("strct", "did you mean 'strict'"),
        ("de=strct strict", "did you mean 'strict'"),
        ("de=strict", "no level for all other signals and groups"),
        ([], "no level for all other"),
        ("strict de=regular de=strict", "'de' has two levels"),
        ("strict regular", "'default' has two levels"),
        (3, "expected words"),
        ([3], "expected words"),
    ],
)
def test_what_cannot_be_read_is_named(given, message):
    with pytest.raises(UsageError, match=message):
        Strictness.of(given)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("ccnet_perplexty=strict", "'ccnet_perplexty'; near it are ccnet_perplexity"),
        ("dee=strict", "no signal or group is called 'dee'"),
        ("fr.number_of_words=strict", "no signal or group is called 'fr.number_of_words'"),
    ],
)
def test_unknown_signals_and_groups_are_named(word, message):
    with pytest.raises(UsageError, match=message):
        Strictness.of(["regular", word]).places(SIGNALS, GROUPS)


def test_a_name_of_a_signal_and_a_group_is_unclear():
    with pytest.raises(UsageError, match="is a signal and a group"):
        Strictness.of("regular de=strict").places(["x__de"], ["all", "de"])
