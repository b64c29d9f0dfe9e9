"""Members of sorted sets are counted as Python's sets count them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.minhash.sets import count_common

values = st.one_of(st.integers(0, 12), st.integers(2**64 - 6, 2**64 - 1), st.integers(0, 2**64 - 1))


@pytest.mark.slow
@given(
    st.sets(values, max_size=40),
    st.lists(st.sets(values, max_size=6), min_size=1, max_size=9),
    st.integers(0, 3),
)
def test_common(own, sets, skip):
    rows = np.full((len(sets), skip + 6), 3, np.uint64)
    for row, members in enumerate(sets):
        rows[row, skip : skip + len(members)] = sorted(members)
    sizes, common = np.array([len(members) for members in sets]), np.full(len(sets), 7)
    count_common(rows, skip, sizes, np.array(sorted(own), np.uint64), common)
    assert common.tolist() == [len(members & own) for members in sets]
