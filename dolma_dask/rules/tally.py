"""Counts of what the conditions of a rule drop: the only place where that is counted.

For each group, such as a source, there are documents and bytes of text: of all, of those that no condition drops, of those that each drops, and of
those that it drops alone. All are sums over documents, so that counts of blocks and shards add up in any order. The sets of conditions that drop
a document are not kept: forty thresholds drop nearly every document by a set of its own. Cost: 0.1 to 0.4 ms for each block of 4 MB.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.text.kernels import Bools, Counts

MAX_GROUPS = 10_000
"""Groups that are counted one by one, at least; the smallest of more are put together."""

MAX_RECORDED = 100
"""Groups of a shard that a journal knows one by one."""

OTHER_GROUPS = "(other sources)"
"""Name of the groups that are put together."""

Amounts = tuple[int, int]
"""Documents, and bytes of their text."""

_TOTAL, _KEPT, _DROPPED = range(3)
"""Rows of the sums of a group; after those of what each condition drops come those of what it drops alone."""


class Tally(Struct, eq=False):
    """Documents that conditions drop; the last dimension of arrays are documents and bytes of their text."""

    conditions: int
    groups: dict[str, Counts] = {}  # (2 + 2 * conditions, 2)
    # (conditions, conditions) documents that two drop both; empty: not counted
    together: Counts = msgspec.field(default_factory=lambda: np.zeros((0, 0), np.int64))

    @classmethod
    def with_pairs(cls, conditions: int) -> "Tally":
        """Return the counts of no documents, which are to count pairs of conditions too."""
        return cls(conditions, together=np.zeros((conditions, conditions), np.int64))

    @classmethod
    def from_json(cls, conditions: int, recorded: Mapping[str, Sequence[Amounts]]) -> "Tally":
        """Return the counts of a journal."""
        return cls(conditions, {group: np.array(sums, np.int64) for group, sums in recorded.items()})

    def to_json(self) -> dict[str, list[Amounts]]:
        """Return the counts for a journal, without pairs of conditions; of the largest groups one by one."""
        return {group: sums.tolist() for group, sums in self.largest(MAX_RECORDED).groups.items()}

    def count(
        self, dropped: Bools, sizes: Counts | None = None, groups: pa.StringArray | None = None
    ) -> None:
        """Count documents.

        Parameters
        ----------
        dropped : (conditions, documents)
            Which conditions drop each document.
        sizes : (documents,)
            Bytes of their texts; None: 0.
        groups : (documents,)
            Their groups, of which null is the empty name; None: all are in one without a name.
        """
        names, codes = _encoded(groups, dropped.shape[1])
        rows, cells = self._cells(dropped, codes)
        shape = len(names), 2 + 2 * self.conditions
        documents = np.bincount(cells, minlength=shape[0] * shape[1])
        text = np.zeros_like(documents) if sizes is None else np.bincount(cells, sizes[rows], len(documents))
        sums = np.stack([documents, text.astype(np.int64)], axis=-1)  # exact below 2 ** 53
        self._add_groups(dict(zip(names, sums.reshape(*shape, 2), strict=True)))
        if self.together.size:
            ones = dropped.astype(np.float32)  # exact: fewer than 2 ** 24 rows in a block
            self.together += (ones @ ones.T).astype(np.int64)

    def _cells(self, dropped: Bools, codes: Counts) -> tuple[Counts, Counts]:
        """Return the rows that count, some several times, with the place of each among the sums of all groups."""
        first = codes * (2 + 2 * self.conditions)
        how_many = np.count_nonzero(dropped, axis=0)
        every, kept = np.arange(len(codes)), np.flatnonzero(how_many == 0)
        condition, row = np.nonzero(dropped)
        place = first[row] + condition + _DROPPED
        is_alone = how_many[row] == 1
        rows = [every, kept, row, row[is_alone]]
        cells = [first + _TOTAL, first[kept] + _KEPT, place, place[is_alone] + self.conditions]
        return np.concatenate(rows), np.concatenate(cells)

    def add(self, other: "Tally") -> None:
        """Add the counts of other documents, for the same conditions."""
        self._add_groups(other.groups)
        if self.together.size:
            self.together += other.together

    def __add__(self, other: "Tally") -> "Tally":
        both = Tally(self.conditions, dict(self.groups), self.together.copy())
        both.add(other)
        return both

    def _add_groups(self, groups: Mapping[str, Counts]) -> None:
        for group, sums in groups.items():
            self.groups[group] = self.groups[group] + sums if group in self.groups else sums
        if len(self.groups) > 2 * MAX_GROUPS:
            self.groups = self.largest(MAX_GROUPS).groups

    def largest(self, count: int) -> "Tally":
        """Return the counts of the groups with most documents, largest first, and the sum of the others under `OTHER_GROUPS` at the end."""
        groups = [group for group in self.groups if group != OTHER_GROUPS]
        order = sorted(groups, key=lambda group: (-int(self.groups[group][_TOTAL, 0]), group))
        others = [*order[count:], *self.groups.keys() & {OTHER_GROUPS}]
        shown = {group: self.groups[group] for group in order[:count]}
        rest = {OTHER_GROUPS: np.sum([self.groups[group] for group in others], axis=0)} if others else {}
        return Tally(self.conditions, shown | rest, self.together)

    def by_group(self) -> dict[str, "Tally"]:
        """Return the counts of each group."""
        return {group: Tally(self.conditions, {group: sums}) for group, sums in self.groups.items()}

    # -------------------------------------------------------------------------------------------- answers

    @property
    def _sums(self) -> Counts:
        none = np.zeros((2 + 2 * self.conditions, 2), np.int64)
        return sum(self.groups.values(), none)

    @property
    def total(self) -> Amounts:
        """All documents."""
        return _amounts(self._sums[_TOTAL])

    @property
    def kept(self) -> Amounts:
        """Documents that no condition drops."""
        return _amounts(self._sums[_KEPT])

    @property
    def dropped(self) -> Counts:
        """Documents that each condition drops (conditions, 2)."""
        return self._sums[_DROPPED : _DROPPED + self.conditions]

    @property
    def alone(self) -> Counts:
        """Documents that each condition drops and no other (conditions, 2)."""
        return self._sums[_DROPPED + self.conditions :]


def _amounts(sums: Counts) -> Amounts:
    documents, size = sums.tolist()
    return documents, size


def _encoded(groups: pa.StringArray | None, rows: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the names of groups, and the number of that of each row."""
    if groups is None:
        return [""], np.zeros(rows, np.int64)
    encoded = (groups.fill_null("") if groups.null_count else groups).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
