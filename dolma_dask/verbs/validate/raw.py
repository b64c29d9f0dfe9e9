"""Raw files, which are of any form: whether they can be read, what their records hold, and whether each of them is in a dataset that was made of them.

They are read as `convert` reads them, so that a record has the id that its document gets: that of its field, or of its file and row. Memory: 16 bytes for each record, and
for each document that it is compared with.
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, matches
from dolma_dask.display import counted, percent
from dolma_dask.engine import Input, inputs_of
from dolma_dask.engine.fold import fold, shards_of
from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats import layout
from dolma_dask.functions.calls import UserFunction
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import Block
from dolma_dask.options.groups import RunOptions
from dolma_dask.reading.columns import find_columns
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.sources import FieldMapping, open_sources
from dolma_dask.sources.naming import Listing, list_raw, sorted_out
from dolma_dask.verbs.validate.keys import Keys, row_keys
from dolma_dask.verbs.validate.problems import KINDS, SHOWN, Problem, Problems, add_error

RAW = "raw"
"""Folder of a source that holds what its versions were made of."""

_NO_KEYS: Keys = np.empty((0, 2), np.uint64)

_FIELDS = 12
"""Fields that a note names."""

_MAX_FIELDS = 1_000
"""Fields that are counted: where names are data, there is no end of them."""


class RawFolder(Struct, frozen=True):
    """The raw files of a source."""

    root: str
    listing: Listing
    id: str | None  # field of the id
    max_record_bytes: int
    keep: int  # problems of each kind

    def works(self) -> list["RawFile"]:
        """Return the work on each file."""
        how = replace(self, listing=Listing([], [], []))
        return [RawFile(how, info) for info in self.listing.known]

    def selected(self, only: Sequence[str], prune: int | None) -> "RawFolder":
        """Return the folder with the files that match one of `only`, at most `prune`."""
        kept = [info for info in self.listing.known if not only or matches(info.path, only)][:prune]
        return replace(self, listing=self.listing._replace(known=kept))


class RawFile(Struct, frozen=True):
    """One raw file to read."""

    folder: RawFolder
    info: FileInfo

    @property
    def name(self) -> str:
        """The file."""
        return self.info.path

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The file, as an input of a task."""
        return inputs_of(self.folder.root, (self.info,))

    def read(self, fields: Counter[str]) -> Iterator[Block]:
        """Yield blocks with the ids of the records, and count their fields."""

        def identity(record: dict[str, Any]) -> dict[str, Any]:
            fields.update(name for name in record if name in fields or len(fields) < _MAX_FIELDS)
            found = _value(record, self.folder.id or "id")
            own = {"id": str(found)} if type(found) in (str, int) else {}
            return {"text": "", "source": "", **own}

        how = {"function": UserFunction(RAW, identity, "1"), "max_record_bytes": self.folder.max_record_bytes}
        mapping = FieldMapping(source_name=RAW)
        for source in open_sources(self.folder.root, [self.info], mapping, **how):  # type: ignore[arg-type]
            yield from source.read()


def _value(record: Mapping[str, Any], path: str) -> Any:
    first, _, rest = path.partition(".")
    inner = record.get(path, record.get(first))
    return _value(inner, rest) if rest and path not in record and isinstance(inner, dict) else inner


def raw_folder(
    place: str, skip: Sequence[str], identity: str | None, max_record_bytes: int, keep: int
) -> RawFolder | None:
    """Return a folder called ``raw`` without ``documents/``; None for any other."""
    root = files.normalize(place).rstrip("/")
    if posixpath.basename(root) != RAW or layout.DOCUMENTS in files.list_folders(root):
        return None
    try:
        base, infos = list_raw([root])
    except UsageError:
        return None
    return RawFolder(base, sorted_out(infos, skip), identity, max_record_bytes, keep)


class RawSums(Struct, frozen=True):
    """What was found in some raw files."""

    records: int = 0
    bad: int = 0
    fields: Mapping[str, int] = {}
    problems: tuple[Mapping[str, Any], ...] = ()
    keys: tuple[tuple[str, Keys], ...] = ()  # of the rows of each file

    def __add__(self, other: "RawSums") -> "RawSums":
        return RawSums(
            self.records + other.records,
            self.bad + other.bad,
            Counter(self.fields) + Counter(other.fields),
            self.problems + other.problems,
            self.keys + other.keys,
        )


@dataclass(frozen=True)
class CountRaw:
    """Reads raw files; see `dolma_dask.engine.fold.Fold`."""

    verb: ClassVar[str] = "validate"

    def start(self) -> RawSums:
        """Return the sums of no files."""
        return RawSums()

    def count(self, work: RawFile) -> RawSums:
        """Return what is found in one file."""
        problems, fields, keys = Problems(work.folder.keep), Counter[str](), list[Keys]()
        bad, path = 0, f"{RAW}/{work.name}"
        try:
            for block in work.read(fields):
                bad += len(block.bad)
                keys.append(_keys(_ids(block)))
                first = (
                    Problem(path, one.row, one.reason.replace("_", " "), one.expected) for one in block.bad
                )
                problems.add_all("bad_record", list(first)[: work.folder.keep], len(block.bad))
        except (DataError, UsageError) as error:
            if isinstance(error, UsageError):
                problems.add("unreadable_file", path, str(error))
            else:
                add_error(problems, files.parent(work.folder.root) or "", path, error)
        every = np.concatenate([_NO_KEYS, *keys])
        return RawSums(len(every), bad, fields, (problems.to_record(),), ((work.name, every),))


