"""Problems that `validate` finds: their kinds, and a collection that counts all and keeps the first of each kind.

A problem names its file and row, what was found and what was expected. Memory: `keep` problems per kind, however many there are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dolma_dask.errors import AlignmentError, DataError, SchemaError, SourceChangedError, StaleAttributesError
from dolma_dask.io import files

WHOLE_FILE = -1
"""Row of a problem of a file, not of a row."""

SHOWN = 200
"""Characters of an id or another value that a problem shows."""

KINDS: Mapping[str, str] = {
    "unreadable_file": "a whole file of the kind that its suffix says",
    "schema": "one type of values per column and key, the same in all files",
    "bad_record": "one JSON object per line in UTF-8, with strings id, text and source",
    "empty_id": "an id",
    "bad_metadata": "an object in field 'metadata'",
    "duplicate_id": "each (source, id) once in the dataset",
    "missing_attributes": "an attribute file for every document file",
    "two_attribute_files": "one attribute file for a document file",
    "orphan_attributes": "a document file of the same name",
    "misaligned": "row k of the attributes made from row k of the documents",
    "stale": "attributes made from the text that the documents have now",
    "two_runs": "flags of all shards made by one run, since they depend on each other",
    "bad_attribute_row": "one JSON object per line with id and attributes, each value of its key's kind",
    "span_outside_text": "0 <= start <= end <= code points of the text",
    "not_finite": "a finite number",
    "not_document_level": "one span [0, n, score], as in the rest of the key",
    "journal_mismatch": "the bytes that were written",
    "not_in_against": "a document of the earlier version",
    "lost_record": "a document of that id for each raw record",
    "order_changed": "rows in the order of the earlier version",
}
"""Every kind, in the order of the report, and the expected state."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    file: str  # relative to the dataset
    row: int  # from 0; `WHOLE_FILE` if it is the file's
    found: str
    expected: str

    @property
    def position(self) -> tuple[bytes, int, str]:
        """Sort key."""
        return self.file.encode(), self.row, self.found

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> "Problem":
        """Return what `to_json` gave."""
        return cls(**{**known, "row": WHOLE_FILE if known["row"] is None else known["row"]})

    def to_json(self) -> dict[str, Any]:
        """Return it with null for the row of a whole file."""
        row = None if self.row == WHOLE_FILE else self.row
        return {"file": self.file, "row": row, "found": self.found, "expected": self.expected}

    @property
    def place(self) -> str:
        """File and row."""
        return self.file if self.row == WHOLE_FILE else f"{self.file}, row {self.row:,}"

    def __str__(self) -> str:
        return f"{self.place}: {self.found}; expected {self.expected}"


class Problems:
    """Counts problems by kind and keeps the first `keep` of each, by file and row."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.counts: Counter[str] = Counter()  # all problems of each kind
        self._kept: dict[str, list[Problem]] = {}

    def add(
        self, kind: str, file: str, found: str, *, row: int = WHOLE_FILE, expected: str | None = None
    ) -> None:
        """Count one problem and remember it if it is among the first; `KINDS` says what was expected if nothing else is given."""
        self.add_all(kind, [Problem(file, row, found, expected or KINDS[kind])], 1)

    def add_all(self, kind: str, problems: Iterable[Problem], count: int) -> None:
        """Count `count` problems, of which the first ones are given."""
        if not count:
            return
        self.counts[kind] += count
        kept = self._kept.setdefault(kind, [])
        kept.extend(problems)
        if len(kept) > 2 * self.keep:
            self._cut(kind)

    def _cut(self, kind: str) -> None:
        self._kept[kind] = sorted(self._kept[kind], key=lambda item: item.position)[: self.keep]

    def first(self, kind: str) -> list[Problem]:
        """Return the remembered problems of a kind, sorted by file and row."""
        self._cut(kind)
        return list(self._kept[kind])

    @property
    def kinds(self) -> list[str]:
        """Kinds of which there are problems, in the order of `KINDS`."""
        return [kind for kind in KINDS if self.counts[kind]]

    @property
    def total(self) -> int:
        """Number of all problems."""
        return self.counts.total()

    def merge(self, found: Mapping[str, Any]) -> None:
        """Add the problems of `to_record`."""
        for kind, item in found.items():
            self.add_all(kind, [Problem(*values) for values in item["first"]], item["count"])

    def to_record(self) -> dict[str, Any]:
        """Return the problems for a journal."""
        return {
            kind: {
                "count": self.counts[kind],
                "first": [[one.file, one.row, one.found, one.expected] for one in self.first(kind)],
            }
            for kind in self.kinds
        }


def shown(value: str | None) -> str:
    """Return a value as messages show it."""
    return "none" if value is None else repr(value[:SHOWN])


_KIND_OF: tuple[tuple[type[DataError], str], ...] = (
    (StaleAttributesError, "stale"),
    (AlignmentError, "misaligned"),
    (SchemaError, "schema"),
)


def add_error(problems: Problems, root: str, path: str, error: DataError) -> None:
    """Turn an error of a reader into a problem; raise it if the file is being written and has to be checked again."""
    if isinstance(error, SourceChangedError) or files.stat(files.join(root, path)) is None:
        raise error
    kind = next((kind for known, kind in _KIND_OF if isinstance(error, known)), "unreadable_file")
    row = error.details.get("row")
    if kind == "stale" and row is not None:
        kind = "misaligned"  # a file that differs from its record, in a way that shows
    found = str(error).replace(f"{root}/", "").rstrip(".")
    problems.add(kind, path, found, row=row if isinstance(row, int) else WHOLE_FILE)
