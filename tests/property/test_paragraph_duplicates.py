"""Items of paragraphs, and the spans that they make, are those of plain Python."""

from collections import defaultdict
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import tagger_oracles
from hypothesis import example, given
from hypothesis import strategies as st
from oracles.uniseg import words as unicode_words

from dolma_dask.exchange.contract import key_dtype
from dolma_dask.testing.taggers import WILD_TEXTS
from dolma_dask.verbs.dedupe.paragraphs import job as module
from dolma_dask.verbs.dedupe.paragraphs.copies import CopiesReducer
from dolma_dask.verbs.dedupe.paragraphs.job import Paragraphs, cut, item_keys


def words(text):
    return [word for word in unicode_words(text) if word.strip()]


def items_of(paragraph, how):
    """Return the names of what is compared of a paragraph that takes part."""
    if (
        (how.skip_empty and not paragraph.strip())
        or len(paragraph) < how.min_length
        or (how.min_words and len(words(paragraph)) < how.min_words)
    ):
        return []
    if not how.ngram:
        return [paragraph]
    found = words(paragraph)
    grams = [tuple(found[k : k + how.ngram]) for k in range(len(found) - how.ngram + 1)]
    taken = [gram for k, gram in enumerate(grams) if k == 0 or (k - 1) % how.stride == 0]
    return taken if len(taken) > 1 or how.skip_short else [paragraph]


HOWS = st.builds(
    Paragraphs,
    separator=st.sampled_from(["\n", "\n\n", "a", "--", "é", "\r\n"]),
    skip_empty=st.booleans(),
    min_length=st.integers(0, 3),
    min_words=st.integers(0, 2),
    ngram=st.integers(0, 3),
    stride=st.integers(1, 3),
    skip_short=st.booleans(),
)
REPEATED = st.lists(
    st.sampled_from(["a", "b c", "b  c", "é.", "\n", "\n\n", " ", "--", "語語", "\r\n", "a b c a b c"]),
    max_size=12,
)
TEXTS = st.lists(REPEATED.map("".join) | tagger_oracles.texts, max_size=5)


@given(texts=TEXTS, how=HOWS, data=st.data(), part=st.sampled_from([1, 40, 1 << 22]))
@example(texts=list(WILD_TEXTS), how=Paragraphs(ngram=2), data=None, part=64)
def test_items_are_those_of_plain_python(texts, how, data, part):
    kept = (
        [True] * len(texts)
        if data is None
        else data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART_BYTES", part)
        pieces = cut(pa.array(["before", *texts], pa.large_string()).slice(1), np.array(kept, np.bool_), how)
        runs = list(item_keys(pieces, how))
    ends = np.cumsum(pieces.widths)
    names = []
    for row, text in enumerate(texts):
        inside = slice(pieces.bounds[row], pieces.bounds[row + 1])
        parts = text.split(how.separator)
        assert pieces.widths[inside].sum() == len(text)
        assert pieces.texts[inside].to_pylist() == parts
        last = len(parts) - 1  # one of no width has nothing to be compared
        own = [
            items_of(one, how) if kept[row] and (one or number < last) else []
            for number, one in enumerate(parts)
        ]
        assert pieces.items[inside].tolist() == list(map(len, own))
        names += [name for found in own for name in found]
    assert len(ends) == 0 or (np.diff(ends) >= 0).all()
    assert [run[:2] for run in runs] == [
        (a, b) for a, b in zip([0, *(run[1] for run in runs)], [run[1] for run in runs], strict=False)
    ]
    keys = [pair for _, _, high, low in runs for pair in zip(high.tolist(), low.tolist(), strict=True)]
    assert len(keys) == len(names)
    assert len(set(zip(names, keys, strict=True))) == len(set(names)) == len(set(keys))


RECORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)), max_size=40)


@given(rows=RECORDS, cuts=st.lists(st.integers(0, 40)), least=st.integers(2, 3))
def test_places_of_what_enough_documents_have(rows, cuts, least):
    """However the records are cut into runs."""
    records = np.zeros(len(rows), key_dtype("document"))
    for place, row in enumerate(sorted(rows)):
        records[place] = (*row, place)
    documents = defaultdict(set)
    for record in records.tolist():
        documents[record[:2]].add(record[2])
    bounds = sorted({0, len(records), *(one for one in cuts if one < len(records))})
    runs = [records[a:b] for a, b in pairwise(bounds)]
    given_out: list[int] = []
    info = CopiesReducer(least).reduce(runs, lambda flags: given_out.extend(flags["location"].tolist()))
    expected = [record[3] for record in records.tolist() if len(documents[record[:2]]) >= least]
    assert sorted(given_out) == expected
    assert info["repeated"] == sum(len(known) >= least for known in documents.values())
    msgspec.json.encode(info)


@given(rows=RECORDS)
def test_items_that_are_there_once_make_no_difference(rows):
    assert CopiesReducer.only_shared
    records = np.zeros(len(rows), key_dtype("document"))
    for place, row in enumerate(sorted(rows)):
        records[place] = (*row, place)
    words, counts = np.unique(records["hi"], return_counts=True)
    shared = records[np.isin(records["hi"], words[counts > 1])]
    assert copies_in(shared) == copies_in(records)


def copies_in(records):
    """Return the places of items that two documents have."""
    given_out: list[int] = []
    runs = [records] if len(records) else []
    CopiesReducer(2).reduce(runs, lambda flags: given_out.extend(flags["location"].tolist()))
    return given_out
