"""reshard: token files of the Dolma toolkit's format -> fewer or more of them, each source as often as its rate says.

Sources are folders of ``.npy`` files of ids without a header, each with a ``.csv.gz`` of its documents, as ``ragged --format dolma`` and the toolkit write
them. Files are joined whole: places in the table are shifted, and nothing is encoded. A rate of 2.5 takes each file twice, and a sample of half of the files once
more. Memory: a few MB.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from heapq import heappop, heappush
from math import floor
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import xxhash
from msgspec import Struct

from dolma_dask import engine
from dolma_dask.display import counted
from dolma_dask.engine import Input, Plan, Task, Unit, grouped
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats.segments import segments_path
from dolma_dask.formats.token_files import FORMATS, dolma_rows
from dolma_dask.io import files
from dolma_dask.io.decompress import read_pieces
from dolma_dask.io.files import FileInfo
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.io.stored import PieceReader, StoredFile
from dolma_dask.io.stream import BLOCK_BYTES
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.options.base import OUTPUT, Opt, without_empty, words_of
from dolma_dask.options.command import command
from dolma_dask.options.groups import RunOptions
from dolma_dask.outputs.cutting import DEFAULT_SIZE, MAX_FILES
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.jsonl import MEMBER_BYTES, gzip_member
from dolma_dask.sinks.segments import SegmentsWriter
from dolma_dask.text.columns import integers, string_parts

VERSION = 2
"""Raised whenever other bytes are written for the same files and options."""

IDS, TABLE = FORMATS["dolma"].data, ".csv.gz"


@dataclass(frozen=True, kw_only=True)
class ReshardOptions(RunOptions):
    """Options of `reshard`."""

    sources: Annotated[
        Sequence[str],
        Opt("Folders or URLs of token files.", convert=lambda value: words_of("sources", value)),
    ]
    rates: Annotated[
        Sequence[float],
        Opt(
            "Rate of each source, in their order: 2.5 takes every file twice, and half of them, by the seed, once more. By default every file once.",
            convert=lambda value: value if isinstance(value, list | tuple) else (value,),
        ),
    ] = ()
    max_size: Annotated[
        int | None,
        Opt("Bytes of ids in a file at most, 2 GiB by default; a file that is larger stays alone.", min=1),
    ] = None
    shards: Annotated[
        int | None,
        Opt("Number of files, of about the same size, in place of `max_size`.", min=1, max=MAX_FILES),
    ] = None
    seed: Annotated[
        int, Opt("Seed of the samples; rates that are whole numbers draw none.", min=0, max=2**64 - 1)
    ] = 42

    def check(self) -> None:
        """Refuse two ways to cut files."""
        super().check()
        if self.max_size is not None and self.shards is not None:
            raise UsageError("`max_size` and `shards` both say how files are cut; expected one of them.")


@command
def reshard(
    to: Annotated[str, Opt("Flat folder or URL of the new files.", group=OUTPUT)],
    /,
    *,
    options: ReshardOptions,
) -> Summary:
    """Join token files of the Dolma toolkit's format to files of one size, 000000.npy and so on, each source as often as its rate says.

    Example: dolma-dask reshard out/train --sources out/wiki --rates 2.5 --max-size 4000000000

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some files could not be made, for example because a table does not belong to its ids.
    UsageError
        A source has no token files or is not finished, rates cannot be read, or a file would be taken more often than there are files to make.
    """
    root, rates = files.normalize(to), _rates(options.sources, options.rates)
    for source in rates:
        _check_source(source, root)
    copies = [
        one
        for number, (source, rate) in enumerate(rates.items())
        for one in _taken(number, source, rate, options.seed)
    ]
    size = DEFAULT_SIZE if options.max_size is None else options.max_size
    groups = _by_size(copies, size) if options.shards is None else _by_number(copies, options.shards)
    item = _item_bytes([pair for group in groups for pair in group])
    tasks = [_task(number, group, item) for number, group in enumerate(groups)]
    shown = {"sources": dict(rates), "seed": options.seed}
    shown |= {"max_size": None if options.shards else size, "shards": options.shards}
    names = [task.unit.name for task in tasks]
    plan = Plan(
        stage=JoinFiles(root, item),
        root=root,
        tasks=tasks,
        params=without_empty(shown),
        writes=("",),
        origin=next(iter(rates)),
        all_units=frozenset(names),
        beside=frozenset(other for name in names for other in (_table_of(name), segments_path(name))),
        reads=(IDS, TABLE),
        notes=tuple(_notes(copies, rates, groups, options.shards)),
    )
    return engine.run(plan, options).summary


def _notes(
    copies: Sequence[tuple["Pair", int]],
    rates: Mapping[str, float],
    groups: Sequence[object],
    shards: int | None,
) -> Iterator[str]:
    yield f"{counted(len(copies), 'file')} of {counted(len(rates), 'source')} joined to {len(groups):,}"
    without = sum(pair.segments is None for pair, _ in copies)
    if without:
        yield f"{counted(without, 'file')} without segments: nothing tells of which documents the files are made that hold them"
    if shards is not None and len(groups) < shards:
        yield f"{counted(len(groups), 'file')} in place of {shards:,} (shards): files are joined whole, and no more of them are taken at these rates"


# what is taken


class Pair(Struct, frozen=True):
    """A file of ids, its table and its segments, by their names in this run: the number of the source and the path below it."""

    ids: Input
    table: Input
    segments: Input | None = None  # the toolkit writes none

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files that are read."""
        return tuple(filter(None, (self.ids, self.table, self.segments)))

    @property
    def name(self) -> str:
        """Name of the ids."""
        return self.ids.info.path


