"""A call of `block` from what is finished to its summary: marks of every shard, and the entries of the list that no document has.

What was found out about the list stands in a record of the whole set, which is valid while list and documents are what they were. Such a
record is also written before the first mark: it tells readers which marks hold, so that those of another list are refused from then on.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.dedup.membership import MembershipReducer
from dolma_dask.engine import Input, Plan, RunOptions, Stage, Task, Unit, inputs_of
from dolma_dask.exchange import Exchanged
from dolma_dask.exchange import exchange as through_exchange
from dolma_dask.exchange.folders import parent_of
from dolma_dask.exchange.owners import owned
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.id_keys import list_keys
from dolma_dask.io.id_lists import ListFacts
from dolma_dask.journal import work_key
from dolma_dask.stages.blocking.shards import (
    ENTRIES_PER_SHARD,
    ListedByExchange,
    ListedInMemory,
    ListEmitter,
    MatchedEntries,
    entry_shards,
    numbers_of,
)
from dolma_dask.stages.blocking.summary import BlockSummary, summarize, unmatched_path, write_unmatched
from dolma_dask.stages.marking import Marking, whole_unit
from dolma_dask.summary import Summary

VERSION = 2
"""Raised whenever other documents are marked, or in another way, for the same documents and list."""


@dataclass(frozen=True, kw_only=True)
class Blocking(Marking):
    """A call of `block`, with everything that decides its result: some shards, and what is known of the list."""

    chosen: Dataset
    facts: ListFacts

    verb = "block"
    depends_on = "list"

    @property
    def key(self) -> str:
        """Key of every shard's marks."""
        params = {
            "name": self.name,
            "list": self.facts.checksum,
            "format": self.facts.format,
            "entries": [self.facts.bare, self.facts.pairs],
            "source": self.dataset.source,
            "max_record_bytes": self.policy.max_record_bytes,
        }
        return work_key("block", VERSION, params)

    @property
    def unit(self) -> Unit:
        """The whole set: what was found out about the list, valid while all documents are what they were."""
        listing = [shard.path for shard in self.dataset.shards]
        return Unit(whole_unit(self.name), work_key("block", VERSION, {"set": self.key, "shards": listing}))

    @property
    def is_partial(self) -> bool:
        """Whether some shards are left out."""
        return len(self.chosen.shards) < len(self.dataset.shards)

    def run(self, options: RunOptions, by_exchange: bool) -> BlockSummary:
        """Do what is left."""
        started = time.monotonic()
        stage = ListedInMemory(self.root, self.name, self.facts, self.policy)
        ahead = engine.run(self._plan(stage), replace(options, dry_run=True)).summary
        if options.dry_run:
            return summarize(ahead, self.facts.entries, None)
        finished = None if options.overwrite or self.is_partial else self.finished(self.unit)
        known = finished.info if finished else None
        self._announce()
        if by_exchange and (ahead.planned or (known is None and not self.is_partial)):
            with owned(parent_of(self._folder), "block"):
                summary, known = self._by_exchange(options)
        else:
            summary = engine.run(self._plan(stage), options).summary
            if known is None and not self.is_partial:
                known = self._save_found(*self._unmatched_in_memory(options))
        self.tidy(self._folder)
        seconds = time.monotonic() - started
        return self._summarize(replace(summary, seconds=seconds), known)

    def _summarize(self, summary: Summary, known: Mapping[str, Any] | None) -> BlockSummary:
        if self.is_partial:
            summary = replace(summary, notes=(*summary.notes, *self._partial_notes()))
        return summarize(summary, self.facts.entries, None if known is None else dict(known))

    def _partial_notes(self) -> Iterator[str]:
        yield "only some shards were looked at: entries that match nothing are known when all are done"
        records = self.records
        paths = [self.path(shard) for shard in self.dataset.shards]
        others = [path for path in paths if path in records and records[path].key != self.key]
        if others:
            count = "file of marks is" if len(others) == 1 else "files of marks are"
            yield f"{len(others):,} {count} of another list, and refused by readers until block has run over all shards; first {others[0]}"

    def _plan(self, stage: Stage, works: Mapping[str, Any] | None = None) -> Plan:
        if works is None:
            works = {shard.path: self.columns.work(shard) for shard in self.chosen.shards}
        return self.plan(stage, self.chosen.shards, self.key, works)

    # the list as a whole

    def _announce(self) -> None:
        """Say, before the first mark is written, that only marks of this list hold from now on."""
        known = self.records.get(self.unit.name)
        if known is not None and known.info.get("key") == self.key:
            return
        # under the key of the marks, not of the whole: nothing is finished yet
        self.save(Unit(self.unit.name, self.key), self.key, info=self._list_info)
        files.remove(self.dataset.url(unmatched_path(self.name)))

    @property
    def _list_info(self) -> dict[str, Any]:
        return {"list": msgspec.to_builtins(self.facts)}

    def _unmatched_in_memory(self, options: RunOptions) -> tuple[int, Iterator[npt.NDArray[np.int64]]]:
        """Return how many entries are repeated, and the numbers of those that no marked document has."""
        listed = files.list_files(self.dataset.url(f"{layout.ATTRIBUTES}/{self.name}"))
        sizes = {f"{layout.ATTRIBUTES}/{self.name}/{info.path}": info for info in listed}
        tasks = [self._reading(self.path(shard), sizes) for shard in self.dataset.shards]
        stage = MatchedEntries(self.root, self.name, self.facts)
        keys = list_keys(self.facts.url, self.facts.checksum)
        unmatched = keys.first()
        for numbers in engine.gather(stage, tasks, replace(options, overwrite=False)):
            unmatched[numbers] = False
        found = np.flatnonzero(unmatched)
        return keys.repeated, iter([found] if len(found) else [])

    def _reading(self, path: str, sizes: Mapping[str, FileInfo]) -> Task:
        info = FileInfo(path, sizes[path].bytes, sizes[path].stamp)
        return Task(path, (), inputs_of(self.root, [info]), path)

    def _save_found(self, repeated: int, unmatched: Iterator[npt.NDArray[np.int64]]) -> dict[str, Any]:
        """Write the unmatched entries, and note what was found out."""
        file, examples = write_unmatched(self.root, self.name, self.facts.url, unmatched)
        info = {
            **self._list_info,
            "repeated": repeated,
            "unmatched": file.rows if file else 0,
            "examples": examples,
            "file": file.path if file else "",
        }
        records = self.records
        inputs = [item for shard in self.dataset.shards for item in records[self.path(shard)].inputs]
        self.save(self.unit, self.key, inputs, (file,) if file else (), info=info)
        return info

    # through the exchange

    def _by_exchange(self, options: RunOptions) -> tuple[Summary, dict[str, Any] | None]:
        exchanged = self._exchange(options)
        spooled = {
            self.dataset.shards[found["number"] - entry_shards(self.facts)].path: found
            for record in exchanged.records.values()
            for found in record.info["shards"]
        }
        stage = ListedByExchange(self.root, self.name, exchanged.folder, exchanged.by_shard)
        summary = engine.run(self._plan(stage, spooled), options).summary
        known = None
        if not self.is_partial:
            repeated = sum(info["repeated"] for info in exchanged.infos)
            known = self._save_found(repeated, self._unmatched_numbers(exchanged))
        return summary, known

    def _unmatched_numbers(self, exchanged: Exchanged) -> Iterator[npt.NDArray[np.int64]]:
        for number in range(entry_shards(self.facts)):
            rows = numbers_of(exchanged.by_shard, number)
            if len(rows):
                yield rows + number * ENTRIES_PER_SHARD

    @property
    def _folder(self) -> str:
        """Where the exchange lies: places depend on the listing and on the list, and so does its key."""
        every = [shard.path for shard in self.dataset.shards]
        chosen = [shard.path for shard in self.chosen.shards]
        return self.folder(work_key("block", VERSION, {"set": self.key, "listing": every, "chosen": chosen}))

    def _exchange(self, options: RunOptions) -> Exchanged:
        before = entry_shards(self.facts)
        chosen = {shard.path for shard in self.chosen.shards}
        numbers = [number for number, shard in enumerate(self.dataset.shards) if shard.path in chosen]
        facts = FileInfo(self.facts.url, self.facts.bytes, self.facts.stamp)
        the_list = Task(f"list {self.facts.url}", (), (Input(self.facts.url, facts),))
        return through_exchange(
            ListEmitter(self.root, self.facts, self.policy),
            [the_list, *self.reading(numbers, before)],
            MembershipReducer(before << 32),
            folder=self._folder,
            key=self._folder.rpartition("/")[2],
            shards=before + len(self.dataset.shards),
            options=options,
            verb="block",
        )
