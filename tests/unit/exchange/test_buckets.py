"""How records are cut: every bucket once, ranges as large as they may be."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import UsageError
from dolma_dask.exchange import buckets

HISTOGRAMS = st.lists(st.one_of(st.just(0), st.integers(0, 50)), min_size=1, max_size=40)


@given(HISTOGRAMS, st.integers(1, 120))
def test_ranges_cover_all_records_in_order(histogram, most):
    ranges = buckets.choose_ranges(np.array(histogram), most)
    assert sum(item.records for item in ranges) == sum(histogram)
    for item in ranges:
        inside = histogram[item.first : item.last]
        assert item.records == sum(inside) > 0
        assert item.records <= most or sum(count > 0 for count in inside) == 1
    for item, following in pairwise(ranges):
        assert item.last == following.first, "no bucket in two ranges, none between them"
        assert item.records + histogram[following.first] > most, "or it would have been joined"


@given(st.lists(st.lists(st.integers(0, 2**40), min_size=3, max_size=3), max_size=5))
def test_histograms_are_summed(histograms):
    packed = [buckets.pack_histogram(np.array(one)) for one in histograms]
    assert buckets.sum_histograms(packed, 3).tolist() == [
        sum(one[at] for one in histograms) for at in range(3)
    ]


@pytest.mark.parametrize("shards", [0, 1, 2, 1023, 1024, 1025, 2048, 2049, 5000, 1_000_000])
def test_shards_fit_their_buckets(shards):
    cut = buckets.of_shards(shards)
    assert cut.count <= buckets.MOST_BUCKETS
    if shards:
        assert ((shards - 1) << 32 | 0xFFFFFFFF) >> cut.shift == cut.count - 1
    if shards <= buckets.MOST_BUCKETS:
        assert cut.shift == 32


@pytest.mark.parametrize("count", [2, 1024, 65_536])
def test_keys_fit_their_buckets(count):
    cut = buckets.of_keys(count)
    assert (2**64 - 1) >> cut.shift == cut.count - 1 == count - 1


@pytest.mark.parametrize("count", [0, 1, 3, 1000, 1 << 17, -2])
def test_other_numbers_of_buckets(count):
    with pytest.raises(UsageError, match="power of two"):
        buckets.of_keys(count)
