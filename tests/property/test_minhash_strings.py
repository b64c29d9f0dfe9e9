"""Tokens that are joined, their SHA-1, and the signatures of RedPajama-V2 and datasketch equal their plain definitions on any text."""

import hashlib
from itertools import pairwise

import datasketch
import minhash_oracles as oracles
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from thorough import examples

from dolma_dask.minhash.schemes import EMPTY, SHORT, SIGNED, MinHash
from dolma_dask.testing.taggers import WILD_TEXTS
from dolma_dask.text.joined import MARGIN, characters, joined_words
from dolma_dask.text.normalization import normalised_words
from dolma_dask.text.sha1 import sha1_words

batches = st.lists(oracles.texts, max_size=4)
skips = st.integers(0, 2)

TOKENS = {
    normalised_words: lambda text: oracles.normalise(text).split(),
    joined_words: str.split,
    characters: list,
}


def column(batch, skip):
    return pa.array(batch, pa.large_string()).slice(skip)


def kind_of(tokens, ngram):
    return SIGNED if len(tokens) >= ngram else SHORT if tokens else EMPTY


@pytest.mark.parametrize("find", TOKENS, ids=lambda find: find.__name__)
@given(batch=batches, skip=skips)
@example(batch=list(WILD_TEXTS), skip=0)
@example(batch=["x", "Σ" * 20 + "\u0301\u0323" * 50, "", "ΑΣ'. Σ", "a" * 70 + "."], skip=1)
def test_tokens_are_joined(find, batch, skip):
    tokens = find(column(batch, skip))
    for row, text in enumerate(batch[skip:]):
        first, last = tokens.bounds[row], tokens.bounds[row + 1]
        spans = [(at, end - tokens.gap) for at, end in pairwise(tokens.starts[first : last + 1].tolist())]
        expected = TOKENS[find](text)
        assert [bytes(tokens.data[at:end]).decode() for at, end in spans] == expected
        if expected:
            assert bytes(tokens.data[spans[0][0] : spans[-1][1]]).decode() == (" " * tokens.gap).join(
                expected
            )


@given(strings=st.lists(st.binary(max_size=300), max_size=40), before=st.integers(0, 5))
@example(strings=[b"\xff" * size for size in range(300)], before=3)
def test_sha1_is_that_of_hashlib(strings, before):
    ends = before + np.cumsum([0, *map(len, strings)], dtype=np.int64)
    data = np.frombuffer(b"." * before + b"".join(strings) + b"-" * MARGIN, np.uint8)
    expected = [int.from_bytes(hashlib.sha1(string).digest()[:8], "little") for string in strings]
    assert sha1_words(data, ends[:-1], ends[1:]).tolist() == expected


@settings(max_examples=examples(80))
@given(
    batch=batches, skip=skips, ngram=st.integers(1, 5), num_perm=st.integers(1, 20), seed=st.integers(0, 9)
)
def test_signatures_of_redpajama(batch, skip, ngram, num_perm, seed):
    signed = MinHash("redpajama_v2", ngram, num_perm=num_perm, seed=seed).sign(column(batch, skip))
    values, kinds = signed.values, signed.kinds
    assert values.dtype == np.uint32
    assert values.shape == (len(batch[skip:]), num_perm)
    assert kinds.dtype == np.uint8
    for text, signature, kind in zip(batch[skip:], values.tolist(), kinds.tolist(), strict=True):
        expected = oracles.redpajama_signature(text, ngram, num_perm, seed)
        assert kind == kind_of(oracles.normalise(text).split(), ngram)
        assert (kind == SIGNED) == (expected is not None)
        assert expected is None or signature == expected


@pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "affine32"])
@pytest.mark.parametrize("unit", ["word", "char"])
@settings(max_examples=examples(80))
@given(
    batch=batches, skip=skips, ngram=st.integers(1, 5), num_perm=st.integers(1, 20), seed=st.integers(0, 9)
)
def test_signatures_of_datasketch(unit, legacy, batch, skip, ngram, num_perm, seed):
    minhash = MinHash("datasketch_legacy" if legacy else "datasketch", ngram, unit, num_perm, seed)
    signed = minhash.sign(column(batch, skip))
    values, kinds = signed.values, signed.kinds
    for text, signature, kind in zip(batch[skip:], values, kinds, strict=True):
        tokens = text.split() if unit == "word" else list(text)
        assert kind == kind_of(tokens, ngram)
        sketch = datasketch.MinHash(num_perm, seed=seed, scheme="legacy" if legacy else "affine32")
        sketch.update_batch(
            s.encode() for s in oracles.shingles(tokens, ngram, " " if unit == "word" else "")
        )
        if kind != EMPTY:
            np.testing.assert_array_equal(signature, sketch.hashvalues)
