"""stat: how the scores and lengths of attributes are spread, as the Dolma toolkit's ``stat`` counts them, with quantiles.

Attribute files alone are read, in one pass. Every span of a document counts; an empty list counts as one span of nothing, (0, 0, 0.0), and a document
that lacks the attribute does not count. The report is the toolkit's (`dolma_dask.figures.toolkit_bins`); quantiles are of all values, true to a 4,096th.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.display import last_name
from dolma_dask.engine.fold import added, fold, readable_rows, shards_of
from dolma_dask.errors import UsageError
from dolma_dask.figures.histogram import QUANTILES, Histogram, boundary, quantiles
from dolma_dask.figures.toolkit_bins import ToolkitBins
from dolma_dask.formats.json.attributes import AttributeKind, value_kind
from dolma_dask.formats.layout import format_of
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeFile, sample_keys
from dolma_dask.io.files import FileInfo, Input
from dolma_dask.io.publish import publish
from dolma_dask.options.base import OUTPUT, WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, ShardOptions, WithAttributes, check_outside, same
from dolma_dask.ownership import dataset_notes
from dolma_dask.reading.catalog import agree, open_attributes
from dolma_dask.reading.columns import Columns
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.reading.sets import AttributeSets
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Fact, Facts, Notes, Part
from dolma_dask.results.table import Column, Table
from dolma_dask.sinks.jsonl import gzip_member
from dolma_dask.text import compute as pc

REPORT = "summaries.jsonl.gz"
"""File of the report."""

SHOWN_BINS = 10
"""Ranges of values in a table."""

AT_ONCE = 1 << 20
"""Values that are counted together."""

Numbers = npt.NDArray[Any]

_LABEL = "__label__"
"""Part of the names of fastText's labels, whose probabilities may be a little above 1; these count as 1."""


@dataclass(frozen=True, kw_only=True)
class StatOptions(DatasetOptions, ShardOptions):
    """Options of `stat`."""

    attributes: Annotated[Sequence[str], Opt("Attribute sets to look at; by default all.", group=WHAT)] = ()
    regex: Annotated[
        str | None, Opt("Only attribute keys in which this regular expression is found.", group=WHAT)
    ] = None
    bins: Annotated[int, Opt("Bins of a series in the report at most.", min=1)] = 1000
    report: Annotated[
        str | None,
        Opt(
            "Folder for summaries.jsonl.gz, as the Dolma toolkit writes it: name, counts, bins, total and sum of each series.",
            group=OUTPUT,
        ),
    ] = None

    def check(self) -> None:
        """Refuse an expression that cannot be read."""
        super().check()
        try:
            re.compile(self.regex or "")
        except re.error as error:
            raise UsageError(f"regex={self.regex!r}: {error}; expected a regular expression.") from error


# sums


class Values(Struct, frozen=True):
    """Values of one series."""

    bins: ToolkitBins = ToolkitBins()
    spread: Histogram = Histogram()
    total: int = 0
    sum: float = 0

    @classmethod
    def of(cls, values: Numbers) -> "Values":
        """Return the values (n,) of a block."""
        array = values.astype(np.float64)
        return cls(ToolkitBins.of(array), Histogram.of(array), values.size, values.sum().item())

    def __add__(self, other: "Values") -> "Values":
        return Values(
            self.bins + other.bins, self.spread + other.spread, self.total + other.total, self.sum + other.sum
        )

    def of_one_file(self, bins: int) -> "Values":
        """Return what is kept of a file."""
        return msgspec.structs.replace(self, bins=self.bins.of_one_file(bins))

    def told(self, bins: int) -> tuple[Any, ...]:
        """Return the fields of a `Series` but its name."""
        edges, counts = self.bins.summarized(bins)
        return (
            tuple(counts.tolist()),
            tuple(edges.tolist()),
            self.total,
            self.sum,
            self.spread.min,
            self.spread.max,
            quantiles(self.spread),
            _ranges(self.spread),
        )


class Sums(Struct, frozen=True):
    """Values by series."""

    by_name: Mapping[str, Values] = {}

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(added(self.by_name, other.by_name))


class LoneFile(Struct, frozen=True):
    """An attribute file that lies in no dataset; small, goes to workers."""

    root: str
    info: FileInfo  # relative to it
    kinds: Mapping[str, AttributeKind]  # of all keys that are looked at
    ids_as_text: bool = False

    @property
    def name(self) -> str:
        """Its path, for progress and failures."""
        return self.info.path

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The file."""
        return files.inputs_of(self.root, [self.info])

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of documents that could be read."""
        with closing(
            iter(AttributeFile(self.inputs[0].url, self.kinds, ids_as_text=self.ids_as_text))
        ) as blocks:
            for block in blocks:
                batch = pa.RecordBatch.from_arrays(list(block.columns.values()), names=list(block.columns))
                yield batch.filter(block.ids.is_valid())


