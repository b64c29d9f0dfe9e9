"""Sampling of documents: those whose hash of source and id is small, so that no row depends on another.

The same documents are selected however the dataset is cut, and a smaller fraction selects some of those of a larger one. Downsampling
(`dolma_dask.rules.downsampling`) ranks documents by the same hash. It is xxHash64 of the id, seeded with the xxHash64 of the source under the seed (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
Cost: 11 ns per document with an id of 20 bytes.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.errors import UsageError
from dolma_dask.rules.groups import label_of, places_of
from dolma_dask.text.bits import address_of
from dolma_dask.text.columns import string_parts, validity
from dolma_dask.text.kernels import Bools, Bytes, Counts, Int, Words, kernel
from dolma_dask.text.xxh3 import P64_1, P64_2, P64_3, P64_4, avalanche64, word32, word64

_P5 = np.uint64(0x27D4EB2F165667C5)

Sample = float | Mapping[str, float]
"""Fraction of the documents, or of those of some groups by label."""

_ZERO = np.uint64(0)
_BITS = np.uint64(64)
_LANE = 8
_STRIPE = 32


def check_fraction(sample: float | None) -> float | None:
    """Return the fraction of documents to sample, None for all of them; raise `UsageError` if it is none."""
    if sample is None:
        return None
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 < sample <= 1:
        raise UsageError(
            f"sample={sample!r}; expected a fraction of the documents, above 0 and at most 1, such as 0.01."
        )
    return None if sample == 1 else float(sample)


def read_sample(given: float | Mapping[str, float] | Sequence[str] | None) -> Sample | None:
    """Return the fraction of documents to sample, or that of each group, from numbers or from words such as ``0.01`` or ``en=0.0002``; None for all of them.

    Raises `UsageError`: it is none of these.
    """
    if given is None or isinstance(given, int | float):
        return check_fraction(given)
    if isinstance(given, Mapping):
        pairs = [(label_of(label) or "", value) for label, value in given.items()]
    else:
        words = [given] if isinstance(given, str) else [str(word) for word in given]
        if len(words) == 1 and "=" not in words[0]:
            return check_fraction(_number(words[0]))
        pairs = [(label, _number(value)) for label, _, value in (word.rpartition("=") for word in words)]
    fractions = {label: check_fraction(value) or 1.0 for label, value in pairs}
    if not fractions or len(fractions) < len(pairs) or "" in fractions:
        raise UsageError(
            f"sample={given!r}; expected a fraction such as 0.01, or one for each group, once: en=0.0002 de=0.0005."
        )
    return fractions


def _number(word: str) -> Any:
    with suppress(ValueError):
        return float(word)
    return word


def sample_in_words(sample: Sample) -> str:
    """Return a sample as people give it."""
    if isinstance(sample, Mapping):
        return " ".join(f"{label}={fraction:g}" for label, fraction in sample.items())
    return f"{sample:g}"


def sampled_by_group(
    source: pa.Array, identity: pa.Array, labels: pa.Array, fractions: Mapping[str, float], seed: int
) -> pa.BooleanArray:
    """Tell which documents (n,) are in a sample of a fraction of each group; documents of other groups, and those without one, all are."""
    limits = [_limit(fraction) if fraction < 1 else None for fraction in fractions.values()]
    places = places_of(labels, list(fractions))
    is_whole = np.array([limit is None for limit in limits] + [True])
    below = np.array([limit or 0 for limit in limits] + [0], np.uint64)
    hashes = document_hashes(source, identity, seed)
    return pa.array((is_whole[places] | (hashes < below[places])) & validity(identity))


def _limit(fraction: float) -> int:
    return int(fraction * 2.0**64)


def sampled(source: pa.Array, identity: pa.Array, fraction: float, seed: int) -> pa.BooleanArray:
    """Tell which documents (n,) are in a sample of a fraction below 1, by their sources and ids; one without id, which could not be read, is in none."""
    limit = np.uint64(_limit(fraction))
    return pa.array((document_hashes(source, identity, seed) < limit) & validity(identity))


def document_hashes(source: pa.Array, identity: pa.Array, seed: int) -> npt.NDArray[np.uint64]:
    """Return the hash of each document (n,) by its source and id; a missing source counts as an empty one, and 0 stands for a document without id."""
    found = np.zeros(len(identity), np.uint64)
    _hash_documents(
        *string_parts(source),
        *string_parts(identity),
        np.uint64(seed),
        np.array(validity(source)),
        np.array(validity(identity)),
        found,
    )
    return found


def hashes(identity: pa.Array, seed: int) -> Words:
    """Return the hash of each id (n,) under a seed; those that are missing count as empty."""
    found = np.empty(len(identity), np.uint64)
    _hash(*string_parts(identity), np.uint64(seed), found)
    return found


@kernel
def _rotated(word: np.uint64, bits: np.uint64) -> np.uint64:
    return (word << bits) | (word >> (_BITS - bits))


@kernel
def _round(state: np.uint64, word: np.uint64) -> np.uint64:
    return _rotated(state + word * P64_2, np.uint64(31)) * P64_1


@kernel
def _merged(state: np.uint64, lane: np.uint64) -> np.uint64:
    return (state ^ _round(_ZERO, lane)) * P64_1 + P64_4


@kernel
def xxh64(data: Bytes, start: Int, stop: Int, seed: np.uint64) -> np.uint64:
    """Return the xxHash64 of ``data[start:stop]``."""
    base = address_of(data)
    at = start
    if stop - start >= _STRIPE:
        one, two, three, four = seed + P64_1 + P64_2, seed + P64_2, seed, seed - P64_1
        while at + _STRIPE <= stop:
            one = _round(one, word64(base + at))
            two = _round(two, word64(base + at + 8))
            three = _round(three, word64(base + at + 16))
            four = _round(four, word64(base + at + 24))
            at += _STRIPE
        state = _rotated(one, np.uint64(1)) + _rotated(two, np.uint64(7))
        state += _rotated(three, np.uint64(12)) + _rotated(four, np.uint64(18))
        state = _merged(_merged(_merged(_merged(state, one), two), three), four)
    else:
        state = seed + _P5
    state += np.uint64(stop - start)
    while at + _LANE <= stop:
        state ^= _round(_ZERO, word64(base + at))
        state = _rotated(state, np.uint64(27)) * P64_1 + P64_4
        at += _LANE
    if at + 4 <= stop:
        state ^= word32(base + at) * P64_1
        state = _rotated(state, np.uint64(23)) * P64_2 + P64_3
        at += 4
    while at < stop:
        state ^= np.uint64(data[at]) * _P5
        state = _rotated(state, np.uint64(11)) * P64_1
        at += 1
    return avalanche64(state)


@kernel
def _hash(cuts: Counts, data: Bytes, seed: np.uint64, found: Words) -> None:
    for i in range(found.size):
        found[i] = xxh64(data, cuts[i], cuts[i + 1], seed)


@kernel
def _hash_documents(
    source_cuts: Counts,
    source_data: Bytes,
    id_cuts: Counts,
    id_data: Bytes,
    seed: np.uint64,
    has_source: Bools,
    has_id: Bools,
    found: Words,
) -> None:
    """Fill `found` where there is an id."""
    for i in range(found.size):
        if not has_id[i]:
            continue
        state = xxh64(source_data, 0, 0, seed)
        if has_source[i]:
            state = xxh64(source_data, source_cuts[i], source_cuts[i + 1], seed)
        found[i] = xxh64(id_data, id_cuts[i], id_cuts[i + 1], state)


def check_seed(seed: int) -> int:
    """Return a seed; raise `UsageError` if it cannot be one."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise UsageError(f"seed={seed!r}; expected a whole number from 0 to 2**64 - 1.")
    return seed