def _rates(sources: Sequence[str], rates: Sequence[float]) -> dict[str, float]:
    """Return the rate of each source, by its normal URL."""
    if not sources or (rates and len(rates) != len(sources)):
        raise UsageError(
            f"{counted(len(sources), 'source')} and {counted(len(rates), 'rate')}; expected folders of token files, and a rate for each or none."
        )
    known: dict[str, float] = {}
    for source, rate in zip(sources, rates or [1.0] * len(sources), strict=True):
        url = files.normalize(source)
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate < MAX_FILES:
            raise UsageError(
                f"rates: {rate!r} of {source}; expected a number above 0 and below {MAX_FILES:,}, such as 0.5 or 2."
            )
        if url in known:
            raise UsageError(
                f"sources: {source} is given twice; expected each once, with the sum of its rates."
            )
        known[url] = float(rate)
    return known


def _check_source(source: str, root: str) -> None:
    """Refuse a source that the new files lie in or around, and one whose run is not finished."""
    ours, theirs = (f"{files.resolved(url)}/" for url in (root, source))
    if ours.startswith(theirs) or theirs.startswith(ours):
        raise UsageError(
            f"{root} and {source} lie in one another; expected a folder apart for the new files."
        )
    for verb in ("ragged", "reshard"):
        journal = Journal(source, verb)
        if journal.runs and journal.runs[-1].is_open:
            raise UsageError(
                f"{source} is not finished: a run of {verb} was stopped or left shards undone. Run it again first, so that all of its files are taken."
            )
        _check_whole(source, journal)


def _check_whole(source: str, journal: Journal) -> None:
    """Refuse a source without files that its journal knows: they would be left out in silence.

    Files that are cut by size have a record of all of them (``part-0/``), which counts: those of single files may be of an earlier cut.
    """
    cut = tuple(f"{unit[:-1]}-" for unit in journal.records if unit.endswith("/"))
    known = [record for unit, record in journal.records.items() if not unit.startswith(cut)]
    listed = {info.path for info in files.list_files(source)} if known else set()
    for path in sorted(file.path for record in known for file in record.files):
        if path.endswith((IDS, TABLE)) and path not in listed:
            raise UsageError(
                f"{source} lacks {path}, which {journal.verb} wrote; expected all files of a finished run. Make it again by the same command, or bring it back."
            )


def _taken(number: int, source: str, rate: float, seed: int) -> list[tuple[Pair, int]]:
    """Return the pairs of a source that are taken, and how often each."""
    listed = {info.path: info for info in files.list_files(source)}
    ids = [info for path, info in listed.items() if path.endswith(IDS)]
    alone = [info.path for info in ids if _table_of(info.path) not in listed]
    if alone or not ids:
        found = f"{alone[0]} without {_table_of(alone[0])}" if alone else f"no {IDS}"
        raise UsageError(
            f"{source} has {found}; expected pairs of {IDS} and {TABLE}, as ragged --format dolma and the Dolma toolkit's tokens write them."
        )
    pairs = [_pair(number, source, info, listed) for info in ids]
    times = floor(rate)
    more = max(1, round((rate - times) * len(pairs))) if rate > times else 0
    drawn = sorted(pairs, key=lambda pair: (xxhash.xxh64_intdigest(pair.name.encode(), seed), pair.name))[
        :more
    ]
    names = {pair.name for pair in drawn}
    return [(pair, count) for pair in pairs if (count := times + (pair.name in names))]