class CountValues(Struct, frozen=True):
    """Counts the values of shards; see `dolma_dask.engine.fold.Fold`."""

    names: tuple[str, ...]  # columns
    bins: int
    verb: ClassVar[str] = "stat"

    def start(self) -> Sums:
        """Return the sums of no shards."""
        return Sums()

    def count(self, shard: AlignedShard | LoneFile) -> Sums:
        """Count the values of one shard."""
        sums, waiting = Sums(), dict[str, list[Numbers]]()
        for rows in shard.rows() if isinstance(shard, LoneFile) else readable_rows(shard):
            for column in self.names:
                for name, values in _series(column, rows.column(column)):
                    waiting.setdefault(name, []).append(values)
                    if sum(map(len, waiting[name])) >= AT_ONCE:
                        sums += Sums({name: Values.of(np.concatenate(waiting.pop(name)))})
        sums += Sums({name: Values.of(np.concatenate(parts)) for name, parts in waiting.items()})
        return Sums({name: one.of_one_file(self.bins) for name, one in sums.by_name.items() if one.total})


def _series(name: str, column: pa.Array) -> Iterator[tuple[str, Numbers]]:
    """Yield the scores and lengths of a column of spans, or the numbers of another."""
    if not pa.types.is_list(column.type):
        yield f"{name}/score", column.drop_null().to_numpy(zero_copy_only=False)
        return
    spans = column.flatten()
    start, end, score = (
        spans.field(part).to_numpy(zero_copy_only=False) for part in ("start", "end", "score")
    )
    nothing = np.zeros(pc.sum(pc.equal(pc.list_value_length(column), 0)).as_py() or 0, np.int64)
    if _LABEL in name:
        score = np.minimum(score, 1.0)
    yield f"{name}/score", np.concatenate([score, nothing.astype(np.float64)])
    yield f"{name}/length", np.concatenate([end - start, nothing])


# answer


class Series(Struct, frozen=True):
    """Values of one attribute: its scores, or the lengths of its spans in code points."""

    name: str
    counts: tuple[int, ...]
    bins: tuple[float, ...]  # edges, one more than there are counts
    total: int  # values
    sum: float
    min: float | None
    max: float | None
    quantiles: Mapping[float, float]
    ranges: tuple[tuple[float, float, int], ...]  # least and greatest value of ranges, and how many lie there

    def table(self) -> Table:
        """Return the ranges of values."""
        rows = [(low, high, count, count / self.total) for low, high, count in self.ranges]
        columns = (Column("from", "real"), Column("to", "real"), Column("count"), Column("share", "share"))
        return Table(self.name, columns, rows)


def _ranges(spread: Histogram) -> tuple[tuple[float, float, int], ...]:
    """Return ranges with about as many values each; a value that many have is a range of its own."""
    if not spread.keys.size:
        return ()
    lower = np.clip(boundary(spread.keys, spread.shift), spread.min, spread.max)
    done = np.cumsum(spread.counts)
    wanted = np.arange(1, SHOWN_BINS + 1) * int(done[-1]) / SHOWN_BINS
    last = np.unique(np.minimum(np.searchsorted(done, wanted), done.size - 1))
    first = np.append(0, last[:-1] + 1)
    counts = np.diff(done[last], prepend=0)
    return tuple(zip(lower[first].tolist(), lower[last].tolist(), counts.tolist(), strict=True))


class Stat(Answer, frozen=True):
    """Values of attributes; prints as tables. ``series`` has the bins of the report too."""

    name: str
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()

    def parts(self) -> Iterator[Part]:
        """Yield a table of all series, and one of the ranges of each."""
        yield Facts(f"stat of {self.name}", [Fact("series", len(self.series), "integer")])
        rows = [
            (one.name, one.total, one.sum, one.min, *one.quantiles.values(), one.max) for one in self.series
        ]
        parts = (f"{100 * share:g} %" for share in QUANTILES)
        columns = ("min", *parts, "max")
        numbers = tuple(Column(name, "real") for name in ("sum", *columns))
        yield Table("values", (Column("series", "words"), Column("values"), *numbers), rows)
        yield from (one.table() for one in self.series)
        yield Notes(self.notes)


# the question


@command
def stat(dataset: WithAttributes, /, *, options: StatOptions) -> Stat:
    """Count the scores and lengths of attributes: quantiles, and the bins of the Dolma toolkit's stat.

    Example: dolma-dask stat corpus/wiki/v0 --attributes gopher_v2 --report out/stat

    Returns
    -------
    Stat

    Raises
    ------
    UsageError
        There is no such attribute set, no key that fits, or the regular expression cannot be read; or the report would replace a file that
        says something else.
    StageError
        Some shards could not be read, for example because attributes do not line up with their documents.
    """
    part = options.selected(options.open(dataset))
    known = None
    if options.report is not None:
        check_outside(options.report, part.root)
        known = None if options.overwrite else _known(options.report)
    sets, names, left_out = _keys(open_attributes(part, options.attributes or part.attributes), options.regex)
    columns = Columns(part, names, {}, {}, sets)
    counted = fold(CountValues(names, options.bins), shards_of(columns, exact=False), options)
    return _told(last_name(part.root), counted, known, (*left_out, *dataset_notes(part)), options)


