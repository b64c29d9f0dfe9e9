"""The tagger ``importance``: how much likelier a text is in a target than in a source, by hashed words and pairs of words, as DSIR has it (Xie et al. 2023, "Data Selection for Language Models via Importance Resampling").

Formula and constants are those of RedPajama-V2 (``importance_weights.py``): words are ``re.findall(r"\\w+|[^\\w\\s]+", text)`` with their case; they and the pairs of neighbours are counted in 10,000 buckets by
a hash; with p a bucket's share of all counts, the weight is the sum of ``count * (ln(p_target + 1e-8) - ln(p_source + 1e-8))`` over the buckets, rounded to 8 decimals and not divided by the length. The hash is
another one: the original takes that of a Python with a certain seed, so its published weights can be attached, but not made anew.

Of DSIR's resampling without replacement: the documents that it draws are those with the largest weight plus a number of Gumbel's distribution. That number follows here from source and id, so that no row depends on another.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.rules.sampling import document_hashes
from dolma_dask.taggers.base import NUMBERS_BY_NAME, Open, Scorer, ViewTagger
from dolma_dask.taggers.labels import check_names
from dolma_dask.taggers.word_lists import chain
from dolma_dask.text.bits import hash_bytes
from dolma_dask.text.kernels import Bytes, Counts, Floats, Int, Words, kernel
from dolma_dask.text.tables import SPACE, STR_WORD, char_class, decode, load_str_classes
from dolma_dask.text.view import TextView

BUCKETS = 10_000
HASH = "dolma_dask 1"
"""Name of the hash and of what are words, in count files: those of another one are refused."""
SOURCE = "source"
"""Name of the count file of what documents are drawn from; all others are of targets."""

_SMOOTHING = 1e-8
_DECIMALS = 8
_SEED = 1  # of the numbers of chance: not that of `sample`
_MANTISSA = 52


class BucketCounts(Struct, frozen=True, tag_field="hash", tag=HASH):
    """How often words and pairs of words of some documents fall into each bucket."""

    documents: int
    words: int
    counts: Annotated[
        list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=BUCKETS, max_length=BUCKETS)
    ]

    def logarithms(self) -> Floats:
        """Return the logarithm of each bucket's share (buckets,)."""
        total = sum(self.counts)
        return np.array([math.log(count / total + _SMOOTHING) for count in self.counts])


class Classes(NamedTuple):
    """Classes of characters: `load_str_classes` of `dolma_dask.text.tables`."""

    numbers: Bytes
    blocks: Bytes


@kernel
def _count_text(data: Bytes, at: Int, end: Int, classes: Classes, counts: Counts) -> Int:
    """Add the words of a text, and their pairs, to the buckets; return how many words there are."""
    words: Int = 0
    before = np.uint64(0)
    while at < end:
        code, width = decode(data, at)
        kind = char_class(classes.numbers, classes.blocks, code) & (SPACE | STR_WORD)
        begin: Int = at
        same = kind
        while same == kind:
            at += width
            if at >= end:
                break
            code, width = decode(data, at)
            same = char_class(classes.numbers, classes.blocks, code) & (SPACE | STR_WORD)
        if kind & SPACE:
            continue
        word = hash_bytes(data, begin, at)
        counts[word % np.uint64(counts.size)] += 1
        if words:
            counts[chain(before, word) % np.uint64(counts.size)] += 1
        before = word
        words += 1
    return words


@kernel
def _count_all(data: Bytes, offsets: Counts, classes: Classes, counts: Counts) -> Int:
    words: Int = 0
    for row in range(offsets.size - 1):
        words += _count_text(data, offsets[row], offsets[row + 1], classes, counts)
    return words


