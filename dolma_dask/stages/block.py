"""block: mark the documents that stand in a list of ids, so that `mix` can drop them, or keep them alone.

A list of up to five million entries is held in the memory of each process, and each shard is read once, by itself. A longer one meets the
documents in the exchange: 24 bytes per entry and document go through files, and memory does not depend on the list. Both write the same bytes.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, Unpack

import msgspec
import numpy as np
import numpy.typing as npt

import dolma_dask
from dolma_dask import clusters, engine
from dolma_dask.alignment.columns import Columns, find_columns
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.dedup.membership import MembershipReducer
from dolma_dask.engine import Input, Plan, RunOptions, Task, Unit, inputs_of, resume
from dolma_dask.errors import UsageError
from dolma_dask.exchange import Exchanged
from dolma_dask.exchange import exchange as through_exchange
from dolma_dask.exchange.folders import remove_exchange, remove_others
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.id_keys import list_keys
from dolma_dask.io.id_lists import ListFacts, list_name, read_facts
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import Journal, JournalWriter, Record, work_key
from dolma_dask.stages.block_shards import (
    ENTRIES_PER_SHARD,
    DocumentKeys,
    ListedByExchange,
    ListedInMemory,
    ListEmitter,
    MatchedEntries,
    entry_shards,
    numbers_of,
)
from dolma_dask.stages.block_summary import BlockSummary, summarize, write_unmatched
from dolma_dask.stages.marks import COLUMNS, group_name, grouped
from dolma_dask.stages.options import (
    DatasetLike,
    RecordArgs,
    as_dataset,
    check_format,
    checked,
    dataset_notes,
    record_policy,
    run_options,
    selected,
    told,
)
from dolma_dask.summary import Summary

VERSION = 1
"""Raised whenever other documents are marked, or in another way, for the same documents and list."""

SMALL_BYTES = 64_000_000
"""Stored bytes of a list that is read into memory without counting its entries first."""

MOST_IN_MEMORY = 5_000_000
"""Entries of a list that is held in the memory of each process (150 MB); a longer one goes through the exchange."""


def block(
    dataset: DatasetLike,
    list_file: str,
    /,
    *,
    name: str | None = None,
    format: FileFormat | None = None,
    source: str | None = None,
    exchange: bool | None = None,
    **options: Unpack[RecordArgs],
) -> BlockSummary:
    """Mark the documents that stand in a list of ids, or of sources and ids, and write the marks beside the documents.

    Example: dolma-dask block corpus/wiki takedown.txt --name takedown

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    list_file : str
        A file with an id per line, or source, tab and id; .jsonl with "id" and perhaps "source"; .csv, .tsv or .parquet with a column id and
        perhaps source; each also .gz or .zst. An id without source stands for that id in every source.
    name : str, optional
        Attribute set to write, and its only key; by default the name of the file without its suffix.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    source : str, optional
        Source of all documents, for files that lack the field.
    exchange : bool, optional
        Hold the list in memory (False), or sort it together with all documents on disk (True); by default the latter only for more than five
        million entries. Not a byte of the output depends on it.

    Returns
    -------
    BlockSummary
        Listed documents, and the entries of the list that no document has.

    Raises
    ------
    StageError
        Some shards failed.
    BadRecordError, CorruptFileError, SchemaError
        The list cannot be read; the message names the line.
    UsageError
        An argument is unknown or has a value that it cannot have, or there is an attribute set of this name that block did not make.

    Notes
    -----
    A listed document has [[0, length, 1.0]] under the key, in code points, others have nothing. To drop listed documents:
    mix --where "takedown is None"; to keep them alone: mix --where "takedown is not None". All entries that match nothing are in
    _quarantine/block/<name>.unmatched.jsonl. With on_bad_record="quarantine" every bad record keeps its row, with an error in it, and one
    of them makes the exit status 1.
    """
    options = checked(block, options, RecordArgs)
    check_format(format)
    url = _list_url(list_file)
    name = layout.check_name(list_name(url) if name is None else name, "name")
    found = as_dataset(dataset, source)
    layout.check_no_collision([layout.with_format(shard.path, format) for shard in found.shards])
    if exchange is not None and not isinstance(exchange, bool):
        raise UsageError(f"exchange={exchange!r}; expected True, False or nothing.")
    journal = Journal(found.root, "block")
    facts = _known_facts(journal, name, url) or _read_facts(url, exchange)
    chosen = selected(found, options)
    work = _Blocking(
        found,
        chosen,
        find_columns(found, COLUMNS),
        facts,
        name,
        format,
        record_policy(options),
        told({"list": url, "name": name, "format": format, "source": source}),
    )
    by_exchange = facts.entries > MOST_IN_MEMORY if exchange is None else exchange
    with clusters.shared_cluster():
        return work.run(run_options(options), by_exchange)


def _list_url(list_file: object) -> str:
    if not isinstance(list_file, str | PathLike):
        raise UsageError(f"the list is of type {type(list_file).__name__}; expected a path or URL of a file.")
    return files.normalize(fspath(list_file))


def _read_facts(url: str, exchange: bool | None) -> ListFacts:
    """Read the list: a small one into memory at once, where the shards will need it."""
    info = files.stat(url)
    is_small = info is not None and info.bytes <= SMALL_BYTES
    return list_keys(url).facts if is_small and not exchange else read_facts(url)


def _known_facts(journal: Journal, name: str, url: str) -> ListFacts | None:
    """Return what the journal knows of the list, if the file is as it was."""
    record = journal.records.get(_whole_unit(name))
    info = files.stat(url)
    if record is None or info is None:
        return None
    facts = msgspec.convert(record.info["list"], ListFacts)
    same = (facts.url, facts.bytes, facts.stamp) == (url, info.bytes, info.stamp)
    return facts if same and info.stamp else None


def _whole_unit(name: str) -> str:
    return f"{layout.ATTRIBUTES}/{name}/"


@dataclass(frozen=True)
class _Blocking:
    """A call of `block`, with everything that decides its result."""

    dataset: Dataset
    chosen: Dataset
    columns: Columns
    facts: ListFacts
    name: str
    file_format: FileFormat | None
    policy: RecordPolicy
    params: dict[str, Any]

    @property
    def key(self) -> str:
        """Key of every shard's marks."""
        params = {
            "name": self.name,
            "list": self.facts.checksum,
            "source": self.dataset.source,
            "max_record_bytes": self.policy.max_record_bytes,
        }
        return work_key("block", VERSION, params)

    @property
    def whole(self) -> Task:
        """The whole set: what was found out about the list, valid while all documents are what they were."""
        listing = [shard.path for shard in self.dataset.shards]
        key = work_key("block", VERSION, {"set": self.key, "shards": listing})
        return Task(self.name, (Unit(_whole_unit(self.name), key),), self._inputs(self.dataset.shards))

    @property
    def is_partial(self) -> bool:
        """Whether some shards are left out."""
        return len(self.chosen.shards) < len(self.dataset.shards)

    def run(self, options: RunOptions, by_exchange: bool) -> BlockSummary:
        """Do what is left."""
        started = time.monotonic()
        stage = ListedInMemory(self.dataset.root, self.name, self.facts, self.policy)
        ahead = engine.run(self._plan(stage), replace(options, dry_run=True))
        if options.dry_run:
            return summarize(ahead, self.facts.entries, None)
        known = None if options.overwrite or self.is_partial else self._finished()
        if by_exchange and (ahead.planned or (known is None and not self.is_partial)):
            summary, known = self._by_exchange(options)
        else:
            summary = engine.run(self._plan(stage), options)
            if known is None and not self.is_partial:
                known = self._save(*self._unmatched_in_memory(options))
            self._remove_leftovers()
        seconds = time.monotonic() - started
        return self._summarize(replace(summary, seconds=seconds), known)

    def _summarize(self, summary: Summary, known: Mapping[str, Any] | None) -> BlockSummary:
        if self.is_partial:
            note = "only some shards were looked at: entries that match nothing are known when all are done"
            summary = replace(summary, notes=(*summary.notes, note))
        return summarize(summary, self.facts.entries, None if known is None else dict(known))

    def _plan(self, stage: Any, works: Mapping[str, Any] | None = None) -> Plan:
        return Plan(
            stage=stage,
            root=self.dataset.root,
            tasks=[self._task(shard, works) for shard in self.chosen.shards],
            params=self.params,
            writes=(f"{layout.ATTRIBUTES}/{self.name}/",),
            version=dolma_dask.__version__,
            all_units=frozenset(self._path(shard) for shard in self.dataset.shards),
            reads=layout.DOCUMENT_SUFFIXES,
            bad_is_loss=True,
            notes=dataset_notes(self.dataset),
        )

    def _path(self, shard: Shard) -> str:
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def _task(self, shard: Shard, works: Mapping[str, Any] | None) -> Task:
        work = self.columns.work(shard) if works is None else works[shard.path]
        return Task(shard.path, (Unit(self._path(shard), self.key),), self._inputs([shard]), work)

    def _inputs(self, shards: Sequence[Shard]) -> tuple[Input, ...]:
        root = self.dataset.root
        return inputs_of(root, [info for shard in shards for info in self.columns.work(shard).files])

    # the list as a whole

    def _finished(self) -> dict[str, Any] | None:
        """Return what is known of the whole set, if it still is about these documents."""
        stage = ListedInMemory(self.dataset.root, self.name, self.facts, self.policy)
        state = resume.look_back(Plan(stage, self.dataset.root, [self.whole], {}, ()), overwrite=False)
        for record in state.renewed:
            self._add(record)
        for record in state.finished.values():
            return record.info
        return None

    def _unmatched_in_memory(self, options: RunOptions) -> tuple[int, Iterator[npt.NDArray[np.int64]]]:
        """Return how many entries are repeated, and the numbers of those that no marked document has."""
        listed = files.list_files(self.dataset.url(f"{layout.ATTRIBUTES}/{self.name}"))
        sizes = {f"{layout.ATTRIBUTES}/{self.name}/{info.path}": info for info in listed}
        tasks = [self._reading(self._path(shard), sizes) for shard in self.dataset.shards]
        stage = MatchedEntries(self.dataset.root, self.name, self.facts)
        keys = list_keys(self.facts.url, self.facts.checksum)
        unmatched = keys.first()
        for numbers in engine.gather(stage, tasks, replace(options, overwrite=False)):
            unmatched[numbers] = False
        found = np.flatnonzero(unmatched)
        return keys.repeated, iter([found] if len(found) else [])

    def _reading(self, path: str, sizes: Mapping[str, FileInfo]) -> Task:
        info = FileInfo(path, sizes[path].bytes, sizes[path].stamp)
        return Task(path, (), inputs_of(self.dataset.root, [info]), path)

    def _save(self, repeated: int, unmatched: Iterator[npt.NDArray[np.int64]]) -> dict[str, Any]:
        """Write the unmatched entries, and note what was found out; filed under the first shard, older than all others."""
        file, examples = write_unmatched(self.dataset.root, self.name, self.facts.url, unmatched)
        info = {
            "list": msgspec.to_builtins(self.facts),
            "repeated": repeated,
            "unmatched": file.rows if file else 0,
            "examples": examples,
            "file": file.path if file else "",
        }
        records = Journal(self.dataset.root, "block").records
        paths = [self._path(shard) for shard in self.dataset.shards]
        inputs = tuple(item for path in paths for item in records[path].inputs)
        (unit,) = self.whole.units
        shard = self.dataset.shards[0].path
        self._add(Record(unit.name, shard, unit.key, inputs, (file,) if file else (), info=info))
        return info

    def _add(self, record: Record) -> None:
        run = f"{time.time_ns():020d}-{secrets.token_hex(3)}"
        writer = JournalWriter(Journal(self.dataset.root, "block"), run)
        writer.add(record)
        writer.close()

    # through the exchange

    def _by_exchange(self, options: RunOptions) -> tuple[Summary, dict[str, Any] | None]:
        exchanged = self._exchange(options)
        spooled = {
            self.dataset.shards[found["number"] - entry_shards(self.facts)].path: found
            for record in exchanged.records.values()
            for found in record.info["shards"]
        }
        stage = ListedByExchange(self.dataset.root, self.name, exchanged.folder, exchanged.by_shard)
        summary = engine.run(self._plan(stage, spooled), options)
        known = None
        if not self.is_partial:
            repeated = sum(info["repeated"] for info in exchanged.infos)
            known = self._save(repeated, self._unmatched_numbers(exchanged))
        exchanged.remove()
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
        key = work_key("block", VERSION, {"set": self.key, "listing": every, "chosen": chosen})
        return files.join(self.dataset.root, f"_exchange/block-{self.name}/{key}")

    def _remove_leftovers(self) -> None:
        remove_others(self._folder)
        remove_exchange(self._folder)

    def _exchange(self, options: RunOptions) -> Exchanged:
        before = entry_shards(self.facts)
        chosen = {shard.path for shard in self.chosen.shards}
        numbered = [(n, shard) for n, shard in enumerate(self.dataset.shards) if shard.path in chosen]
        groups = grouped([(number, shard.bytes) for number, shard in numbered])
        facts = FileInfo(self.facts.url, self.facts.bytes, self.facts.stamp)
        tasks = [Task(f"list {self.facts.url}", (), (Input(self.facts.url, facts),))]
        return through_exchange(
            ListEmitter(self.dataset.root, self.facts, self.policy),
            [*tasks, *(self._group_task(numbers, before) for numbers in groups)],
            MembershipReducer(before << 32),
            folder=self._folder,
            key=self._folder.rpartition("/")[2],
            shards=before + len(self.dataset.shards),
            options=options,
            verb="block",
        )

    def _group_task(self, numbers: Sequence[int], before: int) -> Task:
        shards = [self.dataset.shards[number] for number in numbers]
        items = tuple(
            (before + number, self.columns.work(shard)) for number, shard in zip(numbers, shards, strict=True)
        )
        name = group_name([shard.path for shard in shards])
        return Task(name, (), self._inputs(shards), DocumentKeys(items))
