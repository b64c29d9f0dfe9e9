"""Pairs by their n-grams: as Python's sets have them, however the records come."""

import random
from itertools import combinations

import numpy as np
import pytest

from dolma_dask.minhash.schemes import MinHash
from dolma_dask.verbs.dedupe.fuzzy import ngram_sets
from dolma_dask.verbs.dedupe.fuzzy.ngram_sets import SETS, SHARE, JaccardReducer, NgramReducer, Texts

TEXTS = Texts((), (), MinHash(), None, shift=60)


def sets_of_documents():
    """Make sets of 0 to 200 n-grams, of which many are similar."""
    draw = random.Random(3)
    sets = [set(), set()]
    for size in (1, 28, 29, 56, 120, 200):
        whole = [draw.getrandbits(64) for _ in range(size)]
        sets += [{*whole}, {*whole[: size * 4 // 5], draw.getrandbits(64)}]
    return sets


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 10_000])
def test_jaccard(monkeypatch, rows):
    sets = sets_of_documents()

    class Known(ngram_sets.NgramReader):
        def set_of(self, docno):
            return np.array(sorted(sets[docno]), np.uint64)

    monkeypatch.setattr(ngram_sets, "NgramReader", Known)
    pairs = list(combinations(range(len(sets)), 2))
    sent = []
    low_first = np.array([(low << 60, high, 0) for low, high in pairs], ngram_sets.VERIFIED)
    NgramReducer(TEXTS).reduce([low_first[at : at + rows] for at in range(0, len(pairs), rows)], sent.append)
    records = np.sort(np.concatenate(sent), order=list(SETS.names))
    found = []
    runs = [records[at : at + rows] for at in range(0, len(records), rows)]
    told = JaccardReducer(TEXTS, 0.6).reduce(runs, lambda out: found.extend(out.tolist()))
    expected = []
    for low, high in sorted(pairs, key=lambda pair: pair[::-1]):
        both = sets[low] | sets[high]
        share = len(sets[low] & sets[high]) / len(both) if both else 0
        if share >= 0.6:
            expected.append((low, high, -(-len(sets[low] & sets[high]) * SHARE // len(both))))
    assert expected
    assert all(shown / SHARE >= 0.6 for *_, shown in found)
    assert found == expected
    assert told == {"accepted": len(expected)}


def test_no_pair():
    assert JaccardReducer(TEXTS, 0.6).reduce([], lambda _: None) == {"accepted": 0}
