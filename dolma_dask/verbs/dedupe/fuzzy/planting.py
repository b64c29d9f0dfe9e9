"""Copies of texts at known Jaccard similarities, for audits: a stretch of the text is replaced by words that occur nowhere else."""

import random
import string
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.minhash.schemes import MinHash, jaccard
from dolma_dask.text.kernels import Floats

LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""Similarities of copies with their originals."""

TOLERANCE = 0.02
"""Most by which the similarity of a copy may differ from its level; originals of which no copy comes so near are left out."""

ROUNDS = 18
"""Bisections of the length of the stretch."""

Hashes = npt.NDArray[np.uint64]


class Copy(Struct, frozen=True):
    """A copy of one of some texts."""

    original: int  # index of the text
    level: float
    similarity: float  # of the n-grams of both, exactly
    text: str


def plant(texts: Sequence[str], originals: Sequence[int], minhash: MinHash, seed: int) -> list[Copy]:
    """Return a copy of each original at one of `LEVELS`, in turn, as far as there is one within `TOLERANCE`."""
    edits = [_Edit.of(texts[index], random.Random(f"{seed} {index}")) for index in originals]
    wanted = np.array([LEVELS[number % len(LEVELS)] for number in range(len(originals))])
    sets = shingle_sets([texts[index] for index in originals], minhash)
    low, high = np.zeros(len(edits), np.int64), np.array([edit.most for edit in edits], np.int64)
    for _ in range(ROUNDS):
        middle = (low + high) // 2
        is_near = _similarities(edits, middle, sets, minhash) > wanted
        low, high = np.where(is_near, middle, low), np.where(is_near, high, middle)
    ends = [(length, _similarities(edits, length, sets, minhash)) for length in (low, high)]
    nearer = np.abs(ends[1][1] - wanted) < np.abs(ends[0][1] - wanted)
    lengths, similarities = (np.where(nearer, ends[1][part], ends[0][part]) for part in range(2))
    return [
        Copy(originals[n], float(wanted[n]), float(similarities[n]), edits[n].copy(int(lengths[n])))
        for n in np.flatnonzero(np.abs(similarities - wanted) <= TOLERANCE).tolist()
    ]


def shingle_sets(texts: Sequence[str], minhash: MinHash) -> list[Hashes]:
    """Return the n-grams of each text, hashed."""
    bounds, shingles = minhash.shingles(pa.array(texts, pa.large_string()))
    return [np.unique(shingles[first:last]) for first, last in pairwise(bounds)]


def _similarities(
    edits: Sequence["_Edit"], lengths: npt.NDArray[np.int64], sets: Sequence[Hashes], minhash: MinHash
) -> Floats:
    copies = shingle_sets(
        [edit.copy(length) for edit, length in zip(edits, lengths.tolist(), strict=True)], minhash
    )
    return np.array([jaccard(one, other) or 0.0 for one, other in zip(sets, copies, strict=True)])


class _Edit(Struct, frozen=True):
    """A text whose characters from `start` on can be replaced by `words`, as many as are wanted."""

    text: str
    start: int
    words: str

    @staticmethod
    def of(text: str, draws: random.Random) -> "_Edit":
        """Draw where the edit begins, and its words."""
        start = draws.randrange(max(len(text) * 2 // 5, 1))
        words = " ".join(_words(draws, len(text)))
        return _Edit(text, start, words)

    @property
    def most(self) -> int:
        """Characters that can be replaced."""
        return len(self.text) - self.start

    def copy(self, length: int) -> str:
        """Return the text with `length` characters replaced."""
        return f"{self.text[: self.start]} {self.words[:length]} {self.text[self.start + length :]}"


def _words(draws: random.Random, least: int) -> Iterator[str]:
    """Yield words of random letters, with at least so many letters together."""
    while least > 0:
        word = "".join(draws.choices(string.ascii_lowercase, k=draws.randrange(4, 10)))
        least -= len(word)
        yield word
