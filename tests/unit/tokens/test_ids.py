"""Ids read from pickled encodings equal the library's lists, and an unknown form falls back to them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from dolma_dask.errors import DataError
from dolma_dask.tokens import ids


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        ["one two three"], trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False)
    )
    return made


def encode(tokenizer, texts):
    return tokenizer.encode_batch_fast(texts, add_special_tokens=False)


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), max_size=5))
def test_equal_to_the_lists(tokenizer, texts):
    encodings = encode(tokenizer, [*texts, '"ids":[7]', ""])
    lengths, flat = ids.flatten(encodings, np.dtype(np.uint16))
    assert flat.dtype == np.uint16
    assert flat.tolist() == [number for encoding in encodings for number in encoding.ids]
    assert lengths.tolist() == [len(encoding.ids) for encoding in encodings]


class Stranger:
    """An encoding as another release might pickle it."""

    ids = [5, 70000]  # noqa: RUF012

    def __init__(self, state: bytes) -> None:
        self.state = state

    def __len__(self) -> int:
        return 2

    def __getstate__(self) -> bytes:
        return self.state


@pytest.mark.parametrize(
    "state", [b"", b'{"other":[]}', b'{"ids":[5]', b'{"ids":[5,6,7]}', b'{"ids":[5,-6]}', b'{"ids":[5']
)
def test_other_states_fall_back(state):
    assert ids.flatten([Stranger(state)], np.dtype(np.uint32))[1].tolist() == [5, 70000]


def test_never_wraps():
    with pytest.raises(DataError, match="70000"):
        ids.flatten([Stranger(b"")], np.dtype(np.uint16))


def test_the_installed_release_needs_no_lists(tokenizer):
    state = encode(tokenizer, ["one two"])[0].__getstate__()
    out = np.empty(len(encode(tokenizer, ["one two"])[0]), np.uint32)
    assert state.startswith(ids._HEAD)
    assert ids._read_ids(np.frombuffer(state, np.uint8), len(ids._HEAD), out) == len(out)
