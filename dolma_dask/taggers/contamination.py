"""The tagger ``contamination``: which stretches of a text stand in benchmarks that the user gives.

As for GPT-3 (Brown et al. 2020, appendix C) texts are compared by n-grams of 13 words without case and punctuation, and an item of fewer words, down to 8, as a whole. Words are those of
`dolma_dask.minhash.tokens`: runs of letters, marks and digits, in folded case and without diacritics; a character of a script without spaces is a word. They are compared by hashes; `dolma_dask.text.ngram_table`
has the odds.

A stretch is all words on end that n-grams of benchmarks cover, each of which shares a word with the one before it, or stands behind it with no more than `NEAR` characters between them. Where the n-gram of an item stands in items before it of the same benchmark, the first of them has it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.minhash.ngrams import hash_tokens
from dolma_dask.minhash.places import token_places
from dolma_dask.taggers.base import LABELLED_SPANS, SPANS, Kind, ViewTagger
from dolma_dask.taggers.contamination_found import ITEMS, SHARE, Found
from dolma_dask.text.kernels import Counts, Floats, Words
from dolma_dask.text.ngram_table import NgramTable, Numbers
from dolma_dask.text.stretches import Stretches
from dolma_dask.text.view import TextView

NEAR = 16
"""Characters between two n-grams of one stretch that share no word: the end of a sentence or line, no table, drawing or rule."""


class Benchmarks(Struct, frozen=True, eq=False):
    """The items of some benchmarks, and their n-grams."""

    names: tuple[str, ...]
    table: NgramTable
    benchmark_of: Numbers  # (items,) number of the name
    rows: Numbers  # (items,) line or row in its file, from 1
    totals: tuple[
        tuple[int, int, int], ...
    ]  # of each benchmark: items, those compared whole, those not compared


class Against(Protocol):
    """Benchmarks of the user's; small, goes to workers."""

    @property
    def params(self) -> Mapping[str, Any]:
        """What decides the outcome, for keys."""
        ...

    def opened(self) -> Benchmarks:
        """Return them, once for each process."""
        ...


def _words(view: TextView) -> tuple[Counts, Words]:
    if "folded words" not in view.kept:
        view.kept["folded words"] = hash_tokens(view.texts, unit="word")
    found: tuple[Counts, Words] = view.kept["folded words"]
    return found


def _compare(against: Against, view: TextView) -> Iterator[pa.Array]:
    """Yield the columns of the tagger."""
    known, (bounds, words) = against.opened(), _words(view)
    found = known.table.find(words, bounds)
    if not len(found.places):
        yield from _clean(len(view))
        return
    rows = np.searchsorted(bounds, found.places, "right") - 1
    moved, starts, ends = _placed(view, bounds, rows, found.places + found.sizes)
    places = found.places + moved[rows]
    stops = places + found.sizes
    lengths = np.maximum(view.lengths, 1)
    is_near = np.append(True, starts[1:] - ends[:-1] <= NEAR)

    every = Stretches.of(rows, places, stops, is_near)
    begins, sizes = starts[every.starts], ends[every.stops - 1] - starts[every.starts]
    words_of_each = (every.stops - every.starts).astype(np.float64)
    yield _spans(len(view), every.keys, begins, begins + sizes, words_of_each)
    yield np.bincount(every.keys, sizes, len(view)) / lengths

    names, benchmarks = len(known.names), known.benchmark_of[found.items].astype(np.int64)
    every = Stretches.of(rows * names + benchmarks, places, stops, is_near)
    pairs, inverse = np.unique(every.keys, return_inverse=True)
    sums = np.bincount(inverse, ends[every.stops - 1] - starts[every.starts])
    owners, own = pairs // names, pairs % names
    yield _numbers(len(view), owners, _labels(known.names, "shares"), own, sums / lengths[owners])

    items = len(known.rows)
    every = Stretches.of(rows * items + found.items, places, stops, is_near)
    owners, own = every.keys // items, every.keys % items
    begins, stretch_ends, scores = (
        starts[every.starts],
        ends[every.stops - 1],
        known.rows[own].astype(np.float64),
    )
    labels, of_items = _labels(known.names, "items"), known.benchmark_of[own]
    yield _spans(len(view), owners, begins, stretch_ends, scores, labels, of_items)

    most = _most_hit(rows, found.items, len(view), items)
    first, lacks = np.maximum(most, 0), most < 0
    names_of_all = pa.array(known.names, pa.large_string())
    yield names_of_all.take(pa.array(known.benchmark_of[first], mask=lacks))
    yield pa.array(known.rows[first].astype(np.float64), mask=lacks)


