"""Texts as the Dolma toolkit's ``tokens`` encodes them: without white space around them, and on request cut where lines end.

Cost: a copy of the texts where there is something to strip; a tokenizer that sees paragraphs one by one has the same work.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from dolma_dask.text import compute as pc
from dolma_dask.text.columns import string_parts
from dolma_dask.tokens.encoding import Finding, Tokens
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.specials import Framing

WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Characters that ``str.strip`` takes away."""

_LINE_END = 0x0A


def strip(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return texts without the white space around them, as ``str.strip`` does."""
    return pc.utf8_trim(texts, characters=WHITE_SPACE)


def frame_once(tokens: Tokens, framing: Framing) -> Tokens:
    """Put special tokens around documents, but none where the document has it there already."""
    framed, has_ids = framing.apply(tokens), np.flatnonzero(tokens.lengths)
    ends, framed_ends = (np.cumsum(each.lengths, dtype=np.int64)[has_ids] for each in (tokens, framed))
    firsts = ends - tokens.lengths[has_ids], framed_ends - framed.lengths[has_ids]
    doubled, lengths = [np.empty(0, np.int64)], framed.lengths.copy()
    for special, own, places in ((framing.bos, *firsts), (framing.eos, ends - 1, framed_ends - 1)):
        if special is not None:
            is_there = tokens.ids[own] == special.id
            doubled.append(places[is_there])
            lengths[has_ids[is_there]] -= 1
    return replace(framed, ids=np.delete(framed.ids, np.concatenate(doubled)), lengths=lengths)


# paragraphs


def encode_by_lines(
    encode: Callable[[pa.LargeStringArray], Tokens], texts: pa.LargeStringArray, *, has_prefix: bool
) -> Tokens:
    """Encode texts in pieces, each of which begins with line ends but the first.

    Parameters
    ----------
    encode : callable
        Encodes pieces.
    texts : LargeStringArray
        (n_docs,) Without nulls.
    has_prefix : bool
        The tokenizer puts a space before each text: later pieces get one of their own, whose token is taken away.
    """
    parts, owners = _cut(texts)
    is_later = np.append(False, owners[1:] == owners[:-1])[: len(owners)]
    if has_prefix:
        spaced = pc.binary_join_element_wise(
            pa.scalar("", pa.large_string()), parts, pa.scalar(" ", pa.large_string())
        )
        parts = pc.if_else(pa.array(is_later), spaced, parts)
    tokens = encode(parts)
    ids, lengths = tokens.ids, tokens.lengths.astype(np.int64)
    if has_prefix:
        first = np.cumsum(lengths) - lengths
        cut = is_later & (lengths > 0)
        ids, lengths = np.delete(ids, first[cut]), lengths - cut
    sums = np.bincount(owners, lengths, len(texts)).astype(np.int32)
    return Tokens(ids, sums, _of_documents(tokens.findings, owners))


def _cut(texts: pa.LargeStringArray) -> tuple[pa.LargeStringArray, NDArray[np.int64]]:
    """Return the pieces of all texts, views of them, and of which text each is; an empty text is one."""
    offsets, data = string_parts(texts)
    ends = np.flatnonzero(data[offsets[0] : offsets[-1]] == _LINE_END) + offsets[0]
    runs = ends[np.append(True, np.diff(ends) > 1)[: ends.size]]
    runs = np.setdiff1d(runs, offsets)  # those at the beginning of a text are no cuts
    starts = np.searchsorted(offsets, runs, side="right") - 1
    bounds = np.sort(np.concatenate([offsets, runs]), kind="stable")
    counts = np.bincount(starts, minlength=len(texts)) + 1
    parts = pa.Array.from_buffers(
        pa.large_string(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    return parts, np.repeat(np.arange(len(texts)), counts)


def _of_documents(findings: tuple[Finding, ...], owners: NDArray[np.int64]) -> tuple[Finding, ...]:
    """Return what was found in pieces as found in their documents, each kind once."""
    known: dict[tuple[int, str], Finding] = {}
    for one in findings:
        found = replace(one, row=int(owners[one.row]))
        known.setdefault((found.row, found.kind), found)
    return tuple(known.values())


@lru_cache(maxsize=8)
def puts_space_first(engine: TokenEngine) -> bool:
    """Tell from its JSON whether a tokenizer puts a space before each text."""
    content = json.loads(engine.read())
    pre, normalizer = content.get("pre_tokenizer"), content.get("normalizer")
    steps = [*_steps(pre, "pretokenizers"), *_steps(normalizer, "normalizers")]
    return any(step.get("add_prefix_space") or step.get("type") == "Prepend" for step in steps)


def _steps(step: Any, inside: str) -> list[dict[str, Any]]:
    if not step:
        return []
    return list(step.get(inside, ())) if step.get("type") == "Sequence" else [step]
