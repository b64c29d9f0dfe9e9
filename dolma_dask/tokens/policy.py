"""What stands before and after every document: beginning and end tokens.

The default is nothing, as in the original ragged tool: boundaries are in ``len.npy`` alone, and a trainer that wants
an end token adds it. Asked for, they are part of the document and count in its length. An empty document stays: it
has length 0, or its special tokens alone.

Cost: 1 to 2 ns per token (one mask of a byte per token), no loop over documents.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.formats.ragged import check_lengths
from dolma_dask.formats.ragged_record import SpecialToken, TokenizerRecord
from dolma_dask.tokens.engine import TokenEngine, Tokens


@dataclass(frozen=True)
class SpecialTokens:
    """What the user asked for."""

    # name or id of the token before and after every document; None for none
    bos: str | int | None = None
    eos: str | int | None = None

    def resolve(self, engine: TokenEngine) -> "Framing":
        """Look both up in a vocabulary.

        Raises `UsageError`: the vocabulary has no such name or id; the message offers near names.
        """
        return Framing(_resolve(engine, "bos", self.bos), _resolve(engine, "eos", self.eos))


def _resolve(engine: TokenEngine, option: str, wanted: str | int | None) -> SpecialToken | None:
    if wanted is None:
        return None
    if isinstance(wanted, str):
        found = engine.token_id(wanted)
        if found is not None:
            return SpecialToken(wanted, found)
        advice = f"did you mean one of {', '.join(map(repr, engine.near_tokens(wanted)))}?"
    else:
        name = engine.token(wanted) if _is_id(wanted, engine.max_id) else None
        if name is not None:
            return SpecialToken(name, int(wanted))
        advice = f"expected an id from 0 to {engine.max_id} that has a name"
    raise UsageError(
        f"{option}={wanted!r} is not in the vocabulary of {engine.file_name or 'the tokenizer'}; {advice}",
        option=option,
        token=wanted,
    )


def _is_id(value: object, max_id: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= max_id


@dataclass(frozen=True)
class Framing:
    """Beginning and end tokens as ids of one vocabulary."""

    # token before and after every document
    bos: SpecialToken | None = None
    eos: SpecialToken | None = None

    def apply(self, tokens: Tokens) -> Tokens:
        """Put the special tokens around every document; return the same tokens if nothing is to be added.

        Raises `DataError`: a document would have more than 2,147,483,647 tokens.
        """
        added = (self.bos is not None) + (self.eos is not None)
        if not added or not tokens.lengths.size:
            return tokens
        lengths = tokens.lengths.astype(np.int64) + added
        checked = check_lengths(lengths)
        return Tokens(self._frame(tokens.ids, np.cumsum(lengths), lengths), checked)

    def _frame(
        self, ids: NDArray[np.integer[Any]], stops: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> NDArray[np.integer[Any]]:
        framed = np.empty(int(stops[-1]), ids.dtype)
        is_text = np.ones(framed.size, np.bool_)
        for special, places in ((self.bos, stops - lengths), (self.eos, stops - 1)):
            if special is not None:
                framed[places] = special.id
                is_text[places] = False
        framed[is_text] = ids
        return framed

    def record(self, engine: TokenEngine) -> TokenizerRecord:
        """Return what a shard's sidecar says about the tokenizer and this framing."""
        return TokenizerRecord(engine.fingerprint, engine.file_name, engine.vocab_size, self.bos, self.eos)
