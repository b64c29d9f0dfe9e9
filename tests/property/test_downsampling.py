"""Laws of downsampling: cuts are those of a ranking in plain Python, for any weights, ties, groups and blocks; samples nest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
