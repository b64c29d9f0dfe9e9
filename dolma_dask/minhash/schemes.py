"""MinHash by name: which tokens of a text are hashed, how, and by which permutations.

Two signatures can be compared only if they were made with the same parameters, which `MinHash.params` therefore names completely, versions of the
Unicode tables included.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.errors import UsageError

Scheme = Literal["dolma_dask", "datasketch", "datasketch_legacy", "redpajama_v2"]

Unit = Literal["word", "char"]

SIGNED, SHORT, EMPTY = 0, 1, 2
"""Kinds of texts: with a whole n-gram of tokens, with fewer tokens than that, without any."""

VERSION = 1
"""Raised when a scheme gives another signature for the same text and parameters."""


@dataclass(frozen=True)
class Signatures:
    """Signatures of some texts."""

    values: npt.NDArray[np.uint32]  # (n, num_perm); undefined where a text has no signature
    kinds: npt.NDArray[np.uint8]  # (n,) SIGNED, SHORT or EMPTY


@dataclass(frozen=True)
class MinHash:
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
        if self.scheme == "redpajama_v2" and self.unit != "word":
            raise UsageError(
                "unit='char' with scheme='redpajama_v2'; expected 'word': its n-grams are of words."
            )

    @property
    def signs_short(self) -> bool:
        """Whether a text with fewer tokens than an n-gram has a signature: that of all of its tokens."""
        return self.scheme != "redpajama_v2"

    def params(self) -> dict[str, Any]:
        """Return all that decides a signature, for keys of the journal."""
        return {**vars(self), "version": VERSION}

    def sign(self, texts: pa.LargeStringArray) -> Signatures:
        """Return the signatures of texts without nulls (n,)."""
        raise NotImplementedError
