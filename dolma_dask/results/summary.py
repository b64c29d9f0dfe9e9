"""The result of a verb: a small object that prints as facts and tables, in a terminal and in a notebook; and a verb as a journal knows it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dolma_dask.display import counted, shortened
from dolma_dask.errors import Failure
from dolma_dask.results.answer import Answer, plain
from dolma_dask.results.parts import Fact, Facts, Failures, Notes, Part
from dolma_dask.results.table import Table

if TYPE_CHECKING:
    from dolma_dask.io.records import RuleCount
    from dolma_dask.journal import Record

MAX_RULE = 72
"""Characters of a part of a rule that the facts show; JSON has all of it."""

MAX_PLANNED = 20
"""Shards of a rehearsal that are shown by name."""

_ORDER = (  # of the facts; other counts come behind these, in their own order
    "documents_in",
    "documents_out",
    "text_bytes_in",
    "text_bytes_out",
    "text_bytes",
    "tokens",
    "bytes_in",
    "bytes_out",
)


class Summary(Answer, frozen=True):
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
        More rows were kept with an error than was allowed: the exit status is 1.
    """

    verb: str
    target: str
    done: int = 0
    skipped: int = 0
    failed: int = 0
    seconds: float = 0.0
    counts: Mapping[str, float] = {}
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
        """Return the summary as JSON-able values: what all verbs have, then what only this one has."""
        own = [name for name in self.__struct_fields__ if name not in _COMMON]
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
            **{name: plain(getattr(self, name)) for name in own},
        }

    def facts(self) -> list[Fact]:
        """Return the facts in their order, without the wall time."""
        head = self._planned() if self.planned else self._counts()
        return [*head, *self.own_facts(), Fact("where", self.target)]

    def own_facts(self) -> Iterable[Fact]:
        """Return facts that only this verb has."""
        return ()

    def tables(self) -> Sequence[Table]:
        """Return tables that only this verb has."""
        return ()

    def parts(self) -> Iterator[Part]:
        yield Facts(self.verb, [*self.facts(), Fact("wall time", self.seconds, "seconds")])
        yield Notes(self.notes)
        yield Failures([(item.shard, item.error, item.message) for item in self.failures])
        yield from self.tables()

    def _counts(self) -> list[Fact]:
        shards = f"{self.done:,} done, {self.skipped:,} done before, {self.failed:,} failed"
        first = [name for name in _ORDER if name in self.counts]
        others = [name for name in self.counts if name not in _ORDER]
        return [
            Fact("shards", shards),
            *(count_fact(name, self.counts[name]) for name in first),
            *(Fact(shortened(rule.name, MAX_RULE), _matched(rule)) for rule in self.rules),
            *(count_fact(name, self.counts[name]) for name in others),
        ]

    def _planned(self) -> list[Fact]:
        left = len(self.planned) - MAX_PLANNED
        return [
            Fact("would work on", counted(len(self.planned), "shard")),
            Fact("done before", counted(self.skipped, "shard")),
            *(Fact("", path) for path in self.planned[:MAX_PLANNED]),
            *([Fact("", f"and {left:,} more")] if left > 0 else []),
        ]


class Recorded(Protocol):
    """A verb as the journal of a dataset tells it; the registry names a function for each verb that makes its tables of this."""

    @property
    def root(self) -> str:
        """Place of the output."""

    @property
    def records(self) -> "tuple[Record, ...]":
        """Its finished units."""

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of its newest run."""

    def params_of(self, folder: str) -> Mapping[str, Any]:
        """Return parameters of the newest run that wrote into a folder."""


_COMMON = frozenset(Summary.__struct_fields__)


def count_fact(name: str, value: float) -> Fact:
    """Return a count as a fact; a word of its name tells its unit."""
    first, *others = name.split("_")
    label = " ".join([first, *(word for word in others if word != "bytes")])
    if "bytes" in (first, *others):
        return Fact(label, value, "size")
    if "seconds" in (first, *others):
        return Fact(label, value, "seconds")
    return Fact(label, value, "integer" if float(value).is_integer() else "real")


def _matched(rule: "RuleCount") -> str:
    """Return how many documents a rule matches, and how many lack a value that it compares."""
    missing = f" ({counted(rule.missing, 'document')} without a value)" if rule.missing else ""
    return f"{rule.matched:,}{missing}"


def _whole(value: float) -> float:
    """Return a whole number as an int, so that JSON shows it as one."""
    return int(value) if float(value).is_integer() else value
