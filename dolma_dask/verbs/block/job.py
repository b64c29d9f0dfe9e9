"""The job of `block`: flags of every shard, and the entries of the list that no document has.

The dataset-wide record says what is known of the list, and is valid while list and documents are what they were. Such a record is also
announced before the first flag: it tells readers which flags hold, so that those of another list are refused from then on. Flags of all
shards hold once it is known that the list matches something: the flags of a list that is refused are removed.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from dolma_dask.engine import (
    Announce,
    Gather,
    Input,
    Passes,
    Plan,
    Ran,
    Step,
    Task,
    Unit,
    WorkDir,
    inputs_of,
)
from dolma_dask.exchange import ShardRecords
from dolma_dask.exchange.contract import ROW_BITS
from dolma_dask.exchange.flagging import dataset_unit
from dolma_dask.exchange.job import Exchange, Found
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.id_keys import list_keys
from dolma_dask.io.id_lists import ListFacts
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.rules.membership import MembershipReducer
from dolma_dask.verbs.block.shards import (
    ENTRIES_PER_SHARD,
    ListedOutput,
    ListEmitter,
    MatchedEntries,
    MatchedRows,
    Matches,
    entries_of_several_sources,
    entry_shards,
)
from dolma_dask.verbs.block.summary import (
    BlockSummary,
    first_documents,
    id_at,
    matches_nothing,
    summarize,
    unmatched_path,
    write_unmatched,
)

VERSION = 3
"""Raised whenever other documents are flagged, or in another way, for the same documents and list."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Blocking(Exchange):
    """A call of `block`, with everything that decides its result: the list is in the exchange, or in memory."""

    facts: ListFacts
    by_exchange: bool = False  # else the list is held in memory
    allow_unmatched: bool = False  # flags hold where no document has an entry of the list

    verb = "block"
    version = VERSION
    depends_on = "list"

    @property
    def flags_key(self) -> str:
        """Key of every shard's flags."""
        params = {
            "name": self.name,
            "list": self.facts.checksum,
            "format": self.facts.format,
            "entries": [self.facts.bare, self.facts.pairs],
            **self.dataset.params,
            "max_record_bytes": self.policy.max_record_bytes,
        }
        return work_key(self.verb, self.version, params)

    @property
    def key(self) -> str:
        """Digest of what was requested."""
        every = [shard.path for shard in self.dataset.shards]
        listing = {"selected": [shard.path for shard in self.selected.shards]} if self.is_partial else {}
        return work_key(self.verb, self.version, {"set": self.flags_key, "shards": every, **listing})

    @property
    def record(self) -> str | None:
        """Unit of the dataset-wide record, which speaks of all shards."""
        return None if self.is_partial else dataset_unit(self.name)

    @property
    def is_partial(self) -> bool:
        """True if some shards are left out."""
        return len(self.selected.shards) < len(self.dataset.shards)

    @property
    def reserved(self) -> int:
        """Numbers of shards that the entries of the list take in the exchange."""
        return entry_shards(self.facts)

    def find(self, work: WorkDir) -> Generator[Step, Any, Found]:
        """See `Exchange`."""
        emitter = ListEmitter(self.policy, self.verb, self.facts)
        return (yield from self.exchanged(work, emitter, MembershipReducer(self.reserved << ROW_BITS)))

    def tasks(self) -> list[Task]:
        """Return the tasks that read the list and the selected shards."""
        facts = FileInfo(self.facts.url, self.facts.bytes, self.facts.stamp)
        return [Task(f"list {self.facts.url}", (), (Input(self.facts.url, facts),)), *super().tasks()]

    def output(self, infos: Sequence[Mapping[str, Any]] = ()) -> ListedOutput:
        """See `Exchange`."""
        return ListedOutput(self.root, self.name, urls=() if self.by_exchange else (self.facts.url,))

    def outputs(self, known: Record | None, overwrite: bool) -> Plan | None:
        """Return the plan of the flags, under a key that nothing has while others hold and no dataset-wide record will say so."""
        is_announced = not self.is_partial or self._announced_key == self.flags_key
        return self.plan(self.output(), self.flags_key if is_announced else "", self._matched)

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Announce the list, write the flags that are missing, and find the entries that match nothing."""
        yield from self._announce_list()
        found = None
        if self.by_exchange:
            found = yield from self.find(work)
        ran: Ran = yield self.plan(
            self.output(), self.flags_key, found.sources[0] if found else self._matched
        )
        if known is None and not self.is_partial:
            several = np.empty(
                0, np.int64
            )  # told of lists in memory alone: the exchange knows keys, and no sources
            if found is None:
                repeated, unmatched, several = yield from self._looked_up_in_memory(ran)
            else:
                repeated = sum(info["repeated"] for info in found.infos)
                unmatched = self._unmatched_numbers(found.records)
            found_record = self._found(ran, repeated, unmatched, several)
            yield Announce(found_record)
            if not found_record.info["key"]:
                yield lambda _: self._remove_flags()
        return ran

    def summarize(self, ran: Ran, known: Record | None) -> BlockSummary:
        """Return the summary; entries that match nothing are known when all shards are done."""
        summary = ran.summary
        if summary.planned:
            return summarize(summary, self.facts.entries, None)
        if self.is_partial:
            summary = replace(summary, notes=(*summary.notes, *self._partial_notes()))
        info = known.info if known and "unmatched" in known.info else None
        return summarize(summary, self.facts.entries, info)

    def _partial_notes(self) -> Iterator[str]:
        yield "only some shards were looked at: entries that match nothing are known when all are done"
        records = Journal(self.root, self.verb).records
        if not self._is_believed:
            yield "all marks are refused by readers until block has run over all shards, since its last run over all has not ended well"
            return
        paths = [self.path(shard) for shard in self.dataset.shards]
        others = [path for path in paths if path in records and records[path].key != self.flags_key]
        if others:
            count = "file of marks is" if len(others) == 1 else "files of marks are"
            yield f"{len(others):,} {count} of another list, and refused by readers until block has run over all shards; first {others[0]}"

    @property
    def _matched(self) -> dict[str, MatchedRows]:
        """Sources of flags with the list in memory, if that is where it is."""
        if self.by_exchange:
            return {}
        return {
            shard.path: MatchedRows(self.columns.work(shard), self.facts) for shard in self.selected.shards
        }

    # the list

    def _announce_list(self) -> Generator[Step, Any, None]:
        """Say, before the first flag is written, that flags of other lists hold no more; those of this one only if it cannot be refused."""
        if self._announced_key == self.flags_key:
            return
        holds = self.is_partial or self.allow_unmatched
        # under the key of the flags, not of the job: nothing is finished yet
        unit = Unit(dataset_unit(self.name), self.flags_key)
        yield Announce(self.dataset_record(unit, key=self.flags_key if holds else "", **self._list_info))
        files.remove(self.dataset.url(unmatched_path(self.name)))

    @property
    def _announced(self) -> Record | None:
        return Journal(self.root, self.verb).records.get(dataset_unit(self.name))

    @property
    def _announced_key(self) -> str | None:
        """Key of the flags that hold, or that will once their list is known to match something."""
        record = self._announced
        return None if record is None else record.info.get("key") or record.key

    @property
    def _is_believed(self) -> bool:
        """True if readers believe flags of the list that was announced last."""
        record = self._announced
        return record is not None and bool(record.info.get("key"))

    def is_refused(self, unmatched: int | None, repeated: int | None) -> bool:
        """Tell whether the list matches nothing, beside documents that it could be of, where that is an error."""
        is_miss = not self.allow_unmatched and matches_nothing(self.facts.entries, unmatched, repeated)
        return is_miss and first_documents(iter(self.shards)) is not None

    def _remove_flags(self) -> None:
        """Remove the flags of a list that is refused: no reader would believe them, and a set that never held would have to be removed by hand."""
        folder = dataset_unit(self.name)
        for path in Journal(self.root, self.verb).by_file():
            if path.startswith(folder):
                files.remove(self.dataset.url(path))
        files.remove_empty(self.dataset.url(folder))

    @property
    def shards(self) -> list[AlignedShard]:
        """All shards as they are read."""
        return [self.columns.work(shard) for shard in self.dataset.shards]

    @property
    def _list_info(self) -> dict[str, Any]:
        return {"list": msgspec.to_builtins(self.facts)}

    def _looked_up_in_memory(self, ran: Ran) -> Generator[Step, Any, tuple[int, Iterator[Numbers], Numbers]]:
        """Return how many entries are repeated, and the numbers of those that no flagged document has, and that documents of several sources have."""
        stage = MatchedEntries(self.root, self.name, self.facts)
        keys = list_keys(self.facts.url, self.facts.checksum)
        unmatched = keys.first()
        matches: list[Matches] = yield Gather(
            stage, [self._reading_flags(record) for record in ran.records.values()]
        )
        for each in matches:
            unmatched[each.numbers] = False
        found = np.flatnonzero(unmatched)
        several = entries_of_several_sources(self.facts.entries if self.facts.bare else 0, matches)
        return keys.repeated, iter([found] if len(found) else []), several

    def _reading_flags(self, record: Record) -> Task:
        file = next(file for file in record.files if file.path == record.unit)
        return Task(file.path, (), inputs_of(self.root, [FileInfo(file.path, file.bytes, "")]), file.path)

    def _found(self, ran: Ran, repeated: int, unmatched: Iterator[Numbers], several: Numbers) -> Record:
        """Write the unmatched entries, and return the record of what is known of the list."""
        ambiguous = (
            {"ambiguous": [len(several), id_at(self.facts.url, int(several[0]))]} if len(several) else {}
        )
        file, examples = write_unmatched(self.root, self.name, self.facts.url, unmatched)
        info: dict[str, Any] = {
            **self._list_info,
            "repeated": repeated,
            "unmatched": file.rows if file else 0,
            "examples": examples,
            "file": file.path if file else "",
            **ambiguous,
        }
        inputs = [item for record in ran.records.values() for item in record.inputs]
        made: tuple[FileRecord, ...] = (file,) if file else ()
        # no flags of a list that is refused hold, and the next run finds nothing finished but the flags
        refused = self.is_refused(info["unmatched"], repeated)
        unit = Unit(dataset_unit(self.name), self.flags_key if refused else self.key)
        return self.dataset_record(unit, inputs, made, key="" if refused else self.flags_key, **info)

    def _unmatched_numbers(self, records: ShardRecords) -> Iterator[Numbers]:
        for number in range(self.reserved):
            entries = records.of_shard(number)
            if len(entries):
                yield entries["location"].astype(np.int64) % (1 << ROW_BITS) + number * ENTRIES_PER_SHARD
