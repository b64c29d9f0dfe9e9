"""Weights of importance are those of the published formula, with words by `re` and the hash in plain Python; draws are those of Gumbel's distribution."""

import io
import itertools
import math
import re
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import tagger_oracles
import token_oracle
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dolma_dask.errors import DataError, UsageError
from dolma_dask.rules.sampling import document_hashes
from dolma_dask.taggers.importance import BUCKETS, BucketCounts, _chance, count_buckets
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.testing.taggers import WILD_TEXTS, TaggerTests, can_be_called
from dolma_dask.text.view import TextView

MASK = (1 << 64) - 1
FACTOR = 0x9E3779B97F4A7C15


def column(*texts):
    return pa.array(texts, pa.large_string())


def hash_of(word):
    data = word.encode()
    state = len(data) * FACTOR & MASK
    for at in range(0, len(data), 8):
        eight = int.from_bytes(data[at : at + 8], "little")
        state = ((state ^ (eight * 0xC2B2AE3D27D4EB4F & MASK)) * 0x9E3779B185EBCA87) & MASK
        state = ((state << 31) | (state >> 33)) & MASK
    return token_oracle.mix(state)


def features(text):
    counts = np.zeros(BUCKETS)
    hashes = list(map(hash_of, re.findall(r"\w+|[^\w\s]+", text)))
    for one in hashes:
        counts[one % BUCKETS] += 1
    for one, other in itertools.pairwise(hashes):
        counts[token_oracle.mix((one + other * FACTOR) & MASK) % BUCKETS] += 1
    return counts


def weight(text, target, source):
    ratios = np.log(target / target.sum() + 1e-8) - np.log(source / source.sum() + 1e-8)
    return float(np.dot(features(text), ratios))


def file_of(counts):
    content = msgspec.json.encode(BucketCounts(1, 1, counts.astype(int).tolist()))
    return partial(io.BytesIO, content)


def loaded(**texts):
    files = {f"importance/{name}.json": file_of(features(text)) for name, text in texts.items()}
    return get_tagger("importance").with_files(files)


texts = tagger_oracles.texts | st.lists(st.sampled_from(["a", "B", "the end", "é.", "…", "x_1", "語の"])).map(
    " ".join
)


@settings(max_examples=20)
@given(
    batch=st.lists(texts, min_size=1, max_size=3),
    words=st.tuples(texts, texts, texts),
    skip=st.integers(0, 1),
)
@example(batch=list(WILD_TEXTS), words=("a b", "the cat", "x y z"), skip=1)
def test_weights_are_those_of_the_formula(batch, words, skip):
    given = dict(zip(("source", "books", "wiki"), (f"{text} a" for text in words), strict=True))
    ids = column(*(str(row) for row in range(len(batch))))
    rows = pa.RecordBatch.from_arrays([column(*batch), ids, ids], names=["text", "source", "id"]).slice(skip)
    tagged = loaded(**given)(rows)
    source, books, wiki = map(features, given.values())
    counts = np.zeros(BUCKETS, np.int64)
    words = count_buckets(TextView(rows.column("text")), counts)
    assert counts.tolist() == sum((features(text) for text in batch[skip:]), np.zeros(BUCKETS)).tolist()
    assert words == sum(len(re.findall(r"\w+|[^\w\s]+", text)) for text in batch[skip:])
    hashes = document_hashes(ids, ids, 1).tolist()[skip:]
    for text, weights, draws, one in zip(
        batch[skip:], *map(pa.Array.to_pylist, tagged.columns), hashes, strict=True
    ):
        expected = [
            ("importance_books", weight(text, books, source)),
            ("importance_wiki", weight(text, wiki, source)),
        ]
        assert [name for name, _ in weights] == [name for name, _ in expected]
        assert [number for _, number in weights] == pytest.approx(
            [number for _, number in expected], rel=1e-12, abs=1e-9
        )
        chance = -math.log(-math.log(((one >> 12) + 0.5) / 2**52))
        assert draws == [(f"draw_{name.partition('_')[2]}", number + chance) for name, number in weights]


def test_draws_follow_the_weights():
    """Of documents that weigh ln 3 more, three times as many have the largest draw of a pair."""
    hashes = document_hashes(column(*["s"] * 20_000), column(*map(str, range(20_000))), 1)
    chance = _chance(hashes)
    assert np.isfinite(_chance(np.array([0, MASK], np.uint64))).all()
    assert (chance[::2] + math.log(3) > chance[1::2]).mean() == pytest.approx(0.75, abs=0.015)
    assert chance.mean() == pytest.approx(0.5772, abs=0.03)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"importance/source.json": features("a")},
            r"found counts of source; expected importance/source\.json",
        ),
        ({"importance/a.json": features("a"), "importance/b.json": features("a")}, "found counts of a, b"),
        ({"importance/source.json": features("")}, "counts no word"),
        ({"importance/source.json": np.ones(3)}, "expected counts of 10,000 buckets"),
    ],
)
def test_files_that_say_nothing_are_refused(files, message):
    with pytest.raises((DataError, UsageError), match=message):
        get_tagger("importance").with_files({name: file_of(counts) for name, counts in files.items()})
    assert not can_be_called("importance")


class TestImportance(TaggerTests):
    @pytest.fixture
    def tagger(self):
        return loaded(source="a b c", wiki="the cat", books=WILD_TEXTS[-1])