def _clean(texts: int) -> Iterator[pa.Array]:
    """Yield the same of texts without matches."""
    nothing = np.empty(0, np.int64)
    yield pa.nulls(texts, SPANS)
    yield pa.array(np.zeros(texts))
    yield _numbers(texts, nothing, (), nothing, np.empty(0))
    yield from (pa.nulls(texts, kind) for kind in (LABELLED_SPANS, pa.large_string(), pa.float64()))


def _placed(view: TextView, bounds: Counts, rows: Counts, stops: Counts) -> tuple[Counts, Counts, Counts]:
    """Return how far the words of each text (n,) move when only those up to the last match of texts with matches are left, and where all of these begin and end."""
    reached = np.zeros(len(view), np.int64)
    np.maximum.at(reached, rows, stops - bounds[rows])
    chosen = np.flatnonzero(reached)
    own, starts, ends = token_places(view.texts.take(pa.array(chosen)), reached[chosen])
    moved = np.zeros(len(view), np.int64)
    moved[chosen] = own[:-1] - bounds[chosen]
    return moved, starts, ends


def _most_hit(rows: Counts, items: Counts, texts: int, number: int) -> Counts:
    """Return the item of most n-grams in each text (n,), the first of several; -1 where there is none."""
    pairs, counts = np.unique(rows * number + items, return_counts=True)
    order = np.lexsort((pairs, -counts, pairs // number))
    owners, first = np.unique(pairs[order] // number, return_index=True)
    most = np.full(texts, -1, np.int64)
    most[owners] = pairs[order][first] % number
    return most


def _offsets(rows: Counts, texts: int) -> pa.Array:
    return pa.array(np.searchsorted(rows, np.arange(texts + 1)), pa.int32())


def _numbers(texts: int, rows: Counts, labels: Sequence[str], numbers: Counts, values: Floats) -> pa.MapArray:
    """Return labelled numbers by text; `rows` rise."""
    keys = pa.array(labels, pa.string()).take(pa.array(numbers))
    return pa.MapArray.from_arrays(_offsets(rows, texts), keys, pa.array(values))


def _spans(
    texts: int, rows: Counts, begins: Counts, ends: Counts, scores: Floats,
    labels: Sequence[str] = (), numbers: Numbers | None = None,
) -> pa.ListArray:  # fmt: skip
    """Return spans by text, sorted by where they begin, each under its label if there are any."""
    order = np.lexsort((scores, ends, begins, rows))
    fields = [pa.array(column[order]) for column in (begins, ends, scores)]
    kind = SPANS
    if numbers is not None:
        kind = LABELLED_SPANS
        fields.insert(0, pa.array(labels, pa.string()).take(pa.array(numbers[order])))
    offsets = _offsets(rows[order], texts)
    lacks = pa.array(np.diff(np.asarray(offsets)) == 0)
    spans = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(offsets, spans, mask=lacks)


def _with_benchmarks(against: Against) -> Mapping[str, Any]:
    """Return the fields of the tagger that compares with these benchmarks."""
    return {"function": partial(_compare, against), "labels": partial(_labels, against.opened().names)}


def _labels(names: Sequence[str], type: str) -> list[str]:
    """Return all labels that a column of a type may have."""
    prefix = {"shares": SHARE, "items": ITEMS}[type]
    return [f"{prefix}{name}" for name in names]


def _nothing(view: TextView) -> Sequence[pa.Array]:
    raise UsageError("this tagger needs benchmarks; expected them from `ViewTagger.with_against`.")


_TYPES: Mapping[str, Kind] = {
    "stretches": "spans",
    "share": "document",
    "shares": "labels",
    "items": "labels",
    "benchmark": "scalar",
    "item": "document",
}

TAGGERS = (
    ViewTagger(
        "contamination",
        _TYPES,
        _nothing,
        version=2,
        description="What of the text stands in benchmarks of yours, by n-grams of 13 words: where, how much, of which items.",
        meanings={
            "stretches": "each run of words that n-grams of benchmarks cover, and how many words it has",
            "share": "characters in stretches, by those of the text; 0 without any",
            "shares": f"the same for each benchmark, as {SHARE}NAME; no key where it has nothing",
            "items": f"where items of each benchmark stand, as {ITEMS}NAME: each score is the row of an item in its file, from 1",
            "benchmark": "that of the item with most n-grams in the text",
            "item": "the row of this item in its file, from 1",
        },
        source="files of benchmarks",
        against=_with_benchmarks,
        tally=Found,
    ),
)
