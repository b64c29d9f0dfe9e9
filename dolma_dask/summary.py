"""The result of a verb: a small object that prints as a table, in a terminal and in a notebook."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dolma_dask import fragments
from dolma_dask.display import counted, text_table
from dolma_dask.errors import Failure

if TYPE_CHECKING:
    from dolma_dask.io.records import RuleCount

_LEAST_KB, _LEAST_MB = 1_000, 1_000_000
"""Bytes from which on they are shown in kB and in MB."""

LONGEST_RULE = 72
"""Characters of a part of a rule that the table shows; JSON has all of it."""

MOST_PLANNED = 20
"""Shards of a rehearsal that are shown by name."""

_ORDER = (  # of the table; other counts come behind these, in their own order
    "documents_in",
    "documents_out",
    "text_bytes_in",
    "text_bytes_out",
    "text_bytes",
    "tokens",
    "bytes_in",
    "bytes_out",
)


@dataclass(frozen=True, repr=False)
class Summary:
    """The outcome of a run of one verb.

    Attributes
    ----------
    verb : str
        Name of the stage.
    target : str
        Root of what it wrote.
    done, skipped, failed : int
        Shards finished now, finished before, and not finished.
    seconds : float
        Wall time.
    counts : Mapping[str, float]
        Sums over all finished shards, those of earlier runs included.
    rules : tuple of RuleCount
        Documents for which each part of a `where` rule holds, and that each filter matches.
    notes : tuple of str
        What a person should know.
    failures : tuple of Failure
        Every shard that failed.
    planned : tuple of str
        Under ``--dry-run``: the shards that would be worked on.
    lost : bool
        Rows were lost or kept with an error: the exit status is 1.
    """

    verb: str
    target: str
    done: int = 0
    skipped: int = 0
    failed: int = 0
    seconds: float = 0.0
    counts: Mapping[str, float] = field(default_factory=dict)
    rules: tuple["RuleCount", ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    planned: tuple[str, ...] = ()
    lost: bool = False

    @property
    def exit_status(self) -> int:
        """0 if everything is done, 1 if something failed or was lost."""
        return 1 if self.failed or self.lost else 0

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        return {
            "verb": self.verb,
            "target": self.target,
            "done": self.done,
            "skipped": self.skipped,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "counts": {name: _whole(value) for name, value in self.counts.items()},
            "rules": [
                {
                    "kind": rule.kind,
                    "name": rule.short or rule.rule,
                    "rule": rule.rule,
                    "matched": rule.matched,
                    "missing": rule.missing,
                }
                for rule in self.rules
            ],
            "notes": list(self.notes),
            "failures": [vars(failure) for failure in self.failures],
            "planned": list(self.planned),
            "lost": self.lost,
            "exit_status": self.exit_status,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table: a label and a value each, the wall time last."""
        return [*self.body(), ("wall time", f"{self.seconds:,.1f} s")]

    def body(self) -> list[tuple[str, str]]:
        """Return the lines above the wall time."""
        head = self._planned() if self.planned else self._counts()
        return [*head, *self.more(), ("where", self.target)]

    def more(self) -> list[tuple[str, str]]:
        """Return lines that only this verb has."""
        return []

    def tables(self) -> list[tuple[str, Sequence[Sequence[str]]]]:
        """Return tables that only this verb has: a caption and rows each, the first row the heading. Those without another row are not shown."""
        return []

    def _counts(self) -> list[tuple[str, str]]:
        shards = f"{self.done:,} done, {self.skipped:,} done before, {self.failed:,} failed"
        known = [(label(name), show(name, self.counts[name])) for name in _ORDER if name in self.counts]
        rules = [(shortened(rule.name), _matched(rule)) for rule in self.rules]
        others = [(label(name), show(name, self.counts[name])) for name in self.counts if name not in _ORDER]
        return [("shards", shards), *known, *rules, *others]

    def _planned(self) -> list[tuple[str, str]]:
        left = len(self.planned) - MOST_PLANNED
        return [
            ("would work on", counted(len(self.planned), "shard")),
            ("done before", counted(self.skipped, "shard")),
            *(("", path) for path in self.planned[:MOST_PLANNED]),
            *([("", f"and {left:,} more")] if left > 0 else []),
        ]

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        lines = [f"{self.verb}", *(f"  {name:<{width}}  {value}" for name, value in rows)]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  FAILED {item.shard}: {item.error}: {item.message}" for item in self.failures]
        for caption, table in self.tables():
            if len(table) > 1:
                lines += ["", f"  {caption}", *(f"  {line}" for line in text_table(table))]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return fragments.fragment(*self.parts())

    def parts(self) -> Iterator[str]:
        """Yield what a notebook shows, as HTML."""
        yield fragments.pairs(self.verb, self.rows())
        yield fragments.failures([(item.shard, item.error, item.message) for item in self.failures])
        yield fragments.notes(self.notes)
        yield from (fragments.table(caption, rows) for caption, rows in self.tables())


def label(name: str) -> str:
    """Return the words for a count's name, without its unit."""
    first, *others = name.split("_")
    return " ".join([first, *(word for word in others if word != "bytes")])


def shortened(rule: str) -> str:
    """Return a rule, or its beginning if it is very long."""
    return rule if len(rule) <= LONGEST_RULE else f"{rule[: LONGEST_RULE - 4]} ..."


def show(name: str, value: float) -> str:
    """Format a count with its unit, which a word of its name tells (MB is 10^6 bytes, kB 10^3, B one)."""
    words = name.split("_")
    if "bytes" in words:
        return _stored(value)
    if "seconds" in words:
        return f"{value:,.1f} s"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4f}"


def _stored(count: float) -> str:
    if count < _LEAST_KB:
        return f"{count:,.0f} B"
    return f"{count / 1e6:,.1f} MB" if count >= _LEAST_MB else f"{count / 1e3:,.1f} kB"


def _matched(rule: "RuleCount") -> str:
    """Return how many documents a rule matches, and how many lack a value that it compares."""
    missing = f" ({counted(rule.missing, 'document')} without a value)" if rule.missing else ""
    return f"{rule.matched:,}{missing}"


def _whole(value: float) -> float:
    """Return a whole number as an int, so that JSON shows it as one."""
    return int(value) if float(value).is_integer() else value