def _pair(number: int, source: str, ids: FileInfo, listed: Mapping[str, FileInfo]) -> Pair:
    table, segments = listed[_table_of(ids.path)], listed.get(segments_path(ids.path))
    read = [_input(number, source, info) for info in (ids, table, segments) if info is not None]
    return Pair(*read)


def _input(number: int, source: str, info: FileInfo) -> Input:
    return Input(files.join(source, info.path), FileInfo(f"{number}/{info.path}", info.bytes, info.stamp))


def _table_of(ids: str) -> str:
    return ids.removesuffix(IDS) + TABLE


def _by_size(copies: Sequence[tuple[Pair, int]], limit: int) -> list[list[Pair]]:
    """Return what each new file is joined from: all first copies, then all second ones and so on, so that no file holds two."""
    rounds = range(max(count for _, count in copies))
    takes = ([pair for pair, count in copies if count > number] for number in rounds)
    return [group for pairs in takes for group in grouped(pairs, lambda pair: pair.ids.info.bytes, limit)]


def _by_number(copies: Sequence[tuple[Pair, int]], number: int) -> list[list[Pair]]:
    """Return the same for so many files, fewer if there are fewer: the copies of a file, largest first, go to the smallest ones."""
    most = max(count for _, count in copies)
    if most > number:
        raise UsageError(
            f"shards={number}, and a file is taken {most} times; expected {most} or more, since no file holds two copies, or a lower rate."
        )
    groups = [list[Pair]() for _ in range(number)]
    smallest = [(0, 0, at) for at in range(number)]  # a heap: bytes and files of each
    for pair, count in sorted(copies, key=lambda one: (-one[0].ids.info.bytes, one[0].name)):
        for size, taken, at in [heappop(smallest) for _ in range(count)]:
            groups[at].append(pair)
            heappush(smallest, (size + pair.ids.info.bytes, taken + 1, at))
    return [group for group in groups if group]


def _item_bytes(pairs: Iterable[Pair]) -> int:
    """Return the bytes of an id, as the first file that has documents, and as many ids as its table says, shows them."""
    for pair in pairs:
        size, tokens = pair.ids.info.bytes, _tokens_of(pair.table) if pair.ids.info.bytes else 0
        if tokens and size in (2 * tokens, 4 * tokens):
            return size // tokens
    return 2


def _tokens_of(table: Input) -> int:
    ends = [int(batch.column("end").to_numpy()[-1]) for batch in _rows(StoredFile(table.url))]
    return ends[-1] if ends else 0


def _task(number: int, group: Sequence[Pair], item: int) -> Task:
    key = work_key("reshard", VERSION, {"of": [pair.name for pair in group], "item": item})
    inputs = tuple(one for pair in group for one in pair.inputs)
    return Task(f"{number:06d}", (Unit(f"{number:06d}{IDS}", key),), inputs, tuple(group))


# how it is joined


