"""Raw files, which are of any form: whether they can be read, and what their records hold.

They are read as `convert` reads them, so that a record has the id that its document gets: that of its field, or of its file and row. Memory: 16 bytes for each record.
"""

import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import matches, share_of
from dolma_dask.display import counted, percent
from dolma_dask.engine import Input, inputs_of
from dolma_dask.engine.fold import fold
from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats import layout
from dolma_dask.functions.calls import UserFunction
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import Block
from dolma_dask.options.groups import RunOptions, ShardOptions
from dolma_dask.sources import FieldMapping, open_sources
from dolma_dask.sources.naming import Listing, list_raw, sorted_out
from dolma_dask.text import compute as pc
from dolma_dask.verbs.validate.keys import Keys, row_keys
from dolma_dask.verbs.validate.problems import Problem, Problems, add_error

RAW = "raw"
"""Folder of a source that holds what its versions were made of."""

_NO_KEYS: Keys = np.empty((0, 2), np.uint64)

FIELDS = 12
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

    def selected(self, options: ShardOptions) -> "RawFolder":
        """Return the folder with the files that ``only``, ``share`` and ``prune`` leave."""
        only = tuple(options.only or ())
        kept = [info for info in self.listing.known if not only or matches(info.path, only)]
        part = list(share_of(kept, options.share))[: options.prune]
        return replace(self, listing=self.listing._replace(known=part))


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
    cut: int = 0  # files that could not be read to their end

    def __add__(self, other: "RawSums") -> "RawSums":
        return RawSums(
            self.records + other.records,
            self.bad + other.bad,
            Counter(self.fields) + Counter(other.fields),
            self.problems + other.problems,
            self.keys + other.keys,
            self.cut + other.cut,
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
        bad, cut, path = 0, 0, f"{RAW}/{work.name}"
        try:
            for block in work.read(fields):
                bad += len(block.bad)
                keys.append(id_keys(raw_ids(block)))
                first = (
                    Problem(path, one.row, one.reason.replace("_", " "), one.expected) for one in block.bad
                )
                problems.add_all("bad_record", list(first)[: work.folder.keep], len(block.bad))
        except (DataError, UsageError) as error:
            cut = 1
            if isinstance(error, UsageError):
                problems.add("unreadable_file", path, str(error))
            else:
                add_error(problems, files.parent(work.folder.root) or "", path, error)
        every = joined_keys(keys)
        return RawSums(len(every), bad, fields, (problems.to_record(),), ((work.name, every),), cut)


def raw_ids(block: Block) -> pa.LargeStringArray:
    """Return the id of each record, null for one that could not be read."""
    return pa.array(
        [one[0] if one else None for one in block.batch.column("id").to_pylist()], pa.large_string()
    )


def id_keys(ids: pa.LargeStringArray) -> Keys:
    """Return keys (n, 2) of ids alone; those that could not be read have none."""
    return row_keys(ids, pa.array([""] * len(ids), pa.large_string()))


def joined_keys(keys: Sequence[Keys]) -> Keys:
    """Return the keys of all, one behind the other."""
    return np.concatenate([_NO_KEYS, *keys])


def as_values(keys: Keys) -> pa.FixedSizeBinaryArray:
    """Return keys as values of 16 bytes, those of rows that have none too; a view."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(keys), [None, pa.py_buffer(keys)])


def check_raw(folder: RawFolder, options: RunOptions) -> tuple[RawSums, Problems, list[str]]:
    """Return what is found in raw files, what is wrong with them, and what else there is to say."""
    sums = fold(CountRaw(), folder.works(), options)
    problems = Problems(folder.keep)
    for one in sums.problems:
        problems.merge(one)
    notes = []
    common = sorted(sums.fields.items(), key=lambda item: (-item[1], item[0]))
    if common:
        shown = ", ".join(f"{name} {percent(count, sums.records)}" for name, count in common[:FIELDS])
        notes.append(f"fields of the records: {shown}{', ...' if len(common) > FIELDS else ''}")
    every = joined_keys([one for _, one in sums.keys])
    known = every[every.any(axis=1)]
    if repeated := len(known) - pc.count_distinct(as_values(known)).as_py():
        notes.append(f"{counted(repeated, 'record')} with the id of an earlier one")
    if odd := folder.listing.odd:
        notes.append(f"{counted(len(odd), 'file')} of no known kind, NOT looked at, first {odd[0].path}")
    return sums, problems, notes
