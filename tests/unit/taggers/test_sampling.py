"""The number of a document by chance is the one that samples go by."""

import pyarrow as pa
import pytest

from dolma_dask.rules.sampling import sampled
from dolma_dask.taggers.registry import get_tagger


@pytest.mark.parametrize("fraction", [1e-3, 0.25, 0.3, 0.99])
def test_documents_with_small_numbers_are_those_of_a_sample(fraction):
    ids = pa.array([f"document {number}" for number in range(5000)], pa.large_string())
    source = pa.array(["a", "b"] * 2500, pa.large_string())
    documents = pa.RecordBatch.from_arrays([source, ids], names=["source", "id"])
    numbers = get_tagger("random_number_v1")(documents).column("random").to_numpy()
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    assert (numbers < fraction).tolist() == sampled(source, ids, fraction, seed=0).to_pylist()
