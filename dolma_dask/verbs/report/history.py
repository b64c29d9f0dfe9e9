"""How a dataset came to be: which verbs ran, on what, and what went in and out; `dolma_dask.verbs.report.lineage` reads it from journals.

Most verbs keep the names of shards, so that a shard can be followed through all versions. Where mix cuts files by size, or shuffles, every
new file depends on all old ones: they are followed together, by the one record that names what all of them were made of.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dolma_dask.formats import layout
from dolma_dask.journal import Record, RunRecord
from dolma_dask.verbs.report.names import stem
from dolma_dask.verbs.report.numbers import UNKNOWN


@dataclass(frozen=True)
class Step:
    """One verb of the history.

    Attributes
    ----------
    verb : str
        Its name.
    root : str
        Where it wrote.
    runs : tuple of RunRecord
        Every start of it, oldest first.
    records : tuple of Record
        Its finished units whose files are there as they were written; files that were cut by size are one unit, all together.
    stems : frozenset of str or None
        Shards that it read and that are shown, by `stem`; None: all.
    """

    verb: str
    root: str
    runs: tuple[RunRecord, ...]
    records: tuple[Record, ...]
    stems: frozenset[str] | None = None

    @property
    def packed(self) -> tuple[Record, ...]:
        """Records of files that were cut by size, or whose rows were shuffled."""
        return tuple(record for record in self.records if is_packed(record))

    @property
    def params(self) -> Mapping[str, Any]:
        """What the newest run was asked."""
        return self.runs[-1].params if self.runs else {}

    @property
    def current(self) -> tuple[Record, ...]:
        """Records that were made as the newest of them was: with the same rule and options."""
        if not self.records:
            return ()
        key = max(self.records, key=lambda record: record.finished).key
        return tuple(record for record in self.records if record.key == key)

    @property
    def newest(self) -> float:
        """Time of the last thing that happened, in seconds since 1970; 0 if nothing did."""
        return max(
            (*(run.started for run in self.runs), *(record.finished for record in self.records)), default=0.0
        )


@dataclass(frozen=True)
class History:
    """The steps that led to a dataset and to token shards made of it.

    Attributes
    ----------
    steps : tuple of Step
        In order.
    parent : str or None
        Root of the dataset that the newest mix selected from, if it is there.
    notes : tuple of str
        What could not be followed.
    line : tuple of str
        Roots of the datasets, from the first version on.
    """

    steps: tuple[Step, ...]
    parent: str | None = None
    notes: tuple[str, ...] = ()
    line: tuple[str, ...] = ()

    def of_shards(self, root: str, shards: Collection[str], *, is_all: bool = True) -> "History":
        """Return the history of some shards; what speaks of a whole dataset stays.

        Parameters
        ----------
        root : str
            A dataset of the history.
        shards : collection of str
            Paths of its shards.
        is_all : bool
            Whether these are all that are shown: then files that were cut by size stay too, also if some that they were made of are gone.
        """
        known = self._stems(root, frozenset(map(stem, shards)), is_all)
        return replace(self, steps=tuple(self._of_stems(step, known) for step in self.steps))

    def _stems(self, root: str, chosen: frozenset[str], is_all: bool) -> dict[str, frozenset[str]]:
        """Return the stems that are wanted of each dataset of the line, which differ where files were cut by size."""
        known = {root: chosen}
        place = self.line.index(root) if root in self.line else 0
        for child, parent in zip(self.line[place:0:-1], self.line[place - 1 :: -1], strict=False):
            packed = self._packed(child)
            whole = [record for record in packed if stems_out(record) <= known[child]]
            known[parent] = _union(map(stems_in, whole)) if packed else known[child]
        for parent, child in zip(self.line[place:], self.line[place + 1 :], strict=False):
            packed = self._packed(child)
            whole = [record for record in packed if is_all or stems_in(record) <= known[parent]]
            known[child] = _union(map(stems_out, whole)) if packed else known[parent]
        return known

    def _packed(self, root: str) -> tuple[Record, ...]:
        step = self.step(root, "mix")
        return step.packed if step else ()

    def _of_stems(self, step: Step, known: Mapping[str, frozenset[str]]) -> Step:
        """Return a step with the records of some shards, by the root of their dataset; tokens are of the last, or of what it was cut from."""
        lasts = self.line[-2:] if self.line and self._packed(self.line[-1]) else self.line[-1:]
        roots = (step.root,) if step.root in known else lasts
        wanted = _union(known[root] for root in roots if root in known)
        before = self.line[max(self.line.index(step.root) - 1, 0)] if step.root in self.line else ""
        read = wanted | known.get(before, frozenset()) if step.verb == "mix" else wanted
        records = tuple(record for record in step.records if _is_wanted(record, wanted))
        return replace(step, records=records, stems=read)

    def step(self, root: str, verb: str) -> Step | None:
        """Return what `verb` did at `root`."""
        return next((step for step in self.steps if (step.root, step.verb) == (root, verb)), None)

    def created(self) -> str:
        """Return when the last step ended, in UTC; a dash if no journal knows."""
        newest = max((step.newest for step in self.steps), default=0.0)
        return datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if newest else UNKNOWN


def is_packed(record: Record) -> bool:
    """Tell whether a record speaks of document files that were cut by size, all together: its unit is the beginning of their paths."""
    return record.unit.endswith("/") and not record.unit.startswith(f"{layout.ATTRIBUTES}/")


def stems_in(record: Record) -> frozenset[str]:
    """Return the shards that a record's files were made of, by `stem`."""
    return frozenset(stem(path) for path in _documents(item.path for item in record.inputs))


def stems_out(record: Record) -> frozenset[str]:
    """Return the shards that a record's files are, by `stem`."""
    return frozenset(stem(path) for path in _documents(item.path for item in record.files))


def _documents(paths: Iterable[str]) -> Iterator[str]:
    start = f"{layout.DOCUMENTS}/"
    return (path.removeprefix(start) for path in paths if path.startswith(start))


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _is_wanted(record: Record, stems: Collection[str]) -> bool:
    if is_packed(record):
        return all(one in stems for one in stems_out(record))
    return record.shard == record.unit or stem(record.shard) in stems
