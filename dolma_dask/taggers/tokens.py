"""Taggers that need a tokenizer, which the user names (``--tokenizer``): tokens of a text, and runs of tokens that repeat.

Source of all but `tokens`: ``tokenizers.py``, ``length.py`` and ``repetitions`` of the Dolma toolkit, release 1.2.1, which gets the tokenizer of each name from the hub. Any other gives numbers of
another tokenizer, and nobody can tell by the file; its digest is part of what the work is known by.

Repetitions: where a token equals the one that stands p places before it, for 2p places or more on end, a period of p tokens (1 to 13) occurs three times or more.
The span of all of it has the number of whole periods as its score; a run of period 1 is one of period 2 as well, if it is long enough. They are looked for in ids, by the engine that `ragged` uses;
only a text with one is encoded again by the ``tokenizers`` library, which knows where tokens stand.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.errors import DataError, UsageError
from dolma_dask.taggers.base import SPANS, Kind, ViewTagger
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bools, Counts, Floats, kernel
from dolma_dask.text.units import cut
from dolma_dask.text.view import TextView

if TYPE_CHECKING:
    from dolma_dask.tokens.encoding import Tokens
    from dolma_dask.tokens.engine import TokenEngine

_LONGEST_PERIOD = 13
_CHUNK = 100_000
"""Code points of a text that `tokenizer_repetitions_v2r2` looks at together."""

Span = tuple[int, int, float]


class Pieces(NamedTuple):
    """Texts that are encoded one by one, each a part of a document, perhaps with a blank before it."""

    texts: pa.LargeStringArray  # (pieces,)
    rows: Counts  # (pieces,) document
    starts: Counts  # (pieces,) code point in the document, of what is behind the blank
    margin: int = 0  # code points before it


def _encoded(tokenizer: "TokenEngine", view: TextView) -> "Tokens":
    key = f"tokens {tokenizer.in_text} {tokenizer.fingerprint}"
    if key not in view.kept:
        view.kept[key] = tokenizer.encode(view.texts)
    tokens: Tokens = view.kept[key]
    return tokens


def _encoded_pieces(tokenizer: "TokenEngine", pieces: Pieces) -> "Tokens":
    try:
        return tokenizer.encode(pieces.texts)
    except DataError as error:
        piece = error.details.get("row")
        if not isinstance(piece, int):
            raise
        row = int(pieces.rows[piece])
        message = str(error).replace(f"row {piece} of the batch", f"row {row} of the batch")
        raise DataError(message, row=row) from error


def _by_library(tokenizer: "TokenEngine") -> "TokenEngine":
    """Return the tokenizer for which special tokens in texts are control tokens, as for the library."""
    from dataclasses import replace

    return replace(tokenizer, in_text="encode")


def _count(tokenizer: "TokenEngine", view: TextView) -> Iterator[Floats]:
    yield _encoded(tokenizer, view).lengths.astype(np.float64)


def _count_by_library(tokenizer: "TokenEngine", view: TextView) -> Iterator[Floats]:
    return _count(_by_library(tokenizer), view)


def _count_stripped(tokenizer: "TokenEngine", view: TextView) -> Iterator[Floats]:
    """Tokens of each text without white space on either side, with those that the tokenizer adds to a text; 0 where nothing is left."""
    from dolma_dask.tokens.engine import build

    stripped = [text.strip() for text in view.texts.to_pylist()]
    lengths = _by_library(tokenizer).encode(pa.array(stripped, pa.large_string())).lengths
    added = build(tokenizer).tokenizer.num_special_tokens_to_add(False)
    yield np.where(np.array([*map(bool, stripped)], np.bool_), lengths + added, 0.0)


def _whole(view: TextView) -> Pieces:
    return Pieces(view.texts, np.arange(len(view)), np.zeros(len(view), np.int64))


def _chunks(view: TextView) -> Pieces:
    if not (view.lengths > _CHUNK).any():
        return _whole(view)
    found = [
        (text[start : start + _CHUNK], row, start)
        for row, text in enumerate(view.texts.to_pylist())
        for start in range(0, len(text), _CHUNK)
    ]
    texts, rows, starts = zip(*found, strict=True)
    return Pieces(pa.array(texts, pa.large_string()), np.array(rows), np.array(starts))


def _paragraphs(view: TextView) -> Pieces:
    """Each with a blank before it, so that its first token is that of a word within a text."""
    pieces = cut(view, "any_paragraph")
    texts = pa.array([f" {text}" for text in pieces.view.texts.to_pylist()], pa.large_string())
    return Pieces(texts, np.repeat(np.arange(len(view)), np.diff(pieces.bounds)), pieces.starts, 1)


@kernel
def _mark_repetitive(ids: npt.NDArray[Any], bounds: Counts, repetitive: Bools) -> None:
    """Tell of each text whether a period of its ids occurs three times on end."""
    for text in range(repetitive.size):
        repetitive[text] = False
        for period in range(1, _LONGEST_PERIOD + 1):
            run = 0
            for at in range(bounds[text] + period, bounds[text + 1]):
                run = (run + 1) * (ids[at] == ids[at - period])
                if run == 2 * period:
                    repetitive[text] = True
                    break
            if repetitive[text]:
                break


def _runs(ids: npt.NDArray[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield where each repetition begins and ends, in tokens, and its whole periods."""
    for period in range(1, min(_LONGEST_PERIOD, ids.size // 3) + 1):
        same = np.concatenate(([False], ids[period:] == ids[:-period], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2)
        for start, end in edges[edges[:, 1] - edges[:, 0] >= 2 * period].tolist():
            yield start, end + period, (end + period - start) // period


def _located(tokenizer: "TokenEngine", text: str) -> tuple[npt.NDArray[Any], Counts]:
    """Return the ids of a text, and the code points where each token begins and ends (n, 2); a long text is encoded in parts, as by `TokenEngine.encode`."""
    from dolma_dask.tokens.encoding import cut_long
    from dolma_dask.tokens.engine import build

    known, place = build(tokenizer), 0
    ids, places = [np.empty(0, np.int64)], [np.empty((0, 2), np.int64)]
    for part in cut_long(pa.array([text], pa.large_string()), known.cutter, known.tokenizer)[0].to_pylist():
        encoding = known.tokenizer.encode(part, add_special_tokens=False)
        ids.append(np.array(encoding.ids, np.int64))
        places.append(np.array(encoding.offsets, np.int64).reshape(-1, 2) + place)
        place += len(part)
    return np.concatenate(ids), np.concatenate(places)


def _spans(tokenizer: "TokenEngine", text: str, start: int, margin: int) -> list[Span]:
    """Return the repetitions of a piece in its document, sorted; none begins before the piece."""
    ids, places = _located(tokenizer, text)
    found = (
        (
            start + max(int(places[first, 0]) - margin, 0),
            start + int(places[end - 1, 1]) - margin,
            float(times),
        )
        for first, end, times in _runs(ids)
    )
    return sorted(found, key=lambda span: (span[0], -span[1], -span[2]))


def _outermost(spans: Sequence[Span]) -> list[Span]:
    """Leave out each span that lies in the last one that stayed."""
    kept: list[Span] = []
    for span in spans:
        if not kept or span[1] > kept[-1][1]:
            kept.append(span)
    return kept


def _repetitions(
    tokenizer: "TokenEngine", view: TextView, *, pieces_of: Callable[[TextView], Pieces], is_sparse: bool
) -> list[pa.Array]:
    """Return the repetitions of each text, the most periods and code points of one, and their share of the text; with `is_sparse` nothing of texts without any."""
    pieces, library = pieces_of(view), _by_library(tokenizer)
    tokens = _encoded(library, view) if pieces.texts is view.texts else _encoded_pieces(library, pieces)
    repetitive = np.empty(len(pieces.texts), np.bool_)
    bounds = np.concatenate(([0], np.cumsum(tokens.lengths, dtype=np.int64)))
    _mark_repetitive(for_kernel(tokens.ids.astype(np.int32, copy=False)), for_kernel(bounds), repetitive)
    found: list[list[Span]] = [[] for _ in range(len(view))]
    for piece in np.flatnonzero(repetitive).tolist():
        spans = _spans(library, pieces.texts[piece].as_py(), int(pieces.starts[piece]), pieces.margin)
        found[pieces.rows[piece]] += _outermost(spans) if is_sparse else spans
    sums = [_summary(spans, size) for spans, size in zip(found, view.lengths.tolist(), strict=True)]
    mask = np.array([is_sparse and not spans for spans in found], np.bool_)
    numbers = np.array(sums, np.float64).reshape(len(view), 3).T
    return [
        pa.array([spans or None for spans in found], SPANS),
        *(pa.array(column, mask=mask) for column in numbers),
    ]


def _summary(spans: Sequence[Span], size: int) -> tuple[float, float, float]:
    sizes = [end - start for start, end, _ in spans]
    return (
        max((score for _, _, score in spans), default=0.0),
        max(sizes, default=0),
        sum(sizes) / max(size, 1),
    )


def _without_tokenizer(view: TextView) -> Sequence[pa.Array]:
    raise UsageError("this tagger needs a tokenizer; expected it from `ViewTagger.with_tokenizer`.")


def _row(
    name: str,
    description: str,
    score: Callable[..., Any],
    types: Sequence[str],
    source: str = "",
    **more: Any,
) -> ViewTagger:
    """Return a tagger whose scorer takes a tokenizer first."""
    kinds: dict[str, Kind] = dict.fromkeys(types, "document")
    if "repetition" in kinds:
        kinds["repetition"], more = "spans", {"meanings": _MEANINGS, **more}

    return ViewTagger(
        name, kinds, _without_tokenizer, description=description, tokenize=partial(partial, score),
        source=source or "any tokenizer of the tokenizers library", **more,
    )  # fmt: skip


_MEANINGS = {
    "repetition": "each run of equal periods of 1 to 13 tokens, and how often they occur",
    "doc_max_score_repetition": "most periods of a run",
    "doc_max_length_repetition": "code points of the longest run",
    "doc_frac_repetition": "code points of all runs, by those of the text; above 1 where they overlap",
}
_NEOX, _OLMO = "EleutherAI/gpt-neox-20b", "allenai/eleuther-ai-gpt-neox-20b-pii-special"
_SORTED = "Spans are sorted by where they begin; the toolkit has them by period."

TAGGERS = (
    _row("tokens", "Tokens of the text, as `ragged` writes them.", _count, ["count"]),
    _row("tokenizers_EleutherAI_GPT_NeoX_20B", "Tokens of the text by GPT-NeoX.", _count_by_library, ["tokens"], _NEOX),
    _row("tokenizers_AI2_OLMo_v1", "Tokens of the text by the tokenizer of OLMo 1.", _count_by_library, ["tokens"], _OLMO),
    _row(
        "dolma_v1_tokenizer", "Tokens of the stripped text by the tokenizer of Dolma 1.5, with those that it adds.", _count_stripped, ["length"],
        "allenai/gpt-neox-olmo-dolma-v1_5",
    ),
    _row(
        "dolma_v2_tokenizer", "Tokens of the stripped text by the tokenizer of Dolma 2, with those that it adds.", _count_stripped, ["length"],
        "allenai/dolma2-tokenizer",
    ),
    _row(
        "tokenizer_repetitions_v1", "Tokens that repeat three times or more.", partial(_repetitions, pieces_of=_whole, is_sparse=False), [*_MEANINGS],
        _OLMO, differs=_SORTED,
    ),
    _row(
        "paragraph_tokenizer_repetitions_v1", "Tokens that repeat three times or more within a paragraph.",
        partial(_repetitions, pieces_of=_paragraphs, is_sparse=False), [*_MEANINGS],
        _OLMO, differs=f"{_SORTED} None begins before its paragraph.",
    ),
    _row(
        "tokenizer_repetitions_v2r2", "Tokens that repeat three times or more, outermost runs only, in parts of 100,000 characters.",
        partial(_repetitions, pieces_of=_chunks, is_sparse=True), [*_MEANINGS], _OLMO,
    ),
)  # fmt: skip
