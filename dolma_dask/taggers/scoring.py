"""Attributes that a tagger makes of a block of documents, as `tag` writes them beside documents and `convert` into them; documents that it cannot do are told one by one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from dolma_dask.errors import DataError, DolmaDaskError
from dolma_dask.extras import version_of
from dolma_dask.formats.attributes import AttributeColumn, attribute_key
from dolma_dask.formats.json.write import DECIMALS
from dolma_dask.taggers.base import Tagger, ViewTagger
from dolma_dask.taggers.labels import by_label
from dolma_dask.taggers.lifting import as_tagger
from dolma_dask.taggers.registry import get_tagger, speeds
from dolma_dask.text.view import TextView

TaggerLike = str | Tagger | Callable[..., Any]
"""A tagger, a function that becomes one, or the name or place of either."""

UNMEASURED_SPEED = 1.0
"""MB of text per CPU-second taken for a tagger that calls another package and was not measured."""


def taggers_of(given: Sequence[TaggerLike] | TaggerLike) -> list[Tagger]:
    """Return the taggers that names, places, functions and taggers stand for.

    Raises `UsageError`: one of them is none.
    """
    items: Iterable[Any] = [given] if isinstance(given, str) or callable(given) else given
    return [get_tagger(item) if isinstance(item, str) else as_tagger(item) for item in items]


def identity_of(tagger: Tagger) -> list[Any]:
    """Return what decides the output of a tagger, for keys: its version, and that of the package that answers for it, too."""
    package = tagger.extra if isinstance(tagger, ViewTagger) else ""
    version = f"{tagger.version} {version_of(package)}" if package else str(tagger.version)
    return [tagger.name, version, tagger.params, list(tagger.types)]


def locked_seconds(taggers: Iterable[Tagger]) -> float:
    """Return the CPU-seconds per MB of text of taggers that call other packages, which hold the interpreter lock; kernels do not, and are quick."""
    slow = [one.name for one in taggers if isinstance(one, ViewTagger) and one.extra]
    return sum(1 / speeds().get(name, UNMEASURED_SPEED) for name in slow)


def cannot_do(tagger: Tagger) -> str:
    """Return what was expected in place of a document that a tagger failed on, for people."""
    return f"a document that the tagger {tagger.name} can do"


def known_labels(tagger: Tagger) -> Mapping[str, Sequence[str]]:
    """Return all labels that columns of a tagger may have, by their type; of others nobody knows before."""
    labels = tagger.labels if isinstance(tagger, ViewTagger) else None
    return {type: labels(type) for type, kind in tagger.types.items() if labels and kind == "labels"}


def score(
    name: str | None,
    tagger: Tagger,
    batch: pa.RecordBatch,
    view: TextView,
    known: Mapping[str, Sequence[str]] = {},
) -> list[AttributeColumn]:
    """Return the attributes that a tagger makes of the documents of a batch.

    Parameters
    ----------
    name : str or None
        First part of the keys, the attribute set; None: the name of the tagger.
    tagger : Tagger
        Tagger that has what it needs.
    batch : RecordBatch
        Columns that it reads (n,), without nulls.
    view : TextView
        View of the texts of the batch.
    known : mapping, optional
        Labels to make columns of, by type, besides those that are there.

    Raises
    ------
    DataError
        The tagger cannot do some document.
    """
    decimals = tagger.decimals if isinstance(tagger, ViewTagger) else DECIMALS
    try:
        if isinstance(tagger, ViewTagger):
            result = tagger.of_view(view, batch)
        else:
            result = tagger(batch.select(list(tagger.reads)))
    except (DolmaDaskError, MemoryError):
        raise
    except Exception as error:
        raise DataError(
            f"the tagger {tagger.name} failed on {batch.num_rows} documents: {type(error).__name__}: {error}",
            tagger=tagger.name,
        ) from error
    columns = []
    for output, kind in tagger.types.items():
        column = result.column(output)
        named = by_label(column, known.get(output, ())) if kind == "labels" else {output: (kind, column)}
        columns += [
            AttributeColumn(attribute_key(name, tagger.name, type), own, values, decimals=decimals)
            for type, (own, values) in named.items()
        ]
    return columns


def score_each(
    name: str | None,
    tagger: Tagger,
    batch: pa.RecordBatch,
    view: TextView,
    known: Mapping[str, Sequence[str]] = {},
) -> tuple[list[AttributeColumn], dict[int, DataError]]:
    """Return the attributes that a tagger makes, and the errors of the rows that it cannot do, which have none; see `score`.

    Raises `DataError`: no row can be blamed, or the tagger can do none, so that nobody knows its columns.
    """
    try:
        return score(name, tagger, batch, view, known), {}
    except DataError as error:
        failed = _failing_rows(name, tagger, batch, known)
        if not failed:
            raise
        first = error
    kept = np.isin(np.arange(batch.num_rows), list(failed), invert=True)
    others = batch.filter(pa.array(kept))
    try:
        columns = score(name, tagger, others, TextView(others.column("text")), known)
    except DataError:  # not even without documents: the types of its columns cannot be known
        raise first from None
    places = pa.array(np.cumsum(kept) - 1, mask=~kept)
    return [replace(column, values=column.values.take(places)) for column in columns], failed


def _failing_rows(
    name: str | None, tagger: Tagger, batch: pa.RecordBatch, known: Mapping[str, Sequence[str]]
) -> dict[int, DataError]:
    """Return the errors of rows that a tagger cannot do; a document's attributes do not depend on its neighbours, so each is tried alone."""
    failed = {}
    for row in range(batch.num_rows):
        one = batch.slice(row, 1)
        try:
            score(name, tagger, one, TextView(one.column("text")), known)
        except DataError as error:
            failed[row] = at_row(error, row, " of the batch")
    return failed


def at_row(error: DataError, first: int, of: str = "") -> DataError:
    """Return the error of a batch that begins at a row of something else, such as a file, with the row there; `of` names what that is."""
    row = error.details.get("row")
    if not isinstance(row, int):
        return error
    message = str(error).replace(f"row {row} of the batch", f"row {first + row}{of}")
    return DataError(message, **{**error.details, "row": first + row})
