"""The tagger protocol: a rule that reads columns of a batch and returns one column per attribute.

A tagger never sees files, Dask or JSON. It gets a batch of documents and returns a batch of the same length and
order; keys, spans and bytes are made elsewhere (`dolma_dask.formats.attributes`). That keeps a published rule set in one small
file, and lets all taggers of a run share one pass over the text.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from dolma_dask.text.view import TextView

Kind = Literal["document", "spans", "scalar", "dict"]
"""Form of a column in JSON. ``document``: float64, written ``[[0, len(text), x]]`` (null: key left out);
``spans``: ``list<struct<start: int64, end: int64, score: float64>>`` in code points, end exclusive;
``scalar``: a bare number, bool or string; ``dict``: a struct or map of numbers, written as an object."""


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


Open = Callable[[], BinaryIO]
"""Opens a file of the user."""


@dataclass(frozen=True)
class ViewTagger:
    """A tagger that reads ``text``, as the view that all taggers of a pass share, and perhaps other columns.

    `function` gets the view, and each column of `reads` behind the first; it returns a column for each of `types`, a value for each text. Its docstring
    describes the tagger, `meanings` its types. With `files`, patterns of names in a folder of the user's, `load` makes another function of those
    that are there: `with_files`.
    """

    name: str
    types: Mapping[str, Kind]
    function: Callable[..., Iterable[pa.Array | np.ndarray]]
    version: int = 1
    params: str = "{}"
    meanings: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[str, ...] = ("text",)
    decimals: int = 5  # that documents and spans are rounded to when they are written
    files: tuple[str, ...] = ()
    load: Callable[[Mapping[str, Open]], Callable[..., Iterable[pa.Array | np.ndarray]]] | None = None

    def with_files(self, files: Mapping[str, Open]) -> "ViewTagger":
        """Return the tagger that uses these files, by name."""
        return self if self.load is None else dataclasses.replace(self, function=self.load(files))

    def of_view(self, view: TextView, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the texts of a view, which are those of a batch."""
        others = (batch.column(name) for name in self.reads[1:])
        columns = (
            column if isinstance(column, pa.Array) else pa.array(column)
            for column in self.function(view, *others)
        )
        return pa.RecordBatch.from_arrays(list(columns), names=list(self.types))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the texts of a batch."""
        return self.of_view(TextView(batch.column("text")), batch)
