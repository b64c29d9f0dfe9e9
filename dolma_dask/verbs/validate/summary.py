"""What `validate` returns: a report of everything that is wrong, and of everything that was not looked at."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dolma_dask.display import counted, html_table
from dolma_dask.summary import Summary, show
from dolma_dask.verbs.validate.problems import KINDS, Problem

FORMAT = "dolma_dask.validate"
"""Names the JSON of a report, at its beginning."""


@dataclass(frozen=True)
class Found:
    """The problems of one kind: how many, and the first of them by file and row."""

    count: int
    first: tuple[Problem, ...]


@dataclass(frozen=True, repr=False)
class ValidateSummary(Summary):
    """The report of `validate`; see its table of kinds.

    Attributes
    ----------
    found : Mapping[str, Found]
        Kind to problems, in the order of the table; a kind without problems is not in it.
    scope : Mapping[str, Any]
        What was looked at: ``files`` and ``files_of`` (all there are), ``attributes`` (sets), ``against``, ``sample``, ``seed``.
    """

    found: Mapping[str, Found] = field(default_factory=dict)
    scope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problems(self) -> int:
        """Number of all problems."""
        return sum(item.count for item in self.found.values())

    @property
    def exit_status(self) -> int:
        """1 if there is any problem, or a shard could not be checked."""
        return 1 if self.problems or self.failed or self.lost else 0

    def with_notes(self, notes: Iterable[str]) -> "ValidateSummary":
        """Return the summary with other notes."""
        return replace(self, notes=tuple(notes))

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

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table: what was looked at, then every kind of problem with its count."""
        if self.planned:
            return super().rows()
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
        return [*rows, ("seconds", f"{self.seconds:,.1f}"), ("where", self.target)]

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

    def _repr_html_(self) -> str:
        tables = (_html_table(kind, item) for kind, item in self.found.items())
        return "".join([super()._repr_html_(), *tables])


def _html_table(kind: str, item: Found) -> str:
    rows = [[one.file, one.shown_row, one.found, one.expected] for one in item.first]
    more = item.count - len(item.first)
    rest = f"<p>and {more:,} more</p>" if more else ""
    return html_table(f"{kind}: {item.count:,}", [["file", "row", "found", "expected"], *rows]) + rest


def last_names(root: str) -> str:
    """Return the last two names of a path: what a dataset is called wherever it lies."""
    return "/".join(root.rstrip("/").split("/")[-2:])
