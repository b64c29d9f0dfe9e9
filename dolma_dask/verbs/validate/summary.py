"""The report of `validate`: what was looked at, and the problems of each kind."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import counted, isolated, shown_name
from dolma_dask.results.parts import Fact, Heading, Part, Sentences, indented
from dolma_dask.results.summary import Recorded, Summary
from dolma_dask.results.table import Column, Table
from dolma_dask.verbs.validate.problems import KINDS, Problem

FORMAT = "dolma_dask.validate"
"""Names the JSON of a report, at its beginning."""

REPORT = "report"
"""Unit of the record that holds the newest report."""


class KindProblems(Struct, frozen=True):
    """The problems of one kind: how many, and the first of them by file and row."""

    count: int
    first: tuple[Problem, ...]


class ValidateSummary(Summary, frozen=True):
    """The report of `validate`; see its table of kinds.

    Attributes
    ----------
    found : Mapping[str, KindProblems]
        Kind to problems, in the order of the table; a kind without problems is not in it.
    scope : Mapping[str, Any]
        What was looked at: ``files`` and ``files_of`` (all there are), ``attributes`` (sets), ``against``, ``sample``, ``seed``.
    """

    found: Mapping[str, KindProblems] = {}
    scope: Mapping[str, Any] = {}

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
        known = super().to_json() | self.report()
        del known["found"]  # the problems of the report
        return known

    def facts(self) -> list[Fact]:
        """Return what was looked at, then every kind of problem with its count."""
        if self.planned:
            return super().facts()
        against = self.scope.get("against")
        return [
            Fact("looked at", self._looked_at()),
            Fact("documents", self.counts.get("documents_in", 0), "integer"),
            *([Fact("text", text, "size")] if (text := self.counts.get("text_bytes")) is not None else []),
            Fact("attribute files", self.counts.get("attribute_files", 0), "integer"),
            Fact("attribute sets", ", ".join(self.scope.get("attributes", [])) or "none"),
            *([Fact("against", str(against))] if against else []),
            Fact("problems", f"{self.problems:,}" if self.problems else "none"),
            *indented(Fact(kind, item.count, "integer") for kind, item in self.found.items()),
            Fact("where", self.target),
        ]

    def _looked_at(self) -> str:
        files, total = self.scope.get("files", 0), self.scope.get("files_of", 0)
        return f"all {counted(files, 'file')}" if files == total else f"ONLY {files:,} of {total:,} files"

    def parts(self) -> Iterator[Part]:
        yield from super().parts()
        for kind, item in self.found.items():
            yield Heading(f"{kind}: {item.count:,}, expected {KINDS[kind]}")
            left = item.count - len(item.first)
            yield Sentences([*map(str, item.first), *([f"and {left:,} more"] if left else [])])

    def by_kind(self) -> Table:
        """Return the problems by kind, with the first of each."""
        rows = []
        for kind, item in self.found.items():
            first = "; ".join(f"{one.place}: {one.found}" for one in item.first[:1])
            rows.append((kind.replace("_", " "), item.count, first, KINDS[kind]))
        return Table("", _COLUMNS, rows, is_alarm=bool(self.found))


_COLUMNS = (
    Column("problem", "name"),
    Column("rows or files"),
    Column("first", "words"),
    Column("expected", "words"),
)


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield the table of the newest validation of a dataset for a report."""
    known = next((record.info for record in step.records if record.unit == REPORT), None)
    if known is None:
        return
    found = {
        kind: KindProblems(item["count"], tuple(map(Problem.from_json, item["first"])))
        for kind, item in known["problems"].items()
    }
    summary = ValidateSummary("validate", step.root, found=found, scope=known["scope"])
    yield replace(
        summary.by_kind(),
        title=shown_name(step.root),
        caption=_caption(summary, known["notes"]),
        section="Checks",
    )


def _caption(summary: ValidateSummary, notes: Sequence[str]) -> str:
    """Say in one sentence what was looked at and what was found; `notes` tell what was not looked at."""
    files, total, against = (summary.scope[name] for name in ("files", "files_of", "against"))
    looked = f"{counted(files, 'file')} of {total:,}" if files < total else "all files"
    compared = f", compared with {isolated(against)}" if against else ""
    nothing = "what is there is right" if notes else "nothing is wrong"
    result = counted(summary.problems, "problem") if summary.found else nothing
    told = (note.replace(summary.target, shown_name(summary.target)) for note in notes)
    return f"Looked at {looked} and every row in them{compared}: {'; '.join([result, *told])}."


def last_names(root: str) -> str:
    """Return the last two names of a path: the name of a dataset wherever it lies."""
    return "/".join(root.rstrip("/").split("/")[-2:])
