"""A table of the n-grams of some texts, in which those of others are looked up.

Words come as 64-bit hashes. An n-gram is the polynomial of its words modulo 2**64, mixed with their number, so that n-grams of several sizes share a table. Keys are sorted, and found by
their first bits. Against 2.5 million keys one word in 7 * 10**12 begins an n-gram that is taken for another by chance (2**64 / 2.5e6).

Most words of a text begin nothing that is known. So a first pass looks at every fourth word only: an n-gram of 13 words holds ten words on end that begin at one of these, and a bitmap that
stays in the cache has all ten on end of known n-grams, three bits of one word for each. Where they are known, a second bitmap is asked for each n-gram that holds them. Two in a hundred pass a
bitmap by chance, so that hardly anything goes on to the table without being in it. Shorter n-grams, of which there are few, have bitmaps and a pass of their own, by as many words as the shortest of them has.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.text.bits import ONE, address_of, mix, prefetch
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Counts, Int, Words, kernel

Numbers = npt.NDArray[np.uint32]

_FACTOR, _MARK_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_SIX, _TWELVE, _SIXTY_THREE = (np.uint64(number) for number in (6, 12, 63))
_BITMAPS = ("marks", "samples", "short_marks", "short_samples")
_FEWEST_BITS, _MOST_BITS = 3, 19
"""Words of a bitmap: 2**19 are 4 MB."""
_AHEAD = 64
"""Samples whose bits are fetched together."""
_SAMPLED = 4
"""An n-gram of n words is looked for at one word in n / `_SAMPLED`, rounded up."""
_ROOM = 4
"""N-grams for each word of the bitmap, at most, until it has the largest size."""


class Matches(Struct, frozen=True):
    """N-grams of texts that are in a table; one that several groups have stands there for each."""

    places: Counts  # (m,) first word, among the words of all texts
    sizes: Counts  # (m,) words
    items: Counts  # (m,) what it belongs to


class NgramTable(Struct, frozen=True, eq=False):
    """N-grams by their hashes; `items` says what each belongs to."""

    keys: Words  # (entries,) rising
    items: Numbers  # (entries,)
    starts: Numbers  # (2**bits + 1,) the first entry of those whose keys begin with these bits
    marks: Words  # the bitmap of n-grams
    samples: Words  # that of words on end in them
    short_marks: Words  # those of shorter ones
    short_samples: Words
    sizes: Counts  # (sizes,) words that they have, rising; the last one is that of n-grams

    @classmethod
    def of(
        cls, words: Words, bounds: Counts, owners: Counts, groups: Counts, *, ngram: int, least: int
    ) -> "NgramTable":
        """Make the table of some texts; text ``i`` has the words from ``bounds[i]`` to ``bounds[i + 1]`` and belongs to the item ``owners[i]``.

        One of fewer words than an n-gram is one of all its words, if they are `least` or more. Of the items of a group (items,) that have an n-gram, the first one keeps it.
        """
        places, sizes, texts = _places(np.diff(bounds), bounds, ngram, least)
        words, keys = for_kernel(words), np.empty(len(places), np.uint64)
        _hash_ngrams(words, for_kernel(places), for_kernel(sizes), keys)
        short, long = places[sizes < ngram], places[sizes == ngram]
        head = int(sizes.min(initial=ngram))
        items = owners[texts]
        order = np.lexsort((items, groups[items], keys))
        keys, items = keys[order], items[order]
        same = (keys[1:] == keys[:-1]) & (groups[items][1:] == groups[items][:-1])
        kept = np.append(True, ~same)[: len(keys)]
        keys, items = keys[kept], items[kept]
        bits = max(len(keys).bit_length() - 1, 1)
        starts = np.searchsorted(keys >> np.uint64(64 - bits), np.arange((1 << bits) + 1, dtype=np.uint64))
        return cls.mapped(
            {
                "keys": keys,
                "items": items.astype(np.uint32),
                "starts": starts.astype(np.uint32),
                "marks": _marks(words, long, ngram, 1),
                "samples": _marks(words, long, ngram, _stride(ngram)),
                "short_marks": _marks(words, short, head, 1),
                "short_samples": _marks(words, short, head, _stride(head)),
                "sizes": np.unique(np.append(sizes, ngram)),
            }
        )

    @classmethod
    def mapped(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "NgramTable":
        """Return the table of its arrays by name, as `arrays` has them; bitmaps are copied to large pages, of which the processor keeps the addresses."""
        copied = {name: np.array(arrays[name]) for name in _BITMAPS}
        return cls(*(for_kernel({**arrays, **copied}[name]) for name in cls.__struct_fields__))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that a table is, by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    def find(self, words: Words, bounds: Counts) -> Matches:
        """Return the n-grams of texts that the table has."""
        short = self._find(words, bounds, self.sizes[:-1], self.short_marks, self.short_samples)
        long = self._find(words, bounds, self.sizes[-1:], self.marks, self.samples)
        return Matches(*map(np.concatenate, zip(short, long, strict=True)))

    def _find(
        self, words: Words, bounds: Counts, sizes: Counts, marks: Words, samples: Words
    ) -> tuple[Counts, Counts, Counts]:
        """Return places, sizes and items of the n-grams of some sizes."""
        if not len(sizes) or not len(self.keys):
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
        words, head = for_kernel(words), int(sizes[0])
        candidates = np.empty(len(words) + 1, np.int64)
        count = _find_candidates(
            words, bounds, head, _stride(head), marks, samples, np.empty(_AHEAD, np.uint64), candidates
        )
        places, found_sizes, firsts, lasts = (np.empty(count * len(sizes), np.int64) for _ in range(4))
        found = _look_up(
            words, bounds, for_kernel(candidates[:count]), for_kernel(sizes), self.keys, self.starts,
            places, found_sizes, firsts, lasts,
        )  # fmt: skip
        counts = lasts[:found] - firsts[:found]
        entries = np.repeat(firsts[:found] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        repeated = np.repeat(np.arange(found), counts)
        return places[repeated], found_sizes[repeated], self.items[entries].astype(np.int64)


def _places(lengths: Counts, bounds: Counts, ngram: int, least: int) -> tuple[Counts, Counts, Counts]:
    """Return the first word, the words and the text of every n-gram."""
    counts = np.where(lengths >= ngram, lengths - ngram + 1, lengths >= least)
    texts = np.repeat(np.arange(len(lengths)), counts)
    inside = np.arange(len(texts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return bounds[texts] + inside, np.minimum(lengths, ngram)[texts], texts


def _stride(size: int) -> int:
    """Return how far apart the words are at which n-grams are looked for."""
    return -(-size // _SAMPLED)


def _marks(words: Words, places: Counts, size: int, stride: int) -> Words:
    """Return a bitmap with three bits of one word for each n-gram; of a stride for what begins at any word of one, as `_find_candidates` meets it."""
    bits = min(max((len(places) // _ROOM).bit_length(), _FEWEST_BITS), _MOST_BITS)
    marks = np.zeros(1 << bits, np.uint64)
    _set_bits(words, for_kernel(places), size, stride, marks)
    return marks


@kernel
def _set_bits(words: Words, places: Counts, size: Int, stride: Int, marks: Words) -> None:
    shift = _shift_to(marks.size)
    for ngram in range(places.size):
        for first in range(places[ngram], places[ngram] + stride):
            mixed = _polynomial(words, first, size - stride + 1) * _MARK_FACTOR
            marks[mixed >> shift] |= _bits_of(mixed)


@kernel
def _has_bits(marks: Words, shift: np.uint64, mixed: np.uint64) -> bool:
    bits = _bits_of(mixed)
    return bool(marks[mixed >> shift] & bits == bits)


@kernel
def _bits_of(mixed: np.uint64) -> np.uint64:
    return (
        ONE << (mixed & _SIXTY_THREE)
        | ONE << ((mixed >> _SIX) & _SIXTY_THREE)
        | ONE << ((mixed >> _TWELVE) & _SIXTY_THREE)
    )


@kernel
def _polynomial(words: Words, at: Int, size: Int) -> np.uint64:
    state = np.uint64(0)
    for place in range(np.uint64(at), np.uint64(at + size)):
        state = state * _FACTOR + words[place]
    return state


@kernel
def _key(words: Words, at: Int, size: Int) -> np.uint64:
    return mix(_polynomial(words, at, size) + np.uint64(size))


@kernel
def _hash_ngrams(words: Words, places: Counts, sizes: Counts, keys: Words) -> None:
    for ngram in range(keys.size):
        keys[ngram] = _key(words, places[ngram], sizes[ngram])


@kernel
def _shift_to(slots: Int) -> np.uint64:
    """Return by how many bits a hash is shifted to name one of a power of two of slots."""
    shift = np.uint64(64)
    while slots > 1:
        shift -= ONE
        slots >>= 1
    return shift


@kernel
def _find_candidates(
    words: Words, bounds: Counts, size: Int, stride: Int, marks: Words, samples: Words, hashes: Words, candidates: Counts
) -> Int:  # fmt: skip
    """Set the places at which so many words begin as an n-gram of the table may; return how many there are. `hashes` is scratch of `_AHEAD`.

    A sample is what all n-grams have that begin at it or at one of the ``stride - 1`` words before it.
    """
    count: Int = 0
    marks_shift, shift, table = _shift_to(marks.size), _shift_to(samples.size), address_of(samples)
    for row in range(bounds.size - 1):
        first, last = bounds[row], bounds[row + 1] - size + 1
        while first < last:
            ahead = min((last - first + stride - 1) // stride, _AHEAD)
            # all reads of the bitmap wait together
            for number in range(np.uint64(ahead)):
                sample = first + (np.int64(number) + 1) * stride - 1
                hashes[number] = mixed = _polynomial(words, sample, size - stride + 1) * _MARK_FACTOR
                prefetch(table + np.int64(mixed >> shift) * 8)
            for number in range(np.uint64(ahead)):
                if _has_bits(samples, shift, hashes[number]):
                    begin = first + np.int64(number) * stride
                    for at in range(begin, min(begin + stride, last)):
                        # without a branch: a place that is none is overwritten by the next
                        candidates[np.uint64(count)] = at
                        mixed = _polynomial(words, at, size) * _MARK_FACTOR
                        count += _has_bits(marks, marks_shift, mixed)
            first += ahead * stride
    return count


@kernel
def _look_up(
    words: Words, bounds: Counts, candidates: Counts, sizes: Counts, keys: Words, starts: Numbers,
    places: Counts, found_sizes: Counts, firsts: Counts, lasts: Counts,
) -> Int:  # fmt: skip
    """Set place, words and entries (from the first to before the last) of the n-grams that begin at candidates, which rise; return how many there are."""
    found: Int = 0
    row: Int = 0
    shift = _shift_to(starts.size - 1)
    for candidate in range(candidates.size):
        at = candidates[candidate]
        while bounds[row + 1] <= at:
            row += 1
        for number in range(sizes.size):
            size = sizes[number]
            if at + size > bounds[row + 1]:
                break
            key = _key(words, at, size)
            slot = key >> shift
            entry, stop = np.int64(starts[slot]), np.int64(starts[slot + ONE])
            while entry < stop and keys[entry] < key:
                entry += 1
            first = entry
            while entry < stop and keys[entry] == key:
                entry += 1
            if entry > first:
                places[found], found_sizes[found], firsts[found], lasts[found] = at, size, first, entry
                found += 1
    return found
