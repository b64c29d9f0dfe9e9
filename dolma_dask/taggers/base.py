"""The tagger protocol: a rule that reads columns of a batch and returns one column per attribute.

A tagger never sees files, Dask or JSON. It gets a batch of documents and returns a batch of the same length and
order; keys, spans and bytes are made elsewhere (`dolma_dask.formats.attributes`). That keeps a published rule set in one small
file, and lets all taggers of a run share one pass over the text.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from dolma_dask.errors import DataError, UsageError
from dolma_dask.extras import missing
from dolma_dask.models.opened import Open as Open
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Bools, Counts, Floats
from dolma_dask.text.units import Cut, Unit, cut, repeated
from dolma_dask.text.view import TextView

if TYPE_CHECKING:
    from dolma_dask.results.table import Table
    from dolma_dask.taggers.contamination import Against
    from dolma_dask.tokens.engine import TokenEngine

Kind = Literal["document", "spans", "scalar", "dict", "labels"]
"""Form of a column in JSON. ``document``: float64, written ``[[0, len(text), x]]`` (null: key left out);
``spans``: ``list<struct<start: int64, end: int64, score: float64>>`` in code points, end exclusive;
``scalar``: a bare number, bool or string; ``dict``: a struct or map of numbers, written as an object; ``labels``: a key for each label, of
``document`` numbers from a ``map<string, float64>``, of ``spans`` from a ``list<struct<label: string, start, end, score>>``."""

NUMBER = pa.float64()
"""Arrow type of a ``document`` column."""
SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))
"""Arrow type of a ``spans`` column."""
NUMBERS_BY_NAME = pa.map_(pa.string(), pa.float64())
"""Arrow type of a ``dict`` column made from a function of one text, and of ``labels`` of documents."""
LABELLED_SPANS = pa.list_(
    pa.struct([("label", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())])
)
"""Arrow type of a column of ``labels`` of spans."""


@runtime_checkable
class Tagger(Protocol):
    """The protocol; see `dolma_dask.taggers.registry` for the decorator that makes one from a function.

    Attributes
    ----------
    name : str
        Published name with its version, such as ``gopher_v2``.
    version : int | str
        Raised whenever the output changes for some text; part of the key under which finished work is known.
    params : str
        Canonical JSON of the parameters, ``"{}"`` if there are none.
    types : Mapping[str, Kind]
        Output columns in writing order, and how each is written.
    reads : tuple of str
        Columns the tagger looks at; a tagger without ``"text"`` here is not stale when only the text changes.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int | str: ...
    @property
    def params(self) -> str: ...
    @property
    def types(self) -> Mapping[str, Kind]: ...
    @property
    def reads(self) -> tuple[str, ...]: ...

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Tag `batch` (columns `reads`, large_string, no nulls); return columns `types` of equal length and order."""
        ...


class Tally(Protocol):
    """Counts of what a tagger has found in a shard, for summaries and reports; made of what the tagger scores with."""

    def __init__(self, scorer: "Scorer") -> None: ...

    def add(self, columns: Mapping[str, pa.Array], rows: int) -> None:
        """Count rows by their attributes, as they are written, by type or label."""
        ...

    def info(self) -> Any:
        """Return the counts as the journal keeps them."""
        ...

    @staticmethod
    def merged(shards: Iterable[Any]) -> Sequence[Any]:
        """Return the sums over the counts of shards, a record for each row of a table."""
        ...

    @staticmethod
    def table(rows: Sequence[Any]) -> "Table":
        """Return the table of the sums."""
        ...


Scorer = Callable[..., Iterable[pa.Array | np.ndarray]]
"""Scores texts: it gets a view of them, and each other column that is read; it returns a column for each type, with a value for each text."""


@dataclass(frozen=True)
class Part:
    """What a scorer says of each piece of the documents.

    A number becomes the score of a span, from where the piece begins to where it ends; spans and labels in a piece move to where they stand in the document. A document
    without a span has no value, as in the Dolma toolkit. Over documents all columns stay as they are.
    """

    scorer: Scorer
    types: Mapping[str, Kind]  # columns of the scorer: ``document`` for a number of each piece
    unit: Unit = "document"

    @property
    def written(self) -> Mapping[str, Kind]:
        """Types as they are written: spans, where a number is of a piece."""
        if self.unit == "document":
            return self.types
        return {name: "spans" if kind == "document" else kind for name, kind in self.types.items()}

    def score(self, view: TextView, *others: pa.Array) -> Iterator[pa.Array | np.ndarray]:
        """Yield a column for each type, a value for each document of a view."""
        if self.unit == "document":
            yield from self.scorer(view, *others)
            return
        pieces = cut(view, self.unit)
        for column in self.scorer(pieces.view, *(repeated(other, pieces.bounds) for other in others)):
            yield _in_documents(pieces, column if isinstance(column, pa.Array) else pa.array(column))


def _in_documents(pieces: Cut, column: pa.Array) -> pa.Array:
    """Return what was found in pieces as spans of their documents, with labels or without; pieces without a number have no span."""
    if pa.types.is_map(column.type):
        offsets = np.asarray(column.offsets)
        parents = np.repeat(np.arange(len(column)), np.diff(offsets))
        inside = slice(int(offsets[0]), int(offsets[-1]))
        fields = {"label": column.keys[inside], **_places(pieces, parents), "score": column.items[inside]}
    elif pa.types.is_list(column.type):
        parents, found = np.asarray(pc.list_parent_indices(column)), column.flatten()
        fields = {name: found.field(name) for name in found.type.names}
        moved = pa.array(pieces.starts[parents])
        fields |= {name: pc.add(fields[name], moved) for name in ("start", "end")}
    else:
        parents = np.flatnonzero(validity(column))
        fields = {**_places(pieces, parents), "score": column.drop_null().cast(pa.float64())}
    offsets = np.searchsorted(parents, pieces.bounds).astype(np.int32)
    spans = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.ListArray.from_arrays(pa.array(offsets), spans, mask=pa.array(np.diff(offsets) == 0))


def _places(pieces: Cut, numbers: Counts) -> dict[str, pa.Array]:
    """Return where pieces of these numbers begin and end."""
    return {"start": pa.array(pieces.starts[numbers]), "end": pa.array(pieces.ends[numbers])}


def span_column(bounds: Counts, starts: Counts, ends: Counts, scores: Floats | None = None) -> pa.Array:
    """Return the spans of each text, text ``i`` having those from ``bounds[i]`` to ``bounds[i + 1]``, null where it has none; without scores each has 1."""
    parts = starts, ends, np.ones(len(starts)) if scores is None else scores
    spans = pa.StructArray.from_arrays([pa.array(part) for part in parts], fields=list(SPANS.value_type))
    offsets = pa.array(bounds.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, spans, mask=pa.array(np.diff(bounds) == 0))


def summed(scorer: Scorer, unit: Unit) -> Scorer:
    """Make a scorer of texts of one of their pieces: the sums of its whole numbers, 0 for a text without pieces."""
    return partial(_sum_pieces, scorer, unit)


def _sum_pieces(scorer: Scorer, unit: Unit, view: TextView, *others: pa.Array) -> Iterator[Floats]:
    pieces = cut(view, unit)
    for column in scorer(pieces.view, *(repeated(other, pieces.bounds) for other in others)):
        sums = np.concatenate(([0.0], np.cumsum(column)))[pieces.bounds]
        yield np.diff(sums)


def each_text(
    function: Callable[..., Sequence[Any]],
    types: Sequence[pa.DataType],
    *,
    only: Callable[[TextView], Bools] | None = None,
) -> Scorer:
    """Make a scorer of a plain function of one text (and of the other columns that are read), for what is rare or slow by nature.

    The function returns a value for each type: of `NUMBER` a number or None, of `SPANS` a list of (start, end, score), of `NUMBERS_BY_NAME` a list of (label, number), of
    `LABELLED_SPANS` a list of (label, start, end, score). It is called for texts that `only` (n,) is true for; the others have no values.
    """
    return partial(_score_each, function, tuple(types), only)


def _score_each(
    function: Callable[..., Sequence[Any]],
    types: Sequence[pa.DataType],
    only: Callable[[TextView], Bools] | None,
    view: TextView,
    *others: pa.Array,
) -> list[pa.Array]:
    rows = np.arange(len(view)) if only is None else np.flatnonzero(only(view))
    values: list[list[Any]] = [[None] * len(view) for _ in types]
    wanted = pa.array(rows)
    columns = [column.take(wanted).to_pylist() for column in (view.texts, *others)]
    for row, document in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
        try:
            found = function(*document)
        except Exception as error:
            name = getattr(function, "__name__", type(function).__name__)
            raise DataError(
                f"row {row} of the batch: {name}: {type(error).__name__}: {error}", row=row
            ) from error
        for column, value in zip(values, found, strict=True):
            column[row] = value
    return [pa.array(column, type) for column, type in zip(values, types, strict=True)]


def _score_parts(parts: Sequence[Part], view: TextView, *others: pa.Array) -> Iterator[pa.Array | np.ndarray]:
    for part in parts:
        yield from part.score(view, *others)


@dataclass(frozen=True)
class ViewTagger:
    """A tagger that reads ``text``, as the view that all taggers of a pass share, and perhaps other columns, or these alone.

    `function` gets the view, and each other column of `reads`; without ``text`` there it leaves the view alone, which may be of any column. It returns a column for each of `types`, a value for each text. Its docstring
    describes the tagger, `meanings` its types. With `files`, patterns of names in a folder of the user's, `load` makes another function of those
    that are there: `with_files`. With `tokenize`, which makes a function of a tokenizer of the user's, `with_tokenizer` does, and with `against`, which makes the fields that depend on
    benchmarks of the user's, `with_against`.
    """

    name: str
    types: Mapping[str, Kind]
    function: Scorer
    version: int = 1
    description: str = ""  # empty: the first line of the docstring of the function
    params: str = "{}"
    meanings: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(
        default_factory=dict
    )  # numbers above which a document is taken for junk
    reads: tuple[str, ...] = ("text",)
    decimals: int = 5  # that documents and spans are rounded to when they are written
    parts: tuple[Part, ...] = ()  # what `function` is made of: `of`
    differs: str = ""  # from the published tagger of this name, if it does
    extra: str = ""  # package that it needs, of `dolma_dask.extras`
    is_optional: bool = False  # left out, with a note, where that package is missing and others are asked for
    source: str = ""  # where to get the files that it needs; empty: it works without
    labels: Callable[[str], Sequence[str]] | None = (
        None  # all that a column of kind ``labels`` may have, by its type; none: nobody knows before
    )
    files: tuple[str, ...] = ()
    load: Callable[[Mapping[str, Open]], Scorer] | None = None
    loads_first: bool = False  # its files are small: what is wrong with them is told before anything runs
    note: Callable[[Scorer], str] | None = None  # what people should know of what was loaded, if anything
    tokenize: "Callable[[TokenEngine], Scorer] | None" = None
    against: "Callable[[Against], Mapping[str, Any]] | None" = None
    tally: type[Tally] | None = None
    cost: str = ""  # for `dolma_dask.placement`, if it is much dearer than others

    @classmethod
    def of(cls, name: str, description: str, *parts: Part, **more: Any) -> "ViewTagger":
        """Return the tagger with the types of all parts, in their order; `more` are other fields."""
        types = {type: kind for part in parts for type, kind in part.written.items()}
        return cls(name, types, partial(_score_parts, parts), description=description, parts=parts, **more)

    @property
    def units(self) -> tuple[Unit, ...]:
        """What is scored."""
        return tuple(dict.fromkeys(part.unit for part in self.parts)) or ("document",)

    @property
    def option(self) -> str:
        """Option of `tag` that it does nothing without; empty: none."""
        return "--tokenizer" if self.tokenize else "--against" if self.against else ""

    def with_files(self, files: Mapping[str, Open]) -> "ViewTagger":
        """Return the tagger that uses these files, by name."""
        return self if self.load is None else dataclasses.replace(self, function=self.load(files), source="")

    def lacks(self, *, has_files: bool = False) -> str | None:
        """Say what it needs and does not have, a package, a tokenizer or a file of the user's; None if it can be called."""
        what = f"the tagger {self.name}"
        if self.extra and (message := missing(self.extra, what)) is not None:
            return message
        if not self.source or has_files:
            return None
        if self.tokenize is not None:
            return f"{what} counts tokens of a tokenizer, and none was given; expected --tokenizer, {self.source}."
        if self.against is not None:
            return f"{what} compares texts with benchmarks, and none were given; expected --against, {self.source}."
        if not self.files:
            return f"{what} cannot be used: {self.source}"
        return f"{what} needs a file of yours: found none, expected {' or '.join(self.files)} in the folder of --artifacts. {self.source}"

    def with_tokenizer(self, tokenizer: "TokenEngine") -> "ViewTagger":
        """Return the tagger that uses this tokenizer, whose digest is one of its parameters."""
        if self.tokenize is None:
            return self
        params = json.dumps(tokenizer.params(), sort_keys=True, separators=(",", ":"))
        return dataclasses.replace(
            self, function=self.tokenize(tokenizer), params=params, cost=tokenizer.cost, source=""
        )

    def with_against(self, given: "Against") -> "ViewTagger":
        """Return the tagger that compares texts with these benchmarks, which are its parameters."""
        if self.against is None:
            return self
        params = json.dumps(given.params, sort_keys=True, separators=(",", ":"))
        fields: dict[str, Any] = {**self.against(given), "params": params, "source": ""}
        return dataclasses.replace(self, **fields)

    def of_view(self, view: TextView, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the texts of a view, which are those of a batch.

        Raises `UsageError`: a file of the user's is needed, and was not given.
        """
        if self.source:
            raise UsageError(str(self.lacks()))
        others = (batch.column(name) for name in self.reads if name != "text")
        columns = (
            column if isinstance(column, pa.Array) else pa.array(column)
            for column in self.function(view, *others)
        )
        return pa.RecordBatch.from_arrays(list(columns), names=list(self.types))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the texts of a batch."""
        return self.of_view(TextView(batch.column("text" if "text" in self.reads else self.reads[0])), batch)
