"""Bands of signatures: their shape, the probability that they find a pair, and a 64-bit key for each document and band.

Two documents of Jaccard similarity J have equal values in each of the `num_perm` places of their signatures with probability J, independently.
They share a band of r values with probability J^r, and at least one of b bands with ``1 - (1 - J^r)^b``, the S-curve. All these probabilities
are polynomials in J of a degree of at most `num_perm`: Gauss-Legendre quadrature with half as many nodes gives the areas below them exactly,
and the discrete Fourier transform of a generating function the distribution of agreeing values.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.errors import DataError, UsageError
from dolma_dask.text.bits import absorb, address_of, half_at, high_product, mix, word_at
from dolma_dask.text.kernels import Bools, Counts, Floats, Int, Words, kernel

Values = npt.NDArray[np.uint32]
"""Signatures, shape (n, num_perm)."""

_BAND_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD6E8FEB86659FD93)
_NO_SALTS = np.empty(0, np.uint64)


class Bands(Struct, frozen=True):
    """Shape of the bands: ``num_bands`` keys of ``rows_per_band`` signature values each, from the first value on."""

    num_bands: int
    rows_per_band: int

    def __post_init__(self) -> None:
        if not all(isinstance(one, int) and one >= 1 for one in (self.num_bands, self.rows_per_band)):
            raise UsageError(
                f"{self.num_bands} bands of {self.rows_per_band} rows; expected at least one of each, for example 14 bands of 8 rows."
            )

    @property
    def values(self) -> int:
        """Signature values that the bands use."""
        return self.num_bands * self.rows_per_band

    def check(self, num_perm: int) -> None:
        """Raise `UsageError` if signatures of `num_perm` values are too short for the bands."""
        if self.values > num_perm:
            raise UsageError(
                f"{self.num_bands} bands of {self.rows_per_band} rows use {self.values} signature values, but signatures have {num_perm}; expected "
                f"at most that many. Take fewer bands or rows, or num_perm={self.values}."
            )


def optimal_bands(
    similarity: float, num_perm: int, *, fp_weight: float = 0.5, fn_weight: float = 0.5
) -> Bands:
    """Return the shape whose S-curve is nearest to a step at a similarity, as datasketch's ``MinHashLSH`` chooses it.

    Parameters
    ----------
    similarity : float
        Jaccard similarity, 0 to 1, from which on pairs are wanted.
    num_perm : int
        Values of a signature; bands use at most so many.
    fp_weight, fn_weight : float
        Weights of the areas below the curve up to `similarity` (false positives) and above the curve from there on (false negatives), whose sum
        is made smallest. Of equal shapes the one with fewer bands is taken.
    """
    if not isinstance(similarity, (int, float)) or not 0 <= similarity <= 1 or num_perm < 1:
        raise UsageError(
            f"similarity={similarity!r}, num_perm={num_perm}; expected a similarity from 0 to 1 and at least one permutation."
        )
    nodes, weights = _quadrature(num_perm)
    rows = np.arange(1, num_perm + 1)[:, np.newaxis]
    misses_below, misses_above = 1 - (similarity * nodes) ** rows, 1 - (1 - (1 - similarity) * nodes) ** rows
    below, above = np.ones_like(misses_below), np.ones_like(misses_above)
    best, least = Bands(1, 1), np.inf
    for num_bands in range(1, num_perm + 1):
        fitting = num_perm // num_bands
        below, above = below[:fitting] * misses_below[:fitting], above[:fitting] * misses_above[:fitting]
        errors = fp_weight * similarity * (1 - below @ weights)
        errors += fn_weight * (1 - similarity) * (above @ weights)
        if errors.min() < least:
            best, least = Bands(num_bands, int(errors.argmin()) + 1), errors.min()
    return best


MAX_NODES = 512
"""Nodes of a quadrature: exact for signatures of up to 1,023 values, and to more digits than are shown for longer ones."""


def _quadrature(degree: int) -> tuple[Floats, Floats]:
    """Return nodes and weights on [0, 1] that integrate polynomials of this degree, exactly but for `MAX_NODES`."""
    nodes, weights = np.polynomial.legendre.leggauss(min(degree // 2 + 1, MAX_NODES))
    return (nodes + 1) / 2, weights / 2


def collision_probability(jaccard: npt.ArrayLike, bands: Bands) -> Floats:
    """Return the probability that pairs of these Jaccard similarities share a band, in their shape: the S-curve."""
    similarities: Floats = np.asarray(jaccard, np.float64)
    curve: Floats = 1 - (1 - similarities**bands.rows_per_band) ** bands.num_bands
    return curve


def expected_recall(jaccard: npt.ArrayLike, bands: Bands, num_perm: int, least_matches: int = 0) -> Floats:
    """Return the probability that pairs of these Jaccard similarities are found and accepted, in their shape.

    Parameters
    ----------
    jaccard : array_like of float
        Similarities, 0 to 1.
    bands : Bands
        A pair is found if it shares one of them.
    num_perm : int
        Values of a signature.
    least_matches : int
        A found pair is accepted if so many of all values agree; 0 accepts every one.
    """
    bands.check(num_perm)
    similarities = np.asarray(jaccard, np.float64)
    if least_matches <= 0:
        return collision_probability(similarities, bands)
    size = max(_PIECE // (num_perm + 1), 1)
    flat = similarities.ravel()
    pieces = [flat[first : first + size] for first in range(0, len(flat), size)]
    found = [_recall(piece, bands, num_perm, least_matches) for piece in pieces]
    recall: Floats = np.concatenate([np.empty(0), *found]).reshape(similarities.shape)
    return recall


_DIGITS = 12
"""Decimal places of areas: the last bits differ from processor to processor."""

_PIECE = 1 << 20
"""Complex numbers of an array with as many of them per similarity as signatures have values."""


def _recall(similarities: Floats, bands: Bands, num_perm: int, least_matches: int) -> Floats:
    # each value multiplies the generating function of the number of agreeing values by (1 - J) + J z; a band that is no full match lacks (J z)^r
    roots = np.exp(-2j * np.pi * np.arange(num_perm + 1) / (num_perm + 1))
    agreeing = similarities[..., np.newaxis] * roots
    one = (1 - similarities)[..., np.newaxis] + agreeing
    band = one**bands.rows_per_band
    found = band**bands.num_bands - (band - agreeing**bands.rows_per_band) ** bands.num_bands
    by_matches = np.fft.ifft(found * one ** (num_perm - bands.values)).real
    recall: Floats = by_matches[..., least_matches:].sum(axis=-1)
    return recall.clip(0, 1)


class Curve(Struct, frozen=True):
    """Summary of the probability to find and accept a pair, as a function of its Jaccard similarity.

    Attributes
    ----------
    half, nine_tenths : float
        Similarities at which the probability is 0.5 and 0.9; 1.0 where it is reached nowhere below.
    false_positives, false_negatives : float
        Areas below the curve up to the wanted similarity, and above the curve from there on, as datasketch weighs them.
    """

    half: float
    nine_tenths: float
    false_positives: float
    false_negatives: float


def summarize_curve(bands: Bands, num_perm: int, similarity: float, least_matches: int = 0) -> Curve:
    """Return the summary of `expected_recall` for pairs wanted from `similarity` on."""
    nodes, weights = _quadrature(num_perm)
    below = expected_recall(similarity * nodes, bands, num_perm, least_matches)
    above = expected_recall(1 - (1 - similarity) * nodes, bands, num_perm, least_matches)
    half, nine_tenths = _similarities_at(np.array([0.5, 0.9]), bands, num_perm, least_matches).tolist()
    return Curve(
        half,
        nine_tenths,
        round(float(similarity * (below @ weights)), _DIGITS),
        round(float((1 - similarity) * ((1 - above) @ weights)), _DIGITS),
    )


def _similarities_at(recall: Floats, bands: Bands, num_perm: int, least_matches: int) -> Floats:
    """Return the similarities (n,) at which the curve, which never falls, reaches these values, by bisection."""
    low, high = np.zeros_like(recall), np.ones_like(recall)
    for _ in range(40):
        middle = (low + high) / 2
        is_below = expected_recall(middle, bands, num_perm, least_matches) < recall
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return high


# ------------------------------------------------------------------------------------------------ keys


def band_keys(
    values: Values, bands: Bands, first_band: int, last_band: int, salts: Words | None = None
) -> Words:
    """Return a key for each document and each of the bands `first_band` to ``last_band - 1``, uint64 (n, bands).

    Keys are hashes of the number of the band, its values and the salt of the document: documents of different salts never meet (but by chance:
    one pair in 2^64). Equal values in different bands have different keys.
    """
    salted = _NO_SALTS if salts is None else salts
    checked = _checked(values, bands, first_band, last_band, salts)
    keys = np.empty((len(values), last_band - first_band), np.uint64)
    _fill_keys(checked, bands.rows_per_band, first_band, last_band, salted, keys)
    return keys


def band_records(
    values: Values,
    kept: Bools,
    docnos: Words,
    bands: Bands,
    first_band: int,
    last_band: int,
    salts: Words | None = None,
) -> Words:
    """Return the keys of `band_keys` of the documents that are `kept` (n,) with their `docnos` (n,): words (m, 2), key and docno."""
    salted = _NO_SALTS if salts is None else salts
    checked = _checked(values, bands, first_band, last_band, salts, kept, docnos)
    records = np.empty((np.count_nonzero(kept) * (last_band - first_band), 2), np.uint64)
    _fill_records(checked, kept, docnos, bands.rows_per_band, first_band, last_band, salted, records)
    return records


def _checked(
    values: Values, bands: Bands, first: int, last: int, *columns: npt.NDArray[Any] | None
) -> Values:
    """Return signatures as the kernels, which look neither at types nor at bounds, need them."""
    if values.dtype != np.uint32 or values.ndim != 2:
        raise DataError(
            f"signatures of type {values.dtype} in the shape {values.shape}; expected uint32 (n, num_perm)."
        )
    if not 0 <= first <= last <= bands.num_bands:
        raise UsageError(f"bands {first} to {last - 1}; expected some of bands 0 to {bands.num_bands - 1}.")
    if any(column is not None and len(column) != len(values) for column in columns):
        raise DataError(
            f"salts, flags or numbers for other than {len(values)} documents; expected one for each signature."
        )
    bands.check(values.shape[1])
    return np.ascontiguousarray(values)


@kernel
def _fill_keys(values: Values, rows: Int, first: Int, last: Int, salts: Words, keys: Words) -> None:
    for document in range(values.shape[0]):
        salt = salts[document] if salts.size else np.uint64(0)
        for band in range(first, last):
            keys[document, band - first] = _hash_band(values, document, band, rows, salt)


@kernel
def _fill_records(
    values: Values, kept: Bools, docnos: Words, rows: Int, first: Int, last: Int, salts: Words, records: Words
) -> None:
    at = 0
    for document in range(values.shape[0]):
        if not kept[document]:
            continue
        salt = salts[document] if salts.size else np.uint64(0)
        for band in range(first, last):
            records[at, 0] = _hash_band(values, document, band, rows, salt)
            records[at, 1] = docnos[document]
            at += 1


@kernel
def _hash_band(values: Values, document: Int, band: Int, rows: Int, salt: np.uint64) -> np.uint64:
    """Hash the values of a band, four at a time by one multiplication to 128 bits; the rest of them alone."""
    at = address_of(values) + 4 * (document * values.shape[1] + band * rows)
    end = at + 4 * rows
    # from 1 on: the mix of 0 is 0
    state = mix(salt + np.uint64(band + 1) * _BAND_FACTOR)
    while at + 16 <= end:
        # values of 0 would make a product of 0: both sides are masked
        first, second = np.uint64(word_at(at)) ^ state, np.uint64(word_at(at + 8)) ^ _SECOND
        state = high_product(first, second) ^ (first * second)
        at += 16
    while at < end:
        state = absorb(state, np.uint64(half_at(at)))
        at += 4
    return mix(state)


def similarity(left: Values, right: Values) -> Counts:
    """Return how many values agree in each pair of signatures, int64 (n,); divided by num_perm it estimates their Jaccard similarity."""
    if left.shape != right.shape:
        raise DataError(f"signatures in the shapes {left.shape} and {right.shape}; expected pairs.")
    matches = np.empty(len(left), np.int64)
    _count_matches(left, right, matches)
    return matches


@kernel
def _count_matches(left: Values, right: Values, matches: Counts) -> None:
    for pair in range(left.shape[0]):
        count = np.uint32(0)
        for place in range(left.shape[1]):
            # of the width of the values, so that LLVM makes vectors of the loop
            count += np.uint32(left[pair, place] == right[pair, place])
        matches[pair] = count
