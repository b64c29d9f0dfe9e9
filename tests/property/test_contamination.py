"""Words stand where their hashes are from; the tagger finds what a look at every place finds, whatever batch a text is in; and passes what every tagger should pass."""

import numpy as np
import pyarrow as pa
import pytest
import token_oracle
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import contamination as oracle

from dolma_dask.minhash.ngrams import hash_tokens
from dolma_dask.minhash.places import token_places
from dolma_dask.taggers.contamination import Benchmarks
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.testing.taggers import WILD_TEXTS, TaggerTests
from dolma_dask.text.ngram_table import NgramTable


def column(*texts):
    return pa.array(texts, pa.large_string())


class Given:
    """Benchmarks that are made here: even and odd items of two, each a list of texts."""

    def __init__(self, items, ngram, least):
        self.params, self._arguments = {"items": items}, (items, ngram, least)

    def opened(self):
        items, ngram, least = self._arguments
        bounds, words = hash_tokens(column(*(text for item in items for text in item)), unit="word")
        owners = np.repeat(np.arange(len(items)), [len(item) for item in items])
        groups = np.arange(len(items)) % 2
        table = NgramTable.of(words, bounds, owners, groups, ngram=ngram, least=least)
        rows = np.arange(1, len(items) + 1, dtype=np.uint32)
        total = (len(items), 0, 0)
        return Benchmarks(oracle.NAMES, table, groups.astype(np.uint32), rows, (total, total))


@given(batch=st.lists(token_oracle.texts, min_size=1, max_size=3), skip=st.integers(0, 1))
@example(batch=list(WILD_TEXTS), skip=1)
def test_words_stand_where_their_hashes_are_from(batch, skip):
    texts = column("before", *batch).slice(skip)
    bounds, starts, ends = token_places(texts)
    assert bounds.tolist() == hash_tokens(texts, unit="word")[0].tolist()
    first = np.diff(bounds) // 2
    own, *some = token_places(texts, first)
    for begin, count, begin_here in zip(bounds, first, own, strict=False):
        for all_places, places in zip((starts, ends), some, strict=True):
            assert places[begin_here:][:count].tolist() == all_places[begin:][:count].tolist()
    for row, text in enumerate(["before", *batch][skip:]):
        inside = slice(bounds[row], bounds[row + 1])
        places = list(zip(starts[inside].tolist(), ends[inside].tolist(), strict=True))
        assert places == sorted(places)
        assert all(
            word in token_oracle.tokens(text[a:b])
            for word, (a, b) in zip(token_oracle.tokens(text), places, strict=True)
        )


@given(
    items=st.lists(st.lists(oracle.texts, max_size=2), max_size=6),
    batch=st.lists(st.lists(oracle.texts, max_size=2).map("; ".join), min_size=1, max_size=4),
    copied=st.integers(0, 99),
    sizes=st.sampled_from([(2, 1), (3, 3), (4, 2), (13, 8)]),
)
@example(items=[["a B ab-c"]], batch=["a B ab c" + "=/" * 2_000], copied=0, sizes=(4, 2))
@example(items=[["a b"], ["c d"]], batch=[f"a b{'-' * n}c d" for n in (16, 17)], copied=0, sizes=(2, 2))
def test_tagger_finds_what_a_look_at_every_place_finds(items, batch, copied, sizes):
    if items and items[copied % len(items)]:
        batch = [*batch, f"{batch[0]} {items[copied % len(items)][0]} {batch[-1]}"]
    tagger = get_tagger("contamination").with_against(Given(items, *sizes))
    found = tagger(pa.RecordBatch.from_arrays([column(*batch)], names=["text"])).to_pylist()
    known = oracle.table_of(items, *sizes)
    for row, text in zip(found, batch, strict=True):
        _, starts, ends = token_places(column(text))
        places = list(zip(starts.tolist(), ends.tolist(), strict=True))
        expected = oracle.contamination(text, places, known)
        row = {
            **row,
            "shares": row["shares"],
            "items": row["items"] and sorted(row["items"], key=_order),
        }
        assert row == {**expected, "items": expected["items"] and sorted(expected["items"], key=_order)}


def _order(span):
    return span["start"], span["end"], span["score"]


class TestContamination(TaggerTests):
    @pytest.fixture
    def tagger(self):
        return get_tagger("contamination").with_against(Given([[text] for text in WILD_TEXTS[5:]], 3, 2))
