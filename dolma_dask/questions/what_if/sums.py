"""Sums of what-if over documents, which are the same in any order: counts by rule, group and step, the documents nearest to each bound, and a sample.

Memory: a block, 0.4 MB of bins for each rule and group with a place, at most 100 MB, and `SAMPLE_ROWS` rows of values. Only bins that hold something travel.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Input
from dolma_dask.engine.fold import mask_of
from dolma_dask.formats.exact_numbers import floats
from dolma_dask.questions.what_if import kernels
from dolma_dask.questions.what_if.kernels import BINS
from dolma_dask.questions.what_if.levels import GIVEN, LevelBounds
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.rules.ordered_bits import Codes
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.sampling import hashes
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Counts, Floats, Words

SAMPLE_ROWS = 20_000
"""Documents of the sample, in equal parts for the groups that have a place."""

SLACK = 1.1, 100
"""Documents that are looked at for the sample of a group of known size, over those that it has room for: times, and more."""

BLOCK = BINS // 9
"""Bins that are looked at together for any that holds something."""

Rows = npt.NDArray[Any]
"""Documents of a sample (n,), as `_row_type` lays them out."""


def _row_type(rules: int) -> np.dtype[Any]:
    whole = [(name, np.int64) for name in ("place", "location", "size")]
    return np.dtype([("hash", np.uint64), ("group", np.uint16), *whole, ("values", np.float64, (rules,))])


class Sample(Struct, frozen=True, eq=False):
    """The documents of each place whose ids have the smallest hashes, of equal ones the first in the order of the dataset."""

    rows: Rows  # also some that there is no room for any more
    limits: Words  # (places + 1,) greatest hashes that may still come in; last: of documents without a place
    room: int  # documents of a place

    @classmethod
    def empty(cls, bounds: LevelBounds) -> "Sample":
        """Return a sample of nothing, which will look at few more documents of groups of known size than there is room for."""
        room, top = -(-SAMPLE_ROWS // max(len(bounds.shown), 1)), 2**64 - 1
        sizes = [bounds.sizes.get(bounds.groups[group], 0) for group in bounds.shown]
        shares = [(SLACK[0] * room + SLACK[1]) / size if size else 1 for size in sizes]
        limits = [int(top * share) if share < 1 else top for share in shares]
        return cls(np.zeros(0, _row_type(len(bounds.signals))), np.array([*limits, 0], np.uint64), room)

    def __add__(self, other: "Sample") -> "Sample":
        return self.joined([other.rows])

    def joined(self, parts: Sequence[Rows]) -> "Sample":
        """Return this sample with further rows."""
        coming = [rows[rows["hash"] <= self.limits[rows["place"]]] for rows in parts]
        both = Sample(np.concatenate([self.rows, *coming]), self.limits, self.room)
        return both.settled() if len(both.rows) > SLACK[0] * SAMPLE_ROWS else both

    def settled(self) -> "Sample":
        """Return the rows that there is room for, by place and hash."""
        rows = self.rows[np.lexsort([self.rows[name] for name in ("location", "hash", "place")])]
        rank = np.arange(len(rows)) - np.searchsorted(rows["place"], rows["place"])
        limits, last = self.limits.copy(), rows[rank == self.room - 1]
        limits[last["place"]] = last["hash"]
        return Sample(rows[rank < self.room], limits, self.room)


class Bins(Struct, frozen=True, eq=False):
    """Documents and units by value: of the bins of all rules and places only those that hold something."""

    shape: tuple[int, int]  # rules and places
    parts: tuple[tuple[Counts, Counts], ...] = ()  # numbers of bins (n,), their documents and units (n, 2)

    @classmethod
    def of(cls, dense: Counts) -> "Bins":
        """Return bins (rules, places, BINS, 2) without those that hold nothing."""
        blocks = dense.reshape(-1, BLOCK, 2)
        held = np.flatnonzero(blocks.max(axis=(1, 2)))  # most blocks hold nothing, which is soon seen
        found = np.flatnonzero(blocks[held, :, 0] != 0)
        used = held[found // BLOCK] * BLOCK + found % BLOCK
        return cls(dense.shape[:2], ((used, dense.reshape(-1, 2)[used]),))

    def __add__(self, other: "Bins") -> "Bins":
        both = Bins(self.shape, self.parts + other.parts)
        is_long = 2 * sum(len(used) for used, _ in both.parts) > np.prod(self.shape) * BINS
        return Bins.of(both.dense()) if is_long else both

    def dense(self) -> Counts:
        """Return all bins (rules, places, BINS, 2)."""
        bins = np.zeros((*self.shape, BINS, 2), np.int64)
        for used, counts in self.parts:
            bins.reshape(-1, 2)[used] += counts
        return bins


class Nearest(Struct, frozen=True, eq=False):
    """The documents nearest to each bound, nearest first; arrays are (rules, places, 4, k)."""

    distances: Floats
    found: Floats  # their values
    locations: Counts  # their shards and rows; -1: none
    ids: dict[int, str]  # by location

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> "Nearest":
        """Return no documents."""
        return cls(np.full(shape, np.inf), np.full(shape, np.nan), np.full(shape, -1, np.int64), {})

    def __add__(self, other: "Nearest") -> "Nearest":
        distances = np.concatenate([self.distances, other.distances], axis=-1)
        locations = np.concatenate([self.locations, other.locations], axis=-1)
        found = np.concatenate([self.found, other.found], axis=-1)
        order = np.lexsort((locations, distances), axis=-1)[..., : self.distances.shape[-1]]
        nearest = Nearest(
            np.take_along_axis(distances, order, -1),
            np.take_along_axis(found, order, -1),
            np.take_along_axis(locations, order, -1),
            self.ids | other.ids,
        )
        return nearest.pruned()

    def pruned(self) -> "Nearest":
        """Return the same without the ids of documents that are no longer among them."""
        near = set(self.locations[self.locations >= 0].tolist())
        return replace(self, ids={at: known for at, known in self.ids.items() if at in near})


class DropSums(Struct, eq=False):
    """Sums over documents; see `kernels` for the shapes. A unit is what the column of sizes counts."""

    outside: Counts  # (rules, groups, 2, 2**steps, 2)
    missing: Counts  # (rules, groups, 2)
    fractions: Counts  # (rules, 1)
    total: Counts  # (groups, 2)
    kept: Counts
    only: Counts  # (groups, rules, 2)
    cost: Counts  # (groups, rules + 1, 2)
    reached: Counts  # (groups, steps, 2)
    overlap: Counts  # (places + 1, rules, rules)
    bins: Bins
    nearest: Nearest
    sample: Sample
    # (groups + 1, 2) bytes of text and units of the shards that hold one group alone, and whose text the journal knows; behind all groups those of all such
    # shards, whatever their groups
    text_bytes: Counts
    # rows that are in no other count: of documents that could not be read, and of those for which what is given does not hold
    unreadable: int = 0
    excluded: int = 0

    @classmethod
    def of(cls, bounds: LevelBounds, examples: int) -> "DropSums":
        """Return the sums of no documents."""
        rules, groups, steps = bounds.lower.shape
        places = len(bounds.shown)

        def zeros(*shape: int) -> Counts:
            return np.zeros(shape, np.int64)

        return cls(
            outside=zeros(rules, groups, 2, 1 << steps, 2),
            missing=zeros(rules, groups, 2),
            fractions=zeros(rules, 1),
            total=zeros(groups, 2),
            kept=zeros(groups, 2),
            only=zeros(groups, rules, 2),
            cost=zeros(groups, rules + 1, 2),
            reached=zeros(groups, steps, 2),
            overlap=zeros(places + 1, rules, rules),
            bins=Bins((rules, places)),
            nearest=Nearest.empty((rules, places, 4, max(examples, 1))),
            sample=Sample.empty(bounds),
            text_bytes=zeros(groups + 1, 2),
        )

    def __add__(self, other: "DropSums") -> "DropSums":
        names = self.__struct_fields__
        return DropSums(*(getattr(self, name) + getattr(other, name) for name in names))

    def fails(self, rule: int, step: int) -> Counts:
        """Return the documents and units (groups, 2, 2) below and above the bounds of a rule at a step."""
        at = np.arange(self.outside.shape[3])
        found: Counts = self.outside[rule][:, :, (at >> step) & 1 == 1].sum(axis=2)
        return found

    def alone(self, rule: int, bounds: LevelBounds) -> Counts:
        """Return the documents and units (groups, 2) that a rule drops by itself with the given bounds."""
        has_bounds = ~np.isnan(bounds.lower[rule, :, GIVEN])
        keeps = has_bounds if bounds.nulls == "keep" else np.zeros_like(has_bounds)
        found: Counts = self.fails(rule, GIVEN).sum(axis=1) + self.missing[rule] * ~keeps[:, None]
        return found


# ------------------------------------------------------------------------------------------------ of one shard


class ShardToCount(Struct, frozen=True):
    """A shard, with its number in the listing and the bytes of its text, if the journal knows them."""

    columns: AlignedShard
    number: int
    text_bytes: int | None

    @property
    def name(self) -> str:
        """Path of the shard."""
        return self.columns.name

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files that are read."""
        return self.columns.inputs


