"""The identities of all documents compared with each other and with those of an earlier version, for `validate`.

It is one unit of work over all document files: nothing is read if none of them has changed. Keys that the checks of the shards have kept
are used instead of the documents. Disk meanwhile: 40 bytes per document below ``_work/``.
"""

import posixpath
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard, shard_info
from dolma_dask.display import counted
from dolma_dask.engine import Gather, Input, Step, Task, WorkDir, grouped
from dolma_dask.exchange import Shuffle, exchange
from dolma_dask.exchange.contract import ROW_BITS
from dolma_dask.formats import layout
from dolma_dask.journal import Record
from dolma_dask.verbs.validate.keys import IdentityEmitter, IdentityStage, KeyFile, KeyReducer, KeyWork
from dolma_dask.verbs.validate.problems import KINDS, SHOWN, Problem, Problems
from dolma_dask.verbs.validate.shard import ValidateStage

_EARLIER = "earlier:"
"""Begins the names of files of the earlier version in the journal."""

GROUP_BYTES = 64 << 20
"""Stored bytes of the documents that a task of the exchange reads; a larger file has a task of its own."""

MAX_GROUPED = 256
"""Shards of a task at most, however small they are: each is opened."""

_ROW = (1 << ROW_BITS) - 1


class Identities(Struct, frozen=True):
    """The comparison of all identities."""

    stage: ValidateStage  # how documents are read
    dataset: Dataset
    selected: Dataset
    earlier: Dataset | None
    is_sample: bool  # only the earlier files of the same names are read
    shuffle: Shuffle

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files that are read: each shard with the earlier file of its name, then the rest of the earlier version."""
        return tuple(item for work in self._pairs(self._ours) for item in work.inputs)

    def compare(
        self, work: WorkDir, name: str, key: str, records: Sequence[Record]
    ) -> Generator[Step, Any, Record]:
        """Return the record of the comparison; keys that the checks of the shards have kept are used instead of the documents."""
        stage = f"{work.path}/keys"
        works = list(self._pairs(lambda number, shard: self._ours(number, shard, records[number], stage)))
        reducer = KeyReducer(self.stage.keep, self.earlier is not None)
        groups = grouped(works, lambda work: work.bytes, GROUP_BYTES, MAX_GROUPED)
        tasks = [Task.of(group) for group in groups]
        exchanged = yield from exchange(
            work,
            IdentityEmitter(),
            tasks,
            reducer,
            shards=len(self.selected.shards),
            shuffle=self.shuffle,
        )
        emitted = [exchanged.emitted[one.shard] for one in tasks]
        problems = yield from self._problems(reducer.merge(exchanged.infos), works)
        for group, one in zip(groups, emitted, strict=True):
            for each, order in zip(group, one.info["orders"], strict=True):
                self._add_order(each, order, problems)
        return Record(
            unit=name,
            shard=name,
            key=key,
            inputs=tuple(item for one in emitted for item in one.inputs),
            finished=time.time(),
            rows=sum(one.rows for one in emitted),
            info={"problems": problems.to_record()},
        )

    def _pairs(self, ours: Callable[[int, Shard], KeyFile]) -> Iterator[KeyWork]:
        """Yield each shard with the earlier file of its name, then what is left of the earlier version."""
        twins = by_stem(self.earlier.shards) if self.earlier else {}
        used = set()
        for number, shard in enumerate(self.selected.shards):
            twin = twins.get(layout.stem_of(shard.path))
            if twin is None or twin in used:
                yield KeyWork(ours(number, shard), is_alone=self.is_sample and self.earlier is not None)
            else:
                used.add(twin)
                yield KeyWork(ours(number, shard), self._theirs(twin))
        for shard in self.earlier.shards if self.earlier and not self.is_sample else ():
            if shard not in used:
                yield KeyWork(None, self._theirs(shard))

    def _ours(self, number: int, shard: Shard, record: Record | None = None, kept: str = "") -> KeyFile:
        info = shard_info(shard)
        url, size = self.dataset.url(info.path), self.stage.max_record_bytes
        if record is None:
            return KeyFile(url, shard, info, number, self.stage.source, size)
        known = next(item for item in record.inputs if item.path == info.path)
        keys = self.dataset.url(f"{kept}/{shard.path}.keys")
        return KeyFile(url, shard, info, number, self.stage.source, size, keys, record.info["keys"], known)

    def _theirs(self, shard: Shard) -> KeyFile:
        assert self.earlier is not None
        info = shard_info(shard)
        url, named = self.earlier.url(info.path), replace(info, path=_EARLIER + info.path)
        return KeyFile(url, shard, named, 0, self.earlier.source, self.stage.max_record_bytes)

    def _problems(
        self, result: Mapping[str, Any], works: Sequence[KeyWork]
    ) -> Generator[Step, Any, Problems]:
        """Return the problems that the reducers found, with the names of the documents: only their rows are read again."""
        problems = Problems(self.stage.keep)
        repeated, absent = result["first"], result["first_unmatched"]
        names = yield from self._identities({one for pair in repeated for one in pair}.union(absent), works)
        duplicates = (
            self._problem(
                "duplicate_id",
                location,
                "{} stands in {}, row {:,} too".format(names[location], *self._place(first)),
            )
            for location, first in repeated
        )
        problems.add_all("duplicate_id", duplicates, result["duplicates"])
        where = f"the files of {self._earlier_name} that were read" if self.is_sample else self._earlier_name
        missing = (
            self._problem("not_in_against", location, f"{names[location]} is not in {where}")
            for location in absent
        )
        problems.add_all("not_in_against", missing, result["unmatched"])
        return problems

    @property
    def _earlier_name(self) -> str:
        return posixpath.basename(self.earlier.root) if self.earlier else ""

    def _problem(self, kind: str, location: int, found: str) -> Problem:
        return Problem(*self._place(location), found, KINDS[kind])

    def _place(self, location: int) -> tuple[str, int]:
        """Return the file and the row of a location."""
        shard = self.selected.shards[location >> ROW_BITS]
        return layout.document_path(shard.path), location & _ROW

    def _identities(
        self, locations: Iterable[int], works: Sequence[KeyWork]
    ) -> Generator[Step, Any, dict[int, str]]:
        rows: dict[int, list[int]] = {}
        for location in locations:
            rows.setdefault(location >> ROW_BITS, []).append(location & _ROW)
        ours = {work.ours.number: work.ours for work in works if work.ours}
        tasks = [
            Task(ours[number].info.path, (), (ours[number].input(),), (ours[number], inside))
            for number, inside in sorted(rows.items())
        ]
        results = yield Gather(IdentityStage(), tasks)
        return {
            (number << ROW_BITS) + row: f"source {source[:SHOWN]!r}, id {identity[:SHOWN]!r}"
            for number, identities in zip(sorted(rows), results, strict=True)
            for row, (source, identity) in identities.items()
        }

    def _add_order(self, work: KeyWork, order: list[int] | None, problems: Problems) -> None:
        if order is None or work.ours is None or work.theirs is None:
            return
        count, row, there, last, last_there = order
        earlier = f"{self._earlier_name}/{work.theirs.info.path.removeprefix(_EARLIER)}"
        found = (
            f"{counted(count, 'row')} in another order than in {earlier}, first row {row:,} (row {there:,} there) behind row {last:,} "
            f"(row {last_there:,} there)"
        )
        problems.add("order_changed", work.ours.info.path, found, row=row)


def by_stem(shards: Iterable[Shard]) -> dict[str, Shard]:
    """Return the shards by their paths without suffix; of several the first."""
    return {layout.stem_of(shard.path): shard for shard in reversed(tuple(shards))}
