"""Problems that `validate` finds: their kinds, a collection that counts all and keeps the first of each kind, and the report.

A problem names its file and row, what was found and what was expected. Memory: `keep` problems per kind, however many there are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dolma_dask import fragments
from dolma_dask.display import counted
from dolma_dask.errors import AlignmentError, DataError, SchemaError, SourceChangedError, StaleAttributesError
from dolma_dask.io import files
from dolma_dask.summary import Summary, show

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

    @property
    def shown_row(self) -> str:
        """The row as text, empty for a whole file."""
        return "" if self.row == WHOLE_FILE else f"{self.row:,}"

    def to_json(self) -> dict[str, Any]:
        """Return it with null for the row of a whole file."""
        row = None if self.row == WHOLE_FILE else self.row
        return {"file": self.file, "row": row, "found": self.found, "expected": self.expected}

    def __str__(self) -> str:
        location = self.file if self.row == WHOLE_FILE else f"{self.file}, row {self.shown_row}"
        return f"{location}: {self.found}; expected {self.expected}"


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


# ------------------------------------------------------------------------------------------------ the report

FORMAT = "dolma_dask.validate"
"""Names the JSON of a report, at its beginning."""


@dataclass(frozen=True)
class KindProblems:
    """The problems of one kind: how many, and the first of them by file and row."""

    count: int
    first: tuple[Problem, ...]


@dataclass(frozen=True, repr=False)
class ValidateSummary(Summary):
    """The report of `validate`; see its table of kinds.

    Attributes
    ----------
    found : Mapping[str, KindProblems]
        Kind to problems, in the order of the table; a kind without problems is not in it.
    scope : Mapping[str, Any]
        What was looked at: ``files`` and ``files_of`` (all there are), ``attributes`` (sets), ``against``, ``sample``, ``seed``.
    """

    found: Mapping[str, KindProblems] = field(default_factory=dict)
    scope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problems(self) -> int:
        """Number of all problems."""
        return sum(item.count for item in self.found.values())

    @property
    def exit_status(self) -> int:
        """1 if there is any problem, or a shard could not be checked."""
        return 1 if self.problems or self.failed or self.lost else 0

    def report(self) -> dict[str, Any]:
        """Return what depends on the files alone: the same for every run and any number of workers."""
        return {
            "format": FORMAT,
            "dataset": last_names(self.target),
            "valid": not self.problems,
            "scope": dict(self.scope),
            "counts": {name: int(count) for name, count in self.counts.items()},
            "problems": {
                kind: {
                    "count": item.count,
                    "expected": KINDS[kind],
                    "first": [one.to_json() for one in item.first],
                }
                for kind, item in self.found.items()
            },
            "notes": list(self.notes),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the report with what the run was."""
        return {**super().to_json(), **self.report()}

    def body(self) -> list[tuple[str, str]]:
        """Return the lines of the table: what was looked at, then every kind of problem with its count."""
        if self.planned:
            return super().body()
        sets = self.scope.get("attributes", [])
        rows = [
            ("looked at", self._looked_at()),
            ("documents", show("documents", self.counts.get("documents_in", 0))),
            ("text", show("text_bytes", self.counts.get("text_bytes", 0))),
            ("attribute files", show("attribute_files", self.counts.get("attribute_files", 0))),
            ("attribute sets", ", ".join(sets) or "none"),
        ]
        if self.scope.get("against"):
            rows.append(("against", str(self.scope["against"])))
        rows.append(("problems", f"{self.problems:,}" if self.problems else "none"))
        rows += [(f"  {kind}", f"{item.count:,}") for kind, item in self.found.items()]
        return [*rows, ("where", self.target)]

    def _looked_at(self) -> str:
        files, total = self.scope.get("files", 0), self.scope.get("files_of", 0)
        return f"all {counted(files, 'file')}" if files == total else f"ONLY {files:,} of {total:,} files"

    def __str__(self) -> str:
        lines = [super().__str__()]
        for kind, item in self.found.items():
            lines.append(f"{kind}: {item.count:,}, expected {KINDS[kind]}")
            lines += [f"  {problem}" for problem in item.first]
            if item.count > len(item.first):
                lines.append(f"  and {item.count - len(item.first):,} more")
        return "\n".join(lines)

    __repr__ = __str__

    def parts(self) -> Iterator[str]:
        yield from super().parts()
        for kind, item in self.found.items():
            rows = [[one.file, one.shown_row, one.found, one.expected] for one in item.first]
            yield fragments.table(f"{kind}: {item.count:,}", [["file", "row", "found", "expected"], *rows])
            if item.count > len(item.first):
                yield fragments.notes([f"and {item.count - len(item.first):,} more"])


def last_names(root: str) -> str:
    """Return the last two names of a path: the name of a dataset wherever it lies."""
    return "/".join(root.rstrip("/").split("/")[-2:])