class CountDrops(Struct, frozen=True):
    """Counts what rules drop in a shard; see `dolma_dask.engine.fold.Fold`."""

    bounds: LevelBounds
    size: str | None  # column of the units of text; None: every document is one
    examples: int  # documents on each side of each bound
    seed: int
    given: Rule | None = None  # over full names; only documents for which it holds are counted
    verb: ClassVar[str] = "what_if"

    def start(self) -> DropSums:
        """Return the sums of no documents."""
        return DropSums.of(self.bounds, self.examples)

    def count(self, shard: ShardToCount) -> DropSums:
        """Return the sums of one shard."""
        counter = _Counter(self)
        for block in shard.columns.open():
            counter.take(block.batch, (shard.number << 32) + block.first_row)
        return counter.finish(shard.text_bytes)


class _Documents(Struct, frozen=True):
    """The documents of a block that are counted, (n,) each."""

    ids: pa.Array
    locations: Counts
    codes: Codes
    sizes: Counts
    columns: list[Floats]  # of the rules


class _Counter:
    """Counts the blocks of a shard."""

    def __init__(self, counting: CountDrops) -> None:
        bounds, sums = counting.bounds, counting.start()
        self._counting, self._bounds, self._sums = counting, bounds, sums
        self._bins = np.zeros((*sums.bins.shape, BINS, 2), np.int64)
        self._sampled: list[Rows] = []
        self._excluded_units = 0
        self._scratch = np.zeros(64, np.int64)
        self._of_rules = list(map(self._arrays, range(len(bounds.signals))))
        self._given = [np.ascontiguousarray(ends[..., GIVEN]) for ends in (bounds.lower, bounds.upper)]

    def _arrays(self, rule: int) -> tuple[Any, ...]:
        """Return what the kernel knows of a rule, and counts for it."""
        bounds, sums = self._bounds, self._sums
        levels = bounds.lower[rule], bounds.upper[rule], bounds.following[rule], bounds.step
        counts = sums.outside[rule], sums.missing[rule], sums.fractions[rule], self._bins[rule]
        return *levels, bounds.nulls == "keep", *counts

    def take(self, batch: pa.RecordBatch, first: int) -> None:
        """Count consecutive rows, of which the first has this location; a row without id could not be read."""
        counted = validity(batch.column("id"))
        self._sums.unreadable += len(counted) - int(counted.sum())
        if self._counting.given is not None:
            holds = mask_of(self._counting.given, batch).to_numpy(zero_copy_only=False)
            excluded = counted & ~holds
            self._sums.excluded += int(excluded.sum())
            self._excluded_units += int(self._sizes(batch.filter(pa.array(excluded))).sum())
            counted = counted & holds
        rows = batch if counted.all() else batch.filter(pa.array(counted))
        documents = self._documents(rows, first + np.flatnonzero(counted))
        dropped = self._count(documents)
        if self._counting.examples:
            self._find_nearest(documents, dropped, first)
        self._sample(documents)

    def _documents(self, batch: pa.RecordBatch, locations: Counts) -> _Documents:
        bounds = self._bounds
        codes = bounds.codes({name: batch.column(name) for name in bounds.by_columns}, len(locations))
        columns = [floats(batch.column(name)) for name in bounds.signals]
        return _Documents(batch.column("id"), locations, codes, self._sizes(batch), columns)

    def _sizes(self, batch: pa.RecordBatch) -> Counts:
        """Return the units of text of documents (n,)."""
        size = self._counting.size
        if size is None:
            return np.ones(batch.num_rows, np.int64)
        return np.nan_to_num(floats(batch.column(size)), posinf=0, neginf=0).astype(np.int64)

    def _count(self, documents: _Documents) -> Words:
        """Count documents (n,) and return the rules that drop each."""
        sizes, codes, places, sums = documents.sizes, documents.codes, self._bounds.places, self._sums
        dropped, stricter = np.zeros(len(codes), np.uint64), np.zeros(len(codes), np.uint64)
        passed = np.full(len(codes), len(self._bounds.levels), np.uint8)
        noted = dropped, stricter, passed
        for rule, (values, own) in enumerate(zip(documents.columns, self._of_rules, strict=True)):
            arguments = values.view(np.int64), sizes, codes, places, *own, *noted
            kernels.apply_rule(rule, values, *arguments)
        together = sums.total, sums.kept, sums.only, sums.cost, sums.reached, sums.overlap
        kernels.count_together(sizes, codes, places, *noted, self._scratch, *together)
        return dropped

    def _find_nearest(self, documents: _Documents, dropped: Words, first: int) -> None:
        nearest, places, (lower, upper) = self._sums.nearest, self._bounds.places, self._given
        candidates = np.flatnonzero(dropped & (dropped - np.uint64(1)) == 0)
        for rule, values in enumerate(documents.columns):
            known = nearest.distances[rule], nearest.found[rule], nearest.locations[rule]
            rows = documents.locations, candidates, values, documents.codes
            kernels.find_nearest(rule, 0, *rows, places, dropped, lower[rule], upper[rule], *known)
        found = np.unique(nearest.locations[nearest.locations >= first])
        at = np.searchsorted(documents.locations, found)
        nearest.ids.update(zip(found.tolist(), documents.ids.take(pa.array(at)).to_pylist(), strict=True))

    def _sample(self, documents: _Documents) -> None:
        sample, places = self._sums.sample, self._bounds.places[documents.codes]
        known = hashes(documents.ids, self._counting.seed)
        taken = np.flatnonzero((known <= sample.limits[places]) & (places < len(sample.limits) - 1))
        if not len(taken):
            return
        rows = np.empty(len(taken), sample.rows.dtype)
        rows["hash"], rows["place"], rows["group"] = known[taken], places[taken], documents.codes[taken]
        rows["location"], rows["size"] = documents.locations[taken], documents.sizes[taken]
        rows["values"] = np.stack([column[taken] for column in documents.columns], axis=1)
        self._sampled.append(rows)
        if sum(map(len, self._sampled)) > SAMPLE_ROWS:
            self._settle()

    def _settle(self) -> None:
        self._sums.sample = self._sums.sample.joined(self._sampled)
        self._sampled = []

    def finish(self, text_bytes: int | None) -> DropSums:
        """Return the sums of all blocks; `text_bytes` stand for their units: of all, and of their group if they have one alone."""
        self._settle()
        sums = self._sums
        sums.bins, sums.nearest = Bins.of(self._bins), sums.nearest.pruned()
        if text_bytes is not None:
            groups = np.flatnonzero(sums.total[:, 0])
            at = [-1, *groups] if len(groups) == 1 and not sums.excluded else [-1]
            sums.text_bytes[at] = text_bytes, sums.total[:, 1].sum() + self._excluded_units
        return sums