@kernel
def _weigh(
    data: Bytes, offsets: Counts, classes: Classes, counts: Counts, ratios: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> None:  # fmt: skip
    """Set the weights (targets, n) of texts by the logarithms of ratios (targets, buckets); `counts` is scratch."""
    for row in range(offsets.size - 1):
        for bucket in range(counts.size):
            counts[bucket] = 0
        _count_text(data, offsets[row], offsets[row + 1], classes, counts)
        for target in range(ratios.shape[0]):
            total = 0.0
            for bucket in range(counts.size):
                total += counts[bucket] * ratios[target, bucket]
            weights[target, row] = total


def count_buckets(view: TextView, counts: Counts) -> int:
    """Add the words and pairs of words of texts to the buckets (10,000,); return how many words there are."""
    return int(_count_all(view.data, view.offsets, Classes(*load_str_classes()), counts))


def read_counts(open_file: Open, name: str) -> BucketCounts:
    """Read a count file; raise `UsageError` if it is none, or counts nothing."""
    with open_file() as file:
        try:
            found = msgspec.json.decode(file.read(), type=BucketCounts)
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{name}: {error}; expected counts of {BUCKETS:,} buckets. Make them anew: dolma-dask word-buckets DATASET --to {PurePosixPath(name).name}",
                name=name,
            ) from None
    if not any(found.counts):
        raise UsageError(
            f"{name} counts no word; expected those of a dataset with some. Make it anew.", name=name
        )
    return found


def _load(files: Mapping[str, Open]) -> Scorer:
    """Return what weighs texts for each target."""
    known = {
        PurePosixPath(name).stem: read_counts(open_file, name) for name, open_file in sorted(files.items())
    }
    if SOURCE not in known or len(known) < 2:
        raise UsageError(
            f"found counts of {', '.join(known)}; expected importance/{SOURCE}.json, of what documents are drawn from, and one or more others, of targets. Make them: "
            "dolma-dask word-buckets DATASET --to FILE"
        )
    source = known.pop(SOURCE).logarithms()
    check_names(list(known), "targets")
    return partial(
        _score, tuple(known), np.array([target.logarithms() - source for target in known.values()])
    )


def _score(
    names: tuple[str, ...], ratios: Floats, view: TextView, source: pa.Array, identity: pa.Array
) -> Iterator[pa.Array]:
    """Yield the weights, and the same with a number of chance."""
    weights = np.empty((len(names), len(view)))
    scratch = np.empty(BUCKETS, np.int64)
    _weigh(view.data, view.offsets, Classes(*load_str_classes()), scratch, ratios, weights)
    yield _labelled([f"importance_{name}" for name in names], weights)
    yield _labelled(
        [f"draw_{name}" for name in names], weights + _chance(document_hashes(source, identity, _SEED))
    )


def _chance(hashes: Words) -> Floats:
    """Return a number of Gumbel's distribution for each hash (n,)."""
    shares = ((hashes >> np.uint64(64 - _MANTISSA)).astype(np.float64) + 0.5) / 2.0**_MANTISSA
    return np.array([-math.log(-math.log(share)) for share in shares.tolist()])


def _labelled(labels: list[str], numbers: Floats) -> pa.MapArray:
    """Return numbers (labels, n) by label."""
    rows = numbers.shape[1]
    keys = pa.array(labels, pa.string()).take(pa.array(np.tile(np.arange(len(labels)), rows)))
    offsets = pa.array(np.arange(rows + 1) * len(labels), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, pa.array(numbers.T.reshape(-1)))


def _no_counts(view: TextView, source: pa.Array, identity: pa.Array) -> list[pa.Array]:
    return [pa.nulls(len(view), NUMBERS_BY_NAME)] * 2


TAGGERS = (
    ViewTagger(
        "importance",
        {"weights": "labels", "draws": "labels"},
        _no_counts,
        description="How much likelier the text is in targets of yours than in what it is drawn from, by hashed words and pairs of words (DSIR).",
        meanings={
            "weights": "the logarithm of the ratio for each target, as importance_NAME; longer texts have larger ones, above and below 0",
            "draws": "the same with a number of chance, as draw_NAME: the k documents with the largest are what DSIR draws",
        },
        reads=("text", "source", "id"),
        decimals=_DECIMALS,
        files=("importance/*.json",),
        load=_load,
        loads_first=True,
        source="dolma-dask word-buckets makes one of a dataset: importance/source.json of what documents are drawn from, and importance/NAME.json of each target.",
        differs="Another hash: weights that RedPajama-V2 has published can be attached, but not made anew.",
    ),
)
