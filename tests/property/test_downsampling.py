"""Laws of downsampling and of budgets: cuts are those of a ranking in plain Python, for any weights, ties, groups and blocks; samples nest, in any number of epochs."""

import re
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import UsageError
from dolma_dask.rules.budget_words import budget
from dolma_dask.verbs.mix import ranking
from dolma_dask.verbs.mix.ranking import RANKED, find_cuts

HASHES = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(2**40, 2**40 + 9)
)
ROWS = st.lists(st.tuples(HASHES, st.integers(0, 5), st.integers(0, 3)), max_size=200)


def beginning(rows, limit):
    """The definition: by hash and then by place, documents whole, until one would exceed the limit."""
    kept, weight = 0, 0
    ranking_ = sorted(rows)
    for _, _, own in ranking_:
        if limit is not None and weight + own > limit:
            return weight, kept, ranking_[kept][:2]
        kept, weight = kept + 1, weight + own
    return weight, kept, None


def found(rows, limits, block=7):
    table = np.zeros(len(rows), RANKED)
    for place, (hash_, weight, group) in enumerate(rows):
        table[place] = (hash_, weight, place, group)
    blocks = [table[start : start + block] for start in range(0, len(rows), block)]
    return find_cuts(lambda: blocks, 4, lambda totals, documents: limits)


@given(ROWS, st.lists(st.one_of(st.none(), st.integers(0, 120)), min_size=4, max_size=4), st.integers(0, 40))
@pytest.mark.parametrize("counters", [8, 1 << 12])
def test_cuts_are_those_of_a_sorted_ranking(counters, rows, limits, collected):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "MAX_COUNTERS", counters)
        patch.setattr(ranking, "MAX_COLLECTED", collected)
        cuts = found(rows, limits)
    for group, cut in enumerate(cuts):
        ours = [(hash_, place, weight) for place, (hash_, weight, own) in enumerate(rows) if own == group]
        assert (cut.kept, cut.kept_documents, cut.cut) == beginning(ours, limits[group])
        assert (cut.total, cut.documents) == (sum(row[2] for row in ours), len(ours))


def test_documents_of_one_hash_are_walked_through(monkeypatch):
    monkeypatch.setattr(ranking, "MAX_COLLECTED", 10)
    (cut, *_) = found([(77, 2, 0)] * 1000, [701, None, None, None])
    assert (cut.kept, cut.kept_documents, cut.cut) == (700, 350, (77, 350))


LABELS = ("a", "b", "c", "d")
PARTS = st.lists(st.integers(0, 40), min_size=4, max_size=4).filter(any)


def in_percent(parts):
    """Shares of groups in words; the last takes what rounding leaves."""
    left, words = Fraction(100), {}
    for label, part in zip(LABELS[1:], parts[1:], strict=True):
        share = Fraction(round(100 * part / sum(parts), 2)).limit_denominator(100)
        left -= share
        words[label] = f"{float(share):.2f}%"
    return {"a": f"{float(left):.2f}%", **words} if left >= 0 else {"a": "100%"}


def repeated(rows, wanted):
    """The definition: documents by hash and then by place, again and again, until the next of an unfinished epoch would exceed what is wanted."""
    times, total = Counter(), sum(weight for _, _, weight in rows)
    while wanted >= total > 0:
        times.update(place for _, place, _ in rows)
        wanted -= total
    for _, place, weight in sorted(rows) if wanted else ():
        wanted -= weight
        if wanted < 0:
            break
        times[place] += 1
    return times


def taken(rows, wanted):
    """Return how often each document is taken by a budget, and what was wanted of each group that has documents."""
    cuts = found(rows, [None] * 4)
    there = {label: cut.total for label, cut in zip(LABELS, cuts, strict=True) if cut.documents}
    takes = wanted.takes(there)
    cuts = found(rows, [takes[label].rest if label in takes else None for label in LABELS])
    times = Counter()
    for place, (hash_, _, group) in enumerate(rows):
        take, cut = takes[LABELS[group]], cuts[group].cut
        if not take.is_left_out:
            times[place] = take.epochs + (cut is None or (hash_, place) < cut)
    return +times, {label: take.wanted for label, take in takes.items()}


def fits(rows, **options):
    """Return what a budget takes, or the error that says why it takes nothing."""
    try:
        return taken(rows, budget(**{"by": "x", "unit": "tokens", "seed": 0, **options}))
    except UsageError as error:
        return str(error)


@given(ROWS, PARTS, st.integers(1, 900), st.integers(1, 4))
def test_a_budget_takes_documents_as_the_definition_does(rows, parts, total, max_epochs):
    words = in_percent(parts)
    options = {"given": words, "max_epochs": max_epochs}
    outcome = fits(rows, tokens=total, **options)
    if isinstance(outcome, str):
        check_told(rows, outcome, total, options)
        return
    times, wanted = outcome
    assert max(times.values(), default=0) <= max_epochs
    for group, label in enumerate(LABELS):
        ours = [(hash_, place, weight) for place, (hash_, weight, own) in enumerate(rows) if own == group]
        share = Fraction(words.get(label, "0%").rstrip("%")) / 100
        assert wanted.get(label, 0) == int(total * share)
        own = Counter({place: times[place] for _, place, _ in ours if times[place]})
        assert own == repeated(ours, int(total * share))
        sum_ = sum(times[place] * weight for _, place, weight in ours)
        assert 0 <= int(total * share) - sum_ < max((weight for *_, weight in ours), default=1) or not own
    smaller, _ = fits(rows, tokens=max(total * 2 // 3, 1), **options)
    assert smaller <= times, "a larger budget holds the documents of a smaller one"


@given(ROWS, st.integers(1, 4))
def test_whole_epochs_take_each_document_as_often(rows, max_epochs):
    """Also those that weigh nothing, and none of them once more."""
    rows = [(hash_, weight, 0) for hash_, weight, _ in [*rows, (5, 1, 0)]]
    times, _ = fits(rows, given={"a": "100%"}, tokens=None, max_epochs=max_epochs)
    assert times == dict.fromkeys(range(len(rows)), max_epochs)


def check_told(rows, message, total, options):
    """What a message proposes can be had, and no more of it."""
    there = Counter()
    for _, weight, group in rows:
        there[LABELS[group]] += weight
    if "no document" in message or "have no tokens" in message:
        named = [label for label, words in options["given"].items() if float(words.rstrip("%"))]
        assert any(not there[label] for label in named)
        return
    same, other, more = message.splitlines()[-3:]
    largest = int(re.search(r"--tokens (\d+)", same)[1])
    assert largest < total
    assert isinstance(fits(rows, tokens=largest + 1, **options), str)
    assert largest == 0 or not isinstance(fits(rows, tokens=largest, **options), str)
    amounts = dict(re.findall(r"(\w)=(\d+)", other))
    limit = sum(options["max_epochs"] * there[label] for label in amounts)
    assert sum(map(int, amounts.values())) == min(limit, total)
    options = {**options, "tokens": None}
    assert not isinstance(fits(rows, **{**options, "given": amounts}), str)
    needed = int(more.rpartition(" ")[2])
    assert not isinstance(fits(rows, **{**options, "tokens": total, "max_epochs": needed}), str)
    assert (
        isinstance(fits(rows, **{**options, "tokens": total, "max_epochs": needed - 1}), str) or needed == 1
    )
