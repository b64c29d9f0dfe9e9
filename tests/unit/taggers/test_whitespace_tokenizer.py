"""`whitespace_tokenizer_v1`."""

import pyarrow as pa
import pytest

from dolma_dask.taggers.whitespace_tokenizer import whitespace_tokenizer_v1
from dolma_dask.testing.taggers import TaggerTests


class TestWhitespaceTokenizer(TaggerTests):
    @pytest.fixture
    def tagger(self):
        return whitespace_tokenizer_v1


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("", 0),
        ("   ", 0),
        ("word", 1),
        ("don't stop", 4),
        ("a, b.", 4),
        ("snake_case 3.5", 4),
        ("e\u0301a", 1),
        ("a\u200db", 1),
        ("a²b", 3),
        ("a\x1cb", 3),
        ("中文。", 2),
    ],
)
def test_the_number_is_tokens_plus_one(text, tokens):
    batch = pa.RecordBatch.from_arrays([pa.array([text], pa.large_string())], names=["text"])
    assert whitespace_tokenizer_v1(batch).column(0).to_pylist() == [tokens + 1.0]
