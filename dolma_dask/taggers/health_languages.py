"""Language of each text and how far that is in doubt, by CLD2; and the languages of a dataset, counted from them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.results.table import Column, Table
from dolma_dask.taggers.base import Scorer
from dolma_dask.taggers.language import CLD2, surest_apart
from dolma_dask.text import compute as pc
from dolma_dask.text.kernels import Floats
from dolma_dask.text.view import TextView

DOUBT = 0.2
"""Doubt above which a text is taken for junk."""

UNKNOWN = "unknown"

_SHOWN = 20
"""Languages that a terminal and a notebook show."""


def score_language(view: TextView) -> Iterator[pa.Array | Floats]:
    """Yield the surest language of each text, null where none can be told, and 1 less how sure it is."""
    language, confidence = surest_apart(CLD2, view)
    yield language
    yield 1 - np.asarray(pc.fill_null(confidence, 0.0))


class LanguageRow(Struct, frozen=True):
    """The documents of a language."""

    language: str
    documents: int
    share: float  # of all documents
    in_doubt: int  # above the limit


class Languages:
    """Counts of the documents of a shard by language, and of those in doubt."""

    def __init__(self, _: Scorer) -> None:
        self._documents, self._in_doubt = Counter[str](), Counter[str]()

    def add(self, columns: Mapping[str, pa.Array], _: int) -> None:
        """Count documents by their attributes."""
        languages = pc.fill_null(columns["language"], UNKNOWN)
        self._documents.update(languages.to_pylist())
        self._in_doubt.update(languages.filter(pc.greater(columns["doubt"], DOUBT)).to_pylist())

    def info(self) -> dict[str, tuple[int, int]]:
        """Return the documents of each language and how many of them are in doubt, for the journal."""
        return {name: (count, self._in_doubt[name]) for name, count in sorted(self._documents.items())}

    @staticmethod
    def merged(shards: Iterable[Mapping[str, tuple[int, int]]]) -> list[LanguageRow]:
        """Return the sums over shards, the language of most documents first."""
        documents, in_doubt = Counter[str](), Counter[str]()
        for shard in shards:
            for name, (count, doubted) in shard.items():
                documents[name] += count
                in_doubt[name] += doubted
        ordered = sorted(documents, key=lambda name: (-documents[name], name))
        whole = max(documents.total(), 1)
        return [
            LanguageRow(name, documents[name], documents[name] / whole, in_doubt[name]) for name in ordered
        ]

    @staticmethod
    def table(rows: Sequence[LanguageRow]) -> Table:
        """Return the table of the sums."""
        caption = f"Language of each document by CLD2, and how many are in doubt: above {DOUBT:g}."
        return replace(Table.of("languages", _COLUMNS, rows, caption), max_rows=_SHOWN)


_COLUMNS = (
    Column("language", "name"),
    Column("documents"),
    Column("share", "share"),
    Column("in doubt", of="in_doubt"),
)
