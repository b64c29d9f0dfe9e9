"""trace: the documents that a row of a token file is made of. Cost: some milliseconds, for a row group of its segments and one row of each document."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Struct

from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats.segments import segments_path
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.loaders.token_rows import read_ids
from dolma_dask.options.base import Opt, Options
from dolma_dask.options.command import command
from dolma_dask.questions.tracing.origins import Documents, State, TokenFile, run_of, token_file
from dolma_dask.questions.tracing.places import span
from dolma_dask.reading.segments import read_segments
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Fact, Facts, Listing, Notes, Part
from dolma_dask.results.table import Column, Table
from dolma_dask.text import compute as pc
from dolma_dask.tokens.engine import build

FIRST_CHARACTERS = 200
"""Characters of a text that are shown."""


class TracedPart(Struct, frozen=True):
    """Neighbouring tokens of one document in a row."""

    first: int  # position at which the run of tokens begins that the row was filled from
    place: int  # first position
    size: int  # tokens
    start: int  # first token, of those of the document
    source: str | None
    id: str | None
    path: str  # of the shard, relative to the dataset that was read
    document: int  # row in the shard
    state: State  # of the document in the dataset now
    text: str = ""  # the first characters of the document
    tokens: str | None = None  # text of the tokens; None: no tokenizer was given


class Traced(Answer, frozen=True):
    """The documents of a row of a token file; prints as a table."""

    file: str
    row: int
    dataset: str | None  # URL of the dataset that the tokens are of; None: no journal tells
    verb: str | None
    documents: tuple[TracedPart, ...]
    position: int | None = None
    notes: tuple[str, ...] = ()

    def parts(self) -> Iterator[Part]:
        where = f"row {self.row:,} of {self.file}"
        at = [] if self.position is None else [Fact("position", self.position, "integer")]
        yield Facts(where, [Fact("dataset", self.dataset or "unknown"), *at])
        yield Table.of("", _COLUMNS, self.documents)
        for one in self.documents:
            if one.text:
                yield Listing(f"document {one.id}", [_shown(one.text)])
            if one.tokens is not None:
                yield Listing(f"tokens {span(one.place, one.size)}", [_shown(one.tokens)])
        yield Notes(self.notes)


_COLUMNS = (
    Column("positions", "words", lambda one: span(one.place, one.size)),
    Column("tokens", of="size"),
    Column("of the document", "words", lambda one: span(one.start, one.size)),
    Column("source", "name"),
    Column("id", "name"),
    Column("shard", "name", "path"),
    Column("row", of="document"),
    Column("now", "words", "state"),
)


def _shown(text: str) -> str:
    return repr(text[:FIRST_CHARACTERS]) + (" ..." if len(text) > FIRST_CHARACTERS else "")


@dataclass(frozen=True, kw_only=True)
class TraceOptions(Options):
    """Options of `trace`."""

    position: Annotated[
        int | None, Opt("Only the document that the token at this position of the row is of.", min=0)
    ] = None
    tokenizer: Annotated[str | None, Opt("Show the text of the tokens: the tokenizer that made them.")] = None


@command
def trace(
    file: Annotated[str, Opt("A token file: .data.npy, .npy, .bin, .ds, .mds, .parquet or .h5.")],
    row: Annotated[int, Opt("Row of the file, from 0: a document, or a row of HDF5.", min=0)],
    /,
    *,
    options: TraceOptions,
) -> Traced:
    """Tell which documents a row of a token file is made of: source, id, shard, row, tokens, and whether they are there still.

    Example: dolma-dask trace out/ragged/v1.00000-of-00001.data.npy 7

    Returns
    -------
    Traced

    Raises
    ------
    UsageError
        There is no such file, row or position, or nothing tells the documents of the file.

    Examples
    --------
    >>> dk.trace("out/rows/part-000000-00000.h5", 12).documents[0].id  # doctest: +SKIP
    """
    where = token_file(file)
    segments = _of_row(where, row)
    chosen = _at(segments, options.position, where, row)
    run = run_of(where)
    dataset = files.seen_from(where.root, run.origin) if run and run.origin else None
    texts = _texts(where, row, segments, options.tokenizer)
    documents, looked = Documents(), []
    for one in chosen:
        state, text = (
            documents.look(dataset, one["path"], one["document"], one["id"]) if dataset else ("unknown", "")
        )
        known = {
            name: one[name]
            for name in ("first", "place", "size", "start", "source", "id", "path", "document")
        }
        looked.append(TracedPart(**known, state=state, text=text[: FIRST_CHARACTERS + 1], tokens=texts(one)))
    notes = () if dataset else ("no journal tells the dataset that the tokens are of",)
    return Traced(where.url, row, dataset, run.verb if run else None, tuple(looked), options.position, notes)


def _of_row(file: TokenFile, row: int) -> list[dict[str, Any]]:
    """Return the segments of a row."""
    found: list[dict[str, Any]] = read_segments(file.root, file.path, [row]).to_pylist()
    if not found and row >= (rows := _rows(file)):
        raise UsageError(
            f"{file.url} has {counted(rows, 'row')} of documents, from 0 to {rows - 1:,}; found row {row:,}."
        )
    return found


def _rows(file: TokenFile) -> int:
    """Return the number of rows up to the last one with a document."""
    with open_parquet(files.join(file.root, segments_path(file.path))) as table:
        last = table.num_row_groups - 1
        if last < 0 or not table.metadata.num_rows:
            return 0
        return (
            int(pc.max(table.read_row_group(last, columns=["row"], use_threads=False).column(0)).as_py()) + 1
        )


def _at(
    segments: list[dict[str, Any]], position: int | None, file: TokenFile, row: int
) -> list[dict[str, Any]]:
    """Return the segments that hold a position; all of them for None."""
    if position is None:
        return segments
    found = [one for one in segments if one["place"] <= position < one["place"] + one["size"]]
    if not found:
        held = ", ".join(span(one["place"], one["size"]) for one in segments)
        raise UsageError(
            f"position {position:,} of row {row:,} of {file.url} holds no token of a document; those that do: {held or 'none'}. What is between and behind them is padding."
        )
    return found


def _texts(
    file: TokenFile, row: int, segments: list[dict[str, Any]], tokenizer: str | None
) -> Callable[[dict[str, Any]], str | None]:
    """Return what gives the text of the tokens of a segment: nothing without a tokenizer."""
    if tokenizer is None:
        return lambda segment: None
    vocabulary = build(open_tokenizer(tokenizer))
    ids = read_ids(file.url, row, _tokens_before(file, row), sum(one["size"] for one in segments))

    def text(segment: dict[str, Any]) -> str:
        own = ids[segment["place"] : segment["place"] + segment["size"]].tolist()
        if own and max(own) > vocabulary.max_id:
            raise UsageError(
                f"{tokenizer}: its largest id is {vocabulary.max_id:,}, found {max(own):,} in {file.url}; expected the tokenizer that made the tokens."
            )
        return str(vocabulary.tokenizer.decode(own, skip_special_tokens=False))

    return text


def _tokens_before(file: TokenFile, row: int) -> int:
    """Return the number of tokens of the documents before one, in files of ids that stand back to back."""
    if file.path.endswith((".h5", ".parquet", ".mds")):
        return 0
    with open_parquet(files.join(file.root, segments_path(file.path))) as table:
        batches = table.iter_batches(columns=["row", "size"], use_threads=False)
        return sum(
            int(np.asarray(one.column("size"))[np.asarray(one.column("row")) < row].sum()) for one in batches
        )