@command
def stat_files(
    root: Annotated[str, Opt("Folder or URL.")],
    infos: Annotated[Sequence[FileInfo], Opt("Attribute files below it.", kind="list", convert=same)],
    /,
    *,
    options: StatOptions,
) -> Stat:
    """Count the values of attribute files that lie in no dataset; see `stat`.

    Returns
    -------
    Stat

    Raises
    ------
    UsageError
        As for `stat`.
    StageError
        Some files could not be read.
    """
    known = None if options.report is None or options.overwrite else _known(options.report)
    name, kinds = last_name(root), dict[str, AttributeKind]()
    for info in infos:
        sampled = sample_keys(files.join(root, info.path), ids_as_text=options.ids_as_text)
        for key, kind in sampled.kinds.items():
            kinds[key] = agree(info.path, key, kinds.get(key, kind), kind)
    files_of = {name: {info.path: info for info in infos}}
    sets, names, left_out = _keys(AttributeSets(files_of, {name: kinds}, {}), options.regex)
    wanted = {key: sets.kinds[name][key] for key in names}
    pieces = [LoneFile(root, info, wanted, options.ids_as_text) for info in infos]
    return _told(name, fold(CountValues(names, options.bins), pieces, options), known, left_out, options)


def _told(name: str, counted: Sums, known: bytes | None, notes: Sequence[str], options: StatOptions) -> Stat:
    """Return the answer, and write the report if one is asked for; `known` is what is there."""
    series = tuple(Series(name, *one.told(options.bins)) for name, one in counted.by_name.items())
    if options.report is not None and not options.dry_run:
        _write(options.report, series, known)
    return Stat(name, series, tuple(notes))


def _keys(sets: AttributeSets, regex: str | None) -> tuple[AttributeSets, tuple[str, ...], tuple[str, ...]]:
    """Return sets whose values are read as lists of spans wherever files hold such, the columns to look at, and what is left out."""
    has_tables = {
        name: any(format_of(info.path) == "parquet" for info in infos.values())
        for name, infos in sets.files.items()
    }
    kinds: dict[str, dict[str, AttributeKind]] = {}
    for name, known in sets.kinds.items():
        kind_of_documents: AttributeKind = "document" if has_tables[name] else "spans"
        kinds[name] = {key: kind_of_documents if kind == "document" else kind for key, kind in known.items()}
    places: dict[tuple[str, str], str] = {}
    for name, place in sets.columns.items():  # a key of one set alone comes first, by itself
        places.setdefault(place, name)
    found = [name for (_, key), name in places.items() if re.search(regex or "", key)]
    if not found and regex is not None:
        raise UsageError(
            f"regex={regex!r} is found in none of {', '.join(places.values()) or 'no keys'}; expected a part of a key."
        )
    names = tuple(name for name in found if value_kind(sets.kind(name)) not in ("string", "bool"))
    if not names:
        raise UsageError(
            f"{', '.join(found) or 'the attribute sets'}: no numbers or spans; expected a key of such, see dolma-dask schema."
        )
    others = [name for name in found if name not in names]
    notes = (f"no numbers, and left out: {', '.join(others)}",) if others else ()
    return msgspec.structs.replace(sets, kinds=kinds), names, notes


def _write(folder: str, series: Sequence[Series], known: bytes | None) -> None:
    """Write the report; refuse to put it in place of another, `known`, which is left if it says the same."""
    rows = (
        {"name": one.name, "counts": one.counts, "bins": one.bins, "total": one.total, "sum": one.sum}
        for one in series
    )
    lines, url = b"".join(msgspec.json.encode(row) + b"\n" for row in rows), _url(folder)
    if known == lines:
        return
    if known is not None:
        raise UsageError(f"{url} is there and holds other values, of other options or files; {_FREE}")
    with publish(url) as out:
        for part in gzip_member(memoryview(lines)):
            out.write(part)


_FREE = "expected a free folder. Choose another, or replace it with --overwrite."


def _url(folder: str) -> str:
    return files.join(files.normalize(folder), REPORT)


def _known(folder: str) -> bytes | None:
    """Return the lines of a report that is there; refuse a file that is none."""
    url = _url(folder)
    if files.stat(url) is None:
        return None
    try:
        lines = gzip.decompress(files.read_bytes(url))
        msgspec.json.Decoder(_Line).decode_lines(lines)
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError):
        raise UsageError(f"{url} is there and is no report of stat; {_FREE}") from None
    return lines


class _Line(Struct):
    """Line of a report."""

    name: str
    counts: list[float]
    bins: list[float]
