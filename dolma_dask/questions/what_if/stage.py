"""One pass of what-if over attribute columns: sums of some shards, small enough to be sent and added up in any order.

Beside the counts of the kernels there are the documents nearest to each bound, and of each group the documents whose ids have the smallest
hashes: a sample that depends on the seed alone. The sum depends neither on the order of shards nor on how they are cut into blocks. Memory: a block,
0.4 MB of bins for each rule and group with a place, at most 100 MB, and `SAMPLE_ROWS` rows of values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dolma_dask.dataset import Shard
from dolma_dask.engine import Task
from dolma_dask.engine.fold import few_tasks, mask_of
from dolma_dask.formats.exact_numbers import floats
from dolma_dask.questions.what_if import counting
from dolma_dask.questions.what_if.ladder import GIVEN, LevelBounds
from dolma_dask.reading.columns import Columns
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.rules.ordered_bits import Codes
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.sampling import hashes
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Counts, Floats, Words

SAMPLE_ROWS = 20_000
"""Documents of the sample, in equal parts for the groups that have a place."""

NONE = np.int64(-1)
"""Location of no document."""


@dataclass(eq=False)
class Sample:
    """The documents of each place whose ids have the smallest hashes."""

    max_documents: int  # of a place
    hashes: Words
    places: Counts
    groups: Codes
    locations: Counts
    sizes: Counts
    values: Floats  # (n, rules)

    @classmethod
    def empty(cls, max_documents: int, rules: int) -> "Sample":
        """Return a sample of nothing."""
        none = np.zeros(0, np.int64)
        return cls(
            max_documents,
            none.view(np.uint64),
            none,
            none.astype(np.uint16),
            none,
            none,
            np.zeros((0, rules)),
        )

    def __len__(self) -> int:
        return len(self.hashes)

    def joined(self, others: Sequence["Sample"]) -> "Sample":
        """Return this sample with further rows."""
        parts = [self, *others]
        columns = (np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS)
        return Sample(self.max_documents, *columns)

    def reduced(self) -> "Sample":
        """Return the rows that stay, in any order; of equal hashes the first in the order of the dataset."""
        if len(self) <= self.max_documents:
            return self
        kept = [self._smallest(np.flatnonzero(self.places == place)) for place in np.unique(self.places)]
        rows = np.concatenate(kept)
        return (
            self
            if len(rows) == len(self)
            else Sample(self.max_documents, *(getattr(self, name)[rows] for name in _COLUMNS))
        )

    def _smallest(self, rows: Counts) -> Counts:
        """Return those of the rows of a place that stay."""
        if len(rows) <= self.max_documents:
            return rows
        known = self.hashes[rows]
        last = np.partition(known, self.max_documents - 1)[self.max_documents - 1]
        below, equal = rows[known < last], rows[known == last]
        first = np.argsort(self.locations[equal], kind="stable")[: self.max_documents - len(below)]
        return np.concatenate([below, equal[first]])

    def ordered(self) -> "Sample":
        """Return the rows by place and hash."""
        order = np.lexsort((self.locations, self.hashes, self.places))
        return Sample(self.max_documents, *(getattr(self, name)[order] for name in _COLUMNS))

    def limits(self, places: int) -> Words:
        """Return, for each place, the greatest hash that may still come in (places + 1,), after `reduced`."""
        limits = np.full(places + 1, np.iinfo(np.uint64).max, np.uint64)
        for place in range(places):
            rows = np.flatnonzero(self.places == place)
            if len(rows) >= self.max_documents:
                limits[place] = self.hashes[rows].max()
        limits[places] = 0
        return limits


_COLUMNS = ("hashes", "places", "groups", "locations", "sizes", "values")


@dataclass(eq=False)
class DropSums:
    """Sums over documents; see the kernels of `counting` for the shapes. A unit is what the column of sizes counts."""

    outside: Counts  # (rules, groups, 2, 2**steps, 2)
    missing: Counts  # (rules, groups, 2)
    fractions: Counts  # (rules, 1)
    total: Counts  # (groups, 2)
    kept: Counts
    only: Counts  # (groups, rules, 2)
    cost: Counts  # (groups, rules + 1, 2)
    reached: Counts  # (groups, steps, 2)
    overlap: Counts  # (places + 1, rules, rules)
    bins: Counts  # (rules, places, BINS, 2)
    # (rules, places, 4, k) of the documents nearest to each bound, nearest first: how far, their values, and their shards and rows
    distances: Floats
    found: Floats
    locations: Counts
    sample: Sample
    ids: dict[int, str] = field(default_factory=dict)  # by location
    text_bytes: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    """(groups, 2) Bytes of text and units of the shards that hold one group alone, and whose text the journal knows; behind all groups those of all
    such shards, whatever their groups."""
    # rows that are in no other count: of documents that could not be read, and of those for which what is given does not hold
    unreadable: int = 0
    excluded: int = 0

    @classmethod
    def of(cls, ladder: LevelBounds, examples: int) -> "DropSums":
        """Return the sums of no documents."""
        rules, groups, steps = ladder.lower.shape
        places = ladder.shown

        def zeros(*shape: int) -> Counts:
            return np.zeros(shape, np.int64)

        near = (rules, places, 4, max(examples, 1))
        return cls(
            zeros(rules, groups, 2, 1 << steps, 2),
            zeros(rules, groups, 2),
            zeros(rules, 1),
            zeros(groups, 2),
            zeros(groups, 2),
            zeros(groups, rules, 2),
            zeros(groups, rules + 1, 2),
            zeros(groups, steps, 2),
            zeros(places + 1, rules, rules),
            zeros(rules, places, counting.BINS, 2),
            np.full(near, np.inf),
            np.full(near, np.nan),
            np.full(near, NONE),
            Sample.empty(-(-SAMPLE_ROWS // max(places, 1)), rules),
            {},
            zeros(groups + 1, 2),
        )

    def add(self, other: "PackedSums") -> None:
        """Add the sums of other documents."""
        for name, more in other.sums.items():
            getattr(self, name)[...] += more
        self.bins.reshape(-1, 2)[other.used] += other.counts
        self.unreadable += other.unreadable
        self.excluded += other.excluded
        self._add_nearest(other)
        self.sample = self.sample.joined([other.sample]).reduced()

    def _add_nearest(self, other: "PackedSums") -> None:
        joined = {
            name: np.concatenate([getattr(self, name), getattr(other, name)], axis=-1) for name in _NEAR
        }
        order = np.lexsort((joined["locations"], joined["distances"]), axis=-1)
        for name, both in joined.items():
            kept = np.take_along_axis(both, order[..., : self.distances.shape[-1]], -1)
            setattr(self, name, kept)
        self.ids |= other.ids
        self.forget()

    def fails(self, rule: int, step: int) -> Counts:
        """Return the documents and units (groups, 2, 2) below and above the bounds of a rule at a step."""
        at = np.arange(self.outside.shape[3])
        found: Counts = self.outside[rule][:, :, (at >> step) & 1 == 1].sum(axis=2)
        return found

    def alone(self, rule: int, ladder: LevelBounds) -> Counts:
        """Return the documents and units (groups, 2) that a rule drops by itself with the given bounds."""
        has_bounds = ~np.isnan(ladder.lower[rule, :, GIVEN])
        keeps = has_bounds if ladder.nulls == "keep" else np.zeros_like(has_bounds)
        found: Counts = self.fails(rule, GIVEN).sum(axis=1) + self.missing[rule] * ~keeps[:, None]
        return found

    def forget(self) -> None:
        """Forget the ids of documents that are no longer among the nearest."""
        near = set(self.locations[np.isfinite(self.distances)].tolist())
        self.ids = {location: known for location, known in self.ids.items() if location in near}


_SUMS = (
    "outside",
    "missing",
    "fractions",
    "total",
    "kept",
    "only",
    "cost",
    "reached",
    "overlap",
    "text_bytes",
)


_NEAR = ("distances", "found", "locations")


@dataclass(frozen=True, eq=False)
class PackedSums:
    """Sums of some shards as they travel: of the bins only those that hold something."""

    sums: dict[str, Counts]
    used: Counts  # (n,) bins of all rules and places
    counts: Counts  # (n, 2) their documents and units
    distances: Floats
    found: Floats
    locations: Counts
    ids: dict[int, str]
    sample: Sample
    unreadable: int
    excluded: int

    @classmethod
    def of(cls, tally: DropSums) -> "PackedSums":
        """Pack sums."""
        bins = tally.bins.reshape(-1, 2)
        used = np.flatnonzero(bins[:, 0])
        sums = {name: getattr(tally, name) for name in _SUMS}
        near = tally.distances, tally.found, tally.locations, tally.ids
        return cls(sums, used, bins[used], *near, tally.sample, tally.unreadable, tally.excluded)


@dataclass(frozen=True)
class CountStage:
    """The work of what-if on some shards, as a stage for `dolma_dask.engine.gather`."""

    ladder: LevelBounds
    names: tuple[str, ...]  # columns of the rules
    limits: tuple[int, ...]  # greatest hash of the sample of each place, and of documents without one
    size: str | None  # column of the units of text; None: every document is one
    examples: int  # documents on each side of each bound
    seed: int
    given: Rule | None = None  # over full names; only documents for which it holds are counted
    verb: ClassVar[str] = "what_if"

    def run_shard(self, task: Task) -> PackedSums:
        """Count some shards."""
        tally = DropSums.of(self.ladder, self.examples)
        counter = _Counter(self, tally)
        for work, number, text_bytes in task.work:
            before = tally.total.copy()
            for block in work.open():
                counter.take(block.batch, block.first_row, number)
            _note_text(tally, tally.total - before, text_bytes)
        return PackedSums.of(counter.finish())


def _note_text(tally: DropSums, counted: Counts, text_bytes: int | None) -> None:
    """Note how many bytes of text stand for the units of a shard: of its group if it has one alone, and of all."""
    if text_bytes is None:
        return
    groups = np.flatnonzero(counted[:, 0])
    if len(groups) == 1:
        tally.text_bytes[groups[0]] += (text_bytes, counted[groups[0], 1])
    tally.text_bytes[-1] += (text_bytes, counted[:, 1].sum())


class _Counter:
    """Counts blocks of documents into one tally."""

    def __init__(self, stage: CountStage, tally: DropSums) -> None:
        self._stage, self._tally, self._ladder = stage, tally, stage.ladder
        self._waiting: list[Sample] = []
        self._limits = np.minimum(tally.sample.limits(stage.ladder.shown), stage.limits)
        self._scratch = np.zeros(64, np.int64)
        self._rules = range(len(stage.names))
        self._bounds = [
            np.ascontiguousarray(ends[..., GIVEN]) for ends in (self._ladder.lower, self._ladder.upper)
        ]

    def take(self, batch: pa.RecordBatch, first_row: int, shard: int) -> None:
        """Count consecutive rows of a shard; a row without id could not be read."""
        ids = batch.column("id")
        counted = validity(ids)
        self._tally.unreadable += len(counted) - int(counted.sum())
        if self._stage.given is not None:
            holds = mask_of(self._stage.given, batch).to_numpy(zero_copy_only=False)
            self._tally.excluded += int((counted & ~holds).sum())
            counted = counted & holds
        rows = np.flatnonzero(counted)
        if len(rows) < len(counted):
            batch = batch.filter(pa.array(counted))
            ids = batch.column("id")
        stage, ladder = self._stage, self._ladder
        codes = ladder.codes({name: batch.column(name) for name in ladder.by_columns}, len(rows))
        sizes = np.ones(len(rows), np.int64)
        if stage.size is not None:
            sizes = np.nan_to_num(floats(batch.column(stage.size)), posinf=0, neginf=0).astype(np.int64)
        columns = [floats(batch.column(name)) for name in stage.names]
        dropped = self._count(columns, sizes, codes)
        self._note_nearest(columns, codes, dropped, rows, (shard << 32) + first_row, ids)
        self._sample(columns, sizes, codes, rows + ((shard << 32) + first_row), ids)

    def _count(self, columns: Sequence[Floats], sizes: Counts, codes: Codes) -> Words:
        tally, ladder = self._tally, self._ladder
        dropped, stricter = np.zeros(len(codes), np.uint64), np.zeros(len(codes), np.uint64)
        passed = np.full(len(codes), len(ladder.levels), np.uint8)
        for rule, values in enumerate(columns):
            counting.apply_rule(
                rule,
                values,
                values.view(np.int64),
                sizes,
                codes,
                ladder.places,
                ladder.lower[rule],
                ladder.upper[rule],
                ladder.following[rule],
                ladder.step,
                ladder.nulls == "keep",
                tally.outside[rule],
                tally.missing[rule],
                tally.fractions[rule],
                tally.bins[rule],
                dropped,
                stricter,
                passed,
            )
        counting.count_together(
            sizes,
            codes,
            ladder.places,
            dropped,
            stricter,
            passed,
            self._scratch,
            tally.total,
            tally.kept,
            tally.only,
            tally.cost,
            tally.reached,
            tally.overlap,
        )
        return dropped

    def _note_nearest(
        self,
        columns: Sequence[Floats],
        codes: Codes,
        dropped: Words,
        rows: Counts,
        first: int,
        ids: pa.Array,
    ) -> None:
        if not self._stage.examples:
            return
        tally, (lower, upper) = self._tally, self._bounds
        candidates = np.flatnonzero(dropped & (dropped - np.uint64(1)) == 0)
        for rule, values in enumerate(columns):
            near = tally.distances[rule], tally.found[rule], tally.locations[rule]
            counting.find_nearest(
                rule,
                first,
                rows,
                candidates,
                values,
                codes,
                self._ladder.places,
                dropped,
                lower[rule],
                upper[rule],
                *near,
            )
        found = np.unique(tally.locations[tally.locations >= first])
        at = np.searchsorted(rows, found - first)
        tally.ids |= dict(zip(found.tolist(), ids.take(pa.array(at)).to_pylist(), strict=True))

    def _sample(
        self, columns: Sequence[Floats], sizes: Counts, codes: Codes, locations: Counts, ids: pa.Array
    ) -> None:
        places = self._ladder.places[codes]
        known = hashes(ids, self._stage.seed)
        rows = np.flatnonzero((known <= self._limits[places]) & (places < self._ladder.shown))
        if not len(rows):
            return
        values = np.stack([column[rows] for column in columns], axis=1)
        taken = known[rows], places[rows], codes[rows], locations[rows], sizes[rows], values
        self._waiting.append(Sample(self._tally.sample.max_documents, *taken))
        if sum(map(len, self._waiting)) > SAMPLE_ROWS:
            self._settle()

    def _settle(self) -> None:
        tally = self._tally
        tally.sample = tally.sample.joined(self._waiting).reduced()
        self._waiting = []
        self._limits = np.minimum(self._limits, tally.sample.limits(self._ladder.shown))

    def finish(self) -> DropSums:
        """Return the sums of all blocks."""
        self._settle()
        self._tally.forget()
        return self._tally


def count_tasks(
    columns: Columns, shards: Sequence[Shard], text_bytes: dict[str, int], exact: bool = False
) -> list[Task]:
    """Return the work on the selected shards: at most `MAX_TASKS` tasks of equally many; with `exact`, numbers keep all digits."""
    works: list[tuple[AlignedShard, int, Any]] = [
        (columns.work(shard, exact=exact, identities=True), number, text_bytes.get(shard.path))
        for number, shard in enumerate(shards)
    ]
    return few_tasks(columns.dataset.root, works, [work for work, _, _ in works])


SLACK = 1.1, 100
"""Documents that are looked at for the sample of a group of known size, over those that it has room for: times, and more."""


def sample_limits(ladder: LevelBounds) -> tuple[int, ...]:
    """Return the greatest hash that may come into the sample of each place: as many as there is room for lie below, if the quantiles know the groups."""
    most, top = -(-SAMPLE_ROWS // max(ladder.shown, 1)), 2**64 - 1
    limits = [top] * ladder.shown
    for group in np.flatnonzero(ladder.places < ladder.shown).tolist():
        size = ladder.sizes.get(ladder.groups[group], 0)
        if size:
            share = (SLACK[0] * most + SLACK[1]) / size
            limits[ladder.places[group]] = int(top * share) if share < 1 else top
    return (*limits, 0)