def _ids(block: Block) -> pa.LargeStringArray:
    """Return the id of each record, null for one that could not be read."""
    return pa.array(
        [one[0] if one else None for one in block.batch.column("id").to_pylist()], pa.large_string()
    )


def _keys(ids: pa.LargeStringArray) -> Keys:
    return row_keys(ids, pa.array([""] * len(ids), pa.large_string()))


def check_raw(folder: RawFolder, options: RunOptions) -> tuple[RawSums, Problems, list[str]]:
    """Return what is found in raw files, what is wrong with them, and what else there is to say."""
    sums = fold(CountRaw(), folder.works(), options)
    problems = Problems(folder.keep)
    for one in sums.problems:
        problems.merge(one)
    notes = []
    common = sorted(sums.fields.items(), key=lambda item: (-item[1], item[0]))
    if common:
        shown = ", ".join(f"{name} {percent(count, sums.records)}" for name, count in common[:_FIELDS])
        notes.append(f"fields of the records: {shown}{', ...' if len(common) > _FIELDS else ''}")
    known = _flat([one for _, one in sums.keys])
    repeated = len(known) - len(np.unique(known))
    if repeated:
        notes.append(f"{counted(repeated, 'record')} with the id of an earlier one")
    if odd := folder.listing.odd:
        notes.append(f"{counted(len(odd), 'file')} of no known kind, NOT looked at, first {odd[0].path}")
    return sums, problems, notes


@dataclass(frozen=True)
class CountDocuments:
    """Reads the ids of documents; see `dolma_dask.engine.fold.Fold`."""

    verb: ClassVar[str] = "validate"

    def start(self) -> RawSums:
        """Return the sums of no shards."""
        return RawSums()

    def count(self, shard: AlignedShard) -> RawSums:
        """Return the ids of one shard, in the order of its rows."""
        keys = [_NO_KEYS, *(_keys(block.batch.column("id")) for block in shard.open())]
        return RawSums(keys=((shard.name, np.concatenate(keys)),))


def compare(folder: RawFolder, dataset: Dataset, options: RunOptions) -> Problems:
    """Return what is wrong with raw files, their records that are no document, and documents that are no raw record, by their ids."""
    sums, problems, _ = check_raw(folder, options)
    shards = shards_of(find_columns(dataset, ["source"]))
    documents = fold(CountDocuments(), shards, options)
    raw_files = {work.name: work for work in folder.works()}
    by_name = {shard.name: shard for shard in shards}

    def raw_ids(name: str) -> Iterator[pa.Array]:
        return map(_ids, raw_files[name].read(Counter()))

    def document_ids(name: str) -> Iterator[pa.Array]:
        return (block.batch.column("id") for block in by_name[name].open())

    _add_absent(problems, "lost_record", sums.keys, documents.keys, raw_ids, RAW)
    _add_absent(problems, "not_in_against", documents.keys, sums.keys, document_ids, layout.DOCUMENTS)
    return problems


def _add_absent(
    problems: Problems,
    kind: str,
    keys: Sequence[tuple[str, Keys]],
    known: Sequence[tuple[str, Keys]],
    ids: Callable[[str], Iterator[pa.Array]],
    folder: str,
) -> None:
    """Add the rows whose keys are not among the `known` ones; only files with the first of them are read again, for their ids."""
    there = np.unique(_flat([one for _, one in known]))
    for name, own in keys:
        rows = np.flatnonzero(own.any(axis=1) & ~np.isin(_flat([own], all_rows=True), there))
        wanted = set(rows[: problems.keep].tolist()) if problems.counts[kind] < problems.keep else set()
        first = [
            Problem(f"{folder}/{name}", row, f"the id {identity[:SHOWN]!r}", KINDS[kind])
            for row, identity in _rows(ids(name), wanted)
        ]
        problems.add_all(kind, first, len(rows))


def _rows(blocks: Iterator[pa.Array], wanted: set[int]) -> Iterator[tuple[int, str]]:
    at = 0
    for ids in blocks if wanted else ():
        yield from ((row, ids[row - at].as_py()) for row in sorted(wanted) if at <= row < at + len(ids))
        at += len(ids)


_KEY = np.dtype([("high", np.uint64), ("low", np.uint64)])


def _flat(keys: Sequence[Keys], *, all_rows: bool = False) -> npt.NDArray[Any]:
    """Return keys as one value each, without the rows that have none."""
    every = np.concatenate([_NO_KEYS, *keys])
    kept = every if all_rows else every[every.any(axis=1)]
    return np.ascontiguousarray(kept).view(_KEY).reshape(-1)
