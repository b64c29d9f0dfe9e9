"""`char_length_v1`."""

import pyarrow as pa
import pytest

from dolma_dask.taggers.char_length import char_length_v1
from dolma_dask.testing.taggers import WILD_TEXTS, TaggerTests


class TestCharLength(TaggerTests):
    @pytest.fixture
    def tagger(self):
        return char_length_v1


def test_lengths_are_those_of_str():
    batch = pa.RecordBatch.from_arrays([pa.array(WILD_TEXTS, pa.large_string())], names=["text"])
    assert char_length_v1(batch).to_pylist() == [{"length": float(len(text))} for text in WILD_TEXTS]