class JoinFiles(Struct, frozen=True):
    """Joins some pairs to one; see `dolma_dask.engine.Stage`."""

    root: str
    item: int  # bytes of an id
    verb: ClassVar[str] = "reshard"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the table, then the ids: whoever sees these sees a whole pair."""
        pairs: tuple[Pair, ...] = task.work
        name, inputs, rows, tokens = task.unit.name, list[InputRecord](), 0, 0
        files.remove(files.join(self.root, name))
        segments = SegmentsWriter(self.root, name) if all(pair.segments for pair in pairs) else None
        with (
            publish(files.join(self.root, name)) as ids,  # ends last
            publish(files.join(self.root, _table_of(name))) as table,
            segments or nullcontext(),
        ):
            out = _Lines(table)
            for pair in pairs:
                inputs.append(_copy(pair.ids, ids))
                count, read = self._add_table(pair, out, tokens)
                inputs.append(read)
                if segments is not None and pair.segments is not None:
                    inputs.append(_add_segments(pair.segments, segments, rows))
                rows, tokens = rows + count, ids.bytes // self.item
            out.finish()
        written = [
            FileRecord(name, ids.bytes, ids.checksum, rows),
            FileRecord(_table_of(name), table.bytes, table.checksum, rows),
            *([segments.record] if segments is not None else []),
        ]
        counts = {"documents_out": rows, "tokens": tokens, "bytes_out": ids.bytes + table.bytes}
        return [task.record(written, inputs, rows, counts=counts)]

    def _add_table(self, pair: Pair, out: "_Lines", shift: int) -> tuple[int, InputRecord]:
        """Append the lines of a table, with all places shifted; return how many there are."""
        stored, rows, end = StoredFile(pair.table.url), 0, 0
        for batch in _rows(stored):
            starts, ends = (batch.column(name).to_numpy() for name in ("start", "end"))
            if starts[0] != end or (starts[1:] != ends[:-1]).any():
                raise _unlike(pair, "documents that do not follow each other")
            sizes, lines = (ends - starts).astype(np.int32), batch.column("loc").to_numpy() - 1
            out.write(dolma_rows(batch.column("id"), sizes, shift + end, batch.column("src"), lines))
            rows, end = rows + batch.num_rows, int(ends[-1])
        if end * self.item != pair.ids.info.bytes:
            raise _unlike(pair, f"{end:,} tokens")
        return rows, _read_whole(stored, pair.table)


def _add_segments(source: Input, out: SegmentsWriter, shift: int) -> InputRecord:
    """Append segments, with all rows shifted."""
    with open_parquet(source.url) as file:
        for batch in read_batches(source.url, file, None, BLOCK_BYTES):
            out.write([integers(batch.column("row").to_numpy() + shift), *batch.columns[1:]])
    return _read_whole(StoredFile(source.url), source)


def _unlike(pair: Pair, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"{pair.table.url} tells of {found}, and the ids beside it have {pair.ids.info.bytes:,} bytes; expected a table of these ids, back to back, in files of ids "
        "of one type. Make the pair again, or leave its source out.",
        url=pair.table.url,
    )


def _copy(source: Input, out: PublishedFile) -> InputRecord:
    stored = StoredFile(source.url)
    while data := stored.read():
        out.write(data)
    return _read_whole(stored, source)


def _read_whole(stored: StoredFile, source: Input) -> InputRecord:
    """Return the record of a file that was read; refuse one that was written meanwhile."""
    stored.hash_rest()
    stored.check_unchanged()
    stored.close()
    return stored.record(source.info.path)


_COLUMNS = {
    "start": pa.int64(),
    "end": pa.int64(),
    "id": pa.large_string(),
    "src": pa.large_string(),
    "loc": pa.int64(),
}


def _rows(stored: StoredFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table, none empty."""
    from pyarrow import csv

    text = PieceReader(read_pieces(stored, "gzip"))
    try:
        with csv.open_csv(
            pa.PythonFile(text, "r"),
            csv.ReadOptions(column_names=list(_COLUMNS)),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(column_types=_COLUMNS, strings_can_be_null=False, null_values=[]),
        ) as reader:
            yield from (batch for batch in reader if batch.num_rows)
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):
            raise CorruptFileError(
                f"{stored.url} is no table of documents: {error}; expected lines of start, end, id, source file and line.",
                url=stored.url,
            ) from error


class _Lines:
    """Lines of a gzip file, in members."""

    def __init__(self, out: PublishedFile) -> None:
        self._out, self._waiting = out, bytearray()

    def write(self, lines: pa.LargeStringArray) -> None:
        """Append lines."""
        offsets, text = string_parts(lines)
        self._waiting += text[offsets[0] : offsets[-1]].data
        while len(self._waiting) >= MEMBER_BYTES:
            self._end_member(MEMBER_BYTES)

    def finish(self) -> None:
        """End the file, which is valid without lines too."""
        if self._waiting or not self._out.bytes:
            self._end_member(len(self._waiting))

    def _end_member(self, size: int) -> None:
        for part in gzip_member(memoryview(bytes(self._waiting[:size]))):
            self._out.write(part)
        del self._waiting[:size]
