"""Tokens, shingles and signatures of the default scheme equal their plain-Python definitions on any text, and estimate its similarity."""

import random
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
import token_oracle as oracle
from hypothesis import example, given
from hypothesis import strategies as st

from dolma_dask.minhash import ngrams
from dolma_dask.minhash.ngrams import hash_shingles, hash_tokens, sign_tokens
from dolma_dask.minhash.permutations import multiply_add
from dolma_dask.minhash.schemes import EMPTY, SHORT, SIGNED
from dolma_dask.testing.taggers import WILD_TEXTS

units = st.sampled_from(["word", "char"])


def column(*texts):
    return pa.array(texts, pa.large_string())


def rows(bounds, values):
    return [part.tolist() for part in np.split(values, bounds[1:-1])] if len(bounds) > 1 else []


@given(batch=st.lists(oracle.texts, min_size=1, max_size=4), skip=st.integers(0, 1), unit=units)
@example(batch=list(WILD_TEXTS), skip=0, unit="word")
@example(batch=list(WILD_TEXTS), skip=1, unit="char")
def test_tokens_are_those_of_the_rule(batch, skip, unit):
    found = rows(*hash_tokens(column("before", *batch, "after").slice(skip), unit=unit))
    expected = [
        list(map(oracle.hash_token, oracle.tokens(text, unit))) for text in ["before", *batch, "after"]
    ]
    assert found == expected[skip:]


@given(text=oracle.texts, unit=units)
def test_composed_and_decomposed_texts_have_the_same_tokens(text, unit):
    forms = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    composed, decomposed = rows(*hash_tokens(column(*forms), unit=unit))
    assert composed == decomposed


@given(
    batch=st.lists(oracle.texts, max_size=3), n=st.integers(1, 12), num_perm=st.integers(1, 20), unit=units
)
def test_signatures_are_those_of_the_shingles(batch, n, num_perm, unit):
    values, kinds = sign_tokens(column(*batch), ngram=n, unit=unit, num_perm=num_perm, seed=7)
    assert values.tolist() == [oracle.signature(text, n, unit, *multiply_add(7, num_perm)) for text in batch]
    counts = [len(oracle.tokens(text, unit)) for text in batch]
    assert kinds.tolist() == [EMPTY if count == 0 else SHORT if count < n else SIGNED for count in counts]


@given(batch=st.lists(oracle.texts, max_size=3), n=st.integers(1, 12), unit=units)
def test_shingles_are_the_ngrams(batch, n, unit):
    found = rows(*hash_shingles(column(*batch), ngram=n, unit=unit))
    assert found == [list(map(oracle.hash_shingle, oracle.shingles(text, n, unit))) for text in batch]


@pytest.mark.parametrize("unit", ["word", "char"])
def test_every_character_of_the_first_planes_has_the_tokens_of_the_rule(unit):
    codes = [code for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    batch = [
        "".join(f"x{chr(code)}y " for code in codes[first : first + 4096])
        for first in range(0, len(codes), 4096)
    ]
    found = rows(*hash_tokens(column(*batch, "after"), unit=unit))
    for text, hashes in zip(batch, found, strict=False):
        assert hashes == list(map(oracle.hash_token, oracle.tokens(text, unit))), hex(ord(text[1]))


def test_runs_of_all_sizes_have_the_tokens_of_the_rule():
    pieces = ("a", "Ä", "\u0101", "各", "ß", "\u201d", "𝐀", "\u0301")
    batch = [
        " ".join(one * size + other for size in range(1, 140)) for one in pieces for other in (*pieces, "")
    ]
    found = rows(*hash_tokens(column(*batch, "after"), unit="word"))
    expected = [list(map(oracle.hash_token, oracle.tokens(text, "word"))) for text in [*batch, "after"]]
    assert found == expected


def long_texts():
    """Texts of several pieces, in which tokens, runs and blanks lie on the edges of pieces."""
    word, piece = "Wörter und words, ", ngrams.PIECE
    yield word * (3 * piece // len(word))
    for shift in range(4):
        edge = "x " * (piece // 2 - 3) + "." * shift
        yield from (
            edge + tail + " end" for tail in ("ends", "ﬃ" * 9, "語の" * piece, "é" * piece, "a" * 3 * piece)
        )
        yield from (
            edge + tail + "end"
            for tail in (" \n" * piece, " ." * piece, "\u0301" * piece, "各" * 3 + "x" * 20)
        )


@pytest.mark.parametrize("unit", ["word", "char"])
def test_long_texts_have_the_same_signatures_as_in_one_piece(unit):
    batch = list(long_texts())
    tokens = [oracle.tokens(text, unit) for text in batch]
    assert rows(*hash_tokens(column(*batch), unit=unit)) == [
        list(map(oracle.hash_token, found)) for found in tokens
    ]
    for n in (1, 5, 30_000):
        values, _ = sign_tokens(column(*batch), ngram=n, unit=unit, num_perm=3, seed=0)
        a, b = multiply_add(0, 3)
        found = rows(*hash_shingles(column(*batch), ngram=n, unit=unit))
        hashes = [np.array(shingles, np.uint64) >> np.uint64(32) for shingles in found]
        minima = [(a * part.astype(np.uint32)[:, None] + b).min(axis=0) for part in hashes]
        np.testing.assert_array_equal(values, minima)


def test_estimates_are_unbiased():
    """Mean error and mean square error over pairs of all similarities and seeds, against those of independent permutations."""
    draws = random.Random(3)
    words = [f"word{k}" for k in range(5000)]
    errors, variances = [], []
    for seed in range(8):
        pairs = []
        for _ in range(60):
            original = draws.choices(words, k=draws.randint(40, 400))
            rate = draws.choice([0.01, 0.02, 0.05, 0.1])
            copy = [draws.choice(words) if draws.random() < rate else word for word in original]
            pairs += [" ".join(original), " ".join(copy)]
        values, _ = sign_tokens(column(*pairs), ngram=5, unit="word", num_perm=128, seed=seed)
        estimates = (values[::2] == values[1::2]).mean(axis=1)
        sets = [set(zip(*(text.split()[first:] for first in range(5)), strict=False)) for text in pairs]
        truth = np.array([oracle.jaccard(*two) for two in zip(sets[::2], sets[1::2], strict=True)])
        errors.append(estimates - truth)
        variances.append(truth * (1 - truth) / 128)
    error, variance = np.concatenate(errors), np.concatenate(variances)
    assert abs(error.sum()) < 4 * np.sqrt(variance.sum())
    assert 0.8 < (error**2).sum() / variance.sum() < 1.25
