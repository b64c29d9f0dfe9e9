"""MinHash by name: which tokens of a text are hashed, how, and by which permutations.

Two signatures can be compared only if they were made with the same parameters, which `MinHash.params` therefore names completely, versions of the
Unicode tables included.
"""

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from dolma_dask.errors import UsageError
from dolma_dask.text.tables import table_versions

Scheme = Literal["dolma_dask", "datasketch", "datasketch_legacy", "redpajama_v2"]

Unit = Literal["word", "char"]

MAX_VALUES = 10_000
"""Values of a signature: 40 kB for each document, more than the largest that were published (9,000)."""

SIGNED, SHORT, EMPTY, ABSENT = 0, 1, 2, 3
"""Kinds of texts: with a whole n-gram of tokens, with fewer tokens than that, without any; those that a table of signatures does not have."""

VERSION = 1
"""Raised when a scheme gives another signature for the same text and parameters."""


class Signatures(Struct, frozen=True):
    """Signatures of some texts."""

    values: npt.NDArray[np.uint32]  # (n, num_perm); undefined where a text has no signature
    kinds: npt.NDArray[np.uint8]  # (n,) SIGNED, SHORT, EMPTY or ABSENT


class MinHash(Struct, frozen=True):
    """Parameters of signatures.

    Attributes
    ----------
    scheme : {"dolma_dask", "datasketch", "datasketch_legacy", "redpajama_v2"}
        Tokens, hashes and permutations; see the modules of this package.
    ngram : int
        Tokens of a shingle.
    unit : {"word", "char"}
        What a token is: a word (in scripts without spaces, a character), or always a character.
    num_perm : int
        Values of a signature.
    seed : int
        Of the permutations.
    """

    scheme: Scheme = "dolma_dask"
    ngram: int = 5
    unit: Unit = "word"
    num_perm: int = 128
    seed: int = 42

    def __post_init__(self) -> None:
        if self.scheme not in get_args(Scheme):
            raise UsageError(f"scheme={self.scheme!r}; expected one of {', '.join(get_args(Scheme))}.")
        if self.unit not in get_args(Unit):
            raise UsageError(f"unit={self.unit!r}; expected 'word' or 'char'.")
        for name, least, most in (
            ("ngram", 1, 1 << 16),
            ("num_perm", 1, MAX_VALUES + 1),
            ("seed", 0, 1 << 32),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or not least <= value < most:
                raise UsageError(f"{name}={value!r}; expected a whole number from {least} to {most - 1:,}.")
        if self.scheme == "redpajama_v2" and self.unit != "word":
            raise UsageError(
                "unit='char' with scheme='redpajama_v2'; expected 'word': its n-grams are of words."
            )

    @property
    def label(self) -> str:
        """Name of a folder of such signatures."""
        return f"{self.scheme}-{self.unit}{self.ngram}-{self.num_perm}-seed{self.seed}"

    def has_signature(self, kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Return which texts (n,) have a signature: empty ones have none; a short one has that of all of its tokens, but with RedPajama-V2."""
        return kinds < (SHORT if self.scheme == "redpajama_v2" else EMPTY)

    def params(self) -> dict[str, Any]:
        """Return all that decides a signature, for keys of the journal."""
        return {**asdict(self), "version": VERSION, "tables": table_versions()}

    def sign(self, texts: pa.LargeStringArray) -> Signatures:
        """Return the signatures of texts without nulls (n,)."""
        sizes: Any = {"ngram": self.ngram, "num_perm": self.num_perm, "seed": self.seed}
        if self.scheme == "redpajama_v2":
            from dolma_dask.minhash.published import sign_redpajama

            return Signatures(*sign_redpajama(texts, **sizes))
        if self.scheme != "dolma_dask":
            from dolma_dask.minhash.published import sign_datasketch

            is_legacy = self.scheme == "datasketch_legacy"
            return Signatures(*sign_datasketch(texts, unit=self.unit, legacy=is_legacy, **sizes))
        from dolma_dask.minhash.ngrams import sign_tokens

        return Signatures(*sign_tokens(texts, unit=self.unit, **sizes))

    def shingles(self, texts: pa.LargeStringArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Return the n-grams of texts without nulls (n,), hashed to 64 bits, with their repetitions: those of text `i` lie from ``bounds[i]`` to
        ``bounds[i + 1]``.
        """
        if self.scheme == "dolma_dask":
            from dolma_dask.minhash.ngrams import hash_shingles

            return hash_shingles(texts, ngram=self.ngram, unit=self.unit)
        from dolma_dask.minhash.shingles import CHARACTERS, NORMALISED_WORDS, WORDS, hash_strings

        if self.scheme == "redpajama_v2":
            return hash_strings(texts, NORMALISED_WORDS, ngram=self.ngram, signs_short=False)
        kind = CHARACTERS if self.unit == "char" else WORDS
        return hash_strings(texts, kind, ngram=self.ngram, signs_short=True)


def jaccard(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> float | None:
    """Return the Jaccard similarity of two sets of shingles, repetitions left out; None if both are empty."""
    common, union = len(np.intersect1d(one, other)), len(np.union1d(one, other))
    return common / union if union else None
