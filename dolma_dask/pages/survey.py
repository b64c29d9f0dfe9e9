"""One pass over documents and their signals: its sums, small enough to be sent and added up over any number of shards.

Per signal a histogram of all values and one of the kept ones, what the conditions drop by source where no journal has counted it, and for every
condition of the form ``name op number`` the documents nearest to its bound. The sum depends neither on the order of shards nor on how they are cut into
blocks, as long as there are no more than 10,000 sources. Attribute sets that the rule needs must line up with the documents; any other that does not
is left out, with a note. Memory: a few blocks per worker, and 100 KB per signal, 20,000 sources and a few excerpts for each of `dolma_dask.engine.fold.MAX_TASKS` tasks.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import isolated, without_blank_lines
from dolma_dask.engine.fold import added
from dolma_dask.errors import DataError, UsageError
from dolma_dask.figures.histogram import Histogram
from dolma_dask.formats.documents import OPTIONAL
from dolma_dask.formats.exact_numbers import nearest
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.io import files
from dolma_dask.io.joined import NotJoinedError
from dolma_dask.io.records import InputRecord
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.pages.history import Origin, Step
from dolma_dask.pages.junk import Limit, boilerplate_shares, limits_of
from dolma_dask.pages.model import Example, Side
from dolma_dask.pages.words import dropped_by
from dolma_dask.reading.catalog import Catalog, check_clash
from dolma_dask.reading.columns import NUMERIC
from dolma_dask.reading.joined import is_joinable, read_joined
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.reading.selection import conjuncts, select, spelled_conjuncts
from dolma_dask.reading.sets import AttributeSets
from dolma_dask.rules.comparisons import comparison
from dolma_dask.rules.rules import And, Or, Required, Rule
from dolma_dask.rules.tally import Tally
from dolma_dask.rules.values import Name, once_each
from dolma_dask.rules.where import parse
from dolma_dask.text import compute as pc

EXCERPT_CHARACTERS = 600
"""Code points of a document that an example shows."""

LOOKED_AT = 8 * EXCERPT_CHARACTERS
"""Code points of a document in which its beginning is looked for, behind empty lines."""

EXAMPLES = 3
"""Documents that are shown on each side of each bound."""

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class Bound(Struct, frozen=True):
    """A condition that compares one signal with one number."""

    part: int  # number of the condition in the rule
    key: str
    sign: str  # operator as it reads with the signal on its left
    value: float

    def distance(self, example: Example) -> tuple[float, str, int]:
        """Return how far a document is from it, then its shard and row, so that equal distances have an order."""
        return abs(example.value - self.value), example.shard, example.row


def bounds_of(parts: Sequence[Rule]) -> tuple[Bound, ...]:
    """Return the conditions among `parts` that compare a column with a number, written either way round."""
    bounds = []
    for part, rule in enumerate(parts):
        found = comparison(rule)
        if found is not None and isinstance(found[0], Name):
            bounds.append(Bound(part, found[0].name, *found[1:]))
    return tuple(bounds)


def partial_bounds(parts: Sequence[Rule], key: str) -> tuple[tuple[str, float], ...]:
    """Return the bounds of a column that hold together with other conditions, such as those of groups: operators and numbers in order, each once."""
    inner = [rule for part in parts if comparison(part) is None for rule in _joined(part)]
    found = [one for one in map(comparison, inner) if one is not None and one[0] == Name(key)]
    return tuple(sorted({(sign, value) for _, sign, value in found}))


def _joined(rule: Rule) -> Iterator[Rule]:
    """Yield the conditions that a rule joins by and and or."""
    inner = rule.rules if isinstance(rule, And | Or) else (rule.rule,) if isinstance(rule, Required) else ()
    for one in inner:
        yield from _joined(one)
    if not inner:
        yield rule


class Findings(Struct):
    """Sums over rows, and the documents nearest to each bound."""

    examples: int = EXAMPLES  # documents to keep on each side of a bound
    rows: int = 0
    bad: int = 0  # rows that could not be read
    # by source; of no condition if the journal knows what they drop
    drops: Tally = msgspec.field(default_factory=lambda: Tally(0))
    # shard to the source of all its documents; those of several sources are left out
    single_sources: dict[str, str] = {}
    signals: dict[str, Histogram] = {}
    kept_signals: dict[str, Histogram] = {}  # of kept documents; none without a rule
    # nearest documents on both sides of a bound, in order
    near: dict[tuple[Bound, Side], list[Example]] = {}
    above: dict[Limit, int] = {}  # kept documents above each limit
    worst: dict[Limit, list[Example]] = {}  # of these, in order
    junk: int = 0  # kept documents above a limit or more, but for what many share
    # attribute sets that do not belong to some shard, and why; their signals are incomplete
    left_out: dict[str, str] = {}
    # files as they were read; those of sets that were left out have no checksum
    inputs: list[InputRecord] = []

    @property
    def documents(self) -> int:
        """Documents that could be read."""
        return self.rows - self.bad

    @property
    def text_bytes(self) -> int:
        """Bytes of text of all documents that could be read."""
        return self.drops.total[1]

    def __add__(self, other: "Findings") -> "Findings":
        near, worst = added(self.near, other.near), added(self.worst, other.worst)
        return Findings(
            self.examples,
            rows=self.rows + other.rows,
            bad=self.bad + other.bad,
            drops=self.drops + other.drops,
            single_sources=self.single_sources | other.single_sources,
            signals=added(self.signals, other.signals),
            kept_signals=added(self.kept_signals, other.kept_signals),
            near={line: sorted(both, key=line[0].distance)[: self.examples] for line, both in near.items()},
            above=added(self.above, other.above),
            worst={limit: sorted(both, key=limit.rank)[: self.examples] for limit, both in worst.items()},
            junk=self.junk + other.junk,
            left_out=other.left_out | self.left_out,
            inputs=self.inputs + other.inputs,
        )


class Survey(Struct, frozen=True):
    """Signals, conditions and bounds to count for a report; see `dolma_dask.engine.fold.Fold`."""

    keys: tuple[str, ...] = ()  # signals to count
    # conditions that all must hold for a document to be kept; none: nothing is selected
    parts: tuple[Rule, ...] = ()
    spelled: tuple[str, ...] = ()  # these as the user wrote them
    plain: tuple[str, ...] = ()  # the documents that each drops, in plain words
    bounds: tuple[Bound, ...] = ()  # conditions with a line to show examples of
    limits: tuple[Limit, ...] = ()  # numbers above which signals tell of junk
    examples: int = EXAMPLES  # documents to show on each side of each bound
    # attribute sets that the rule reads; any other is left out where it does not belong to the documents
    needed: frozenset[str] = frozenset()
    counts_drops: bool = True  # False: the journal knows what the conditions drop
    verb: ClassVar[str] = "report"

    @property
    def names(self) -> frozenset[str]:
        """Columns to read."""
        return frozenset(self.keys).union(*(part.names for part in self.parts))

    @property
    def cut(self) -> frozenset[str]:
        """Signals that the conditions read."""
        return frozenset[str]().union(*(part.names for part in self.parts)).intersection(self.keys)

    def start(self) -> Findings:
        """Return the findings of no rows."""
        return Findings(self.examples, drops=Tally(len(self.parts) if self.counts_drops else 0))

    def without(self, keys: Collection[str]) -> "Survey":
        """Return the survey without some signals."""
        limits = tuple(limit for limit in self.limits if limit.key not in keys)
        return replace(self, keys=tuple(key for key in self.keys if key not in keys), limits=limits)

    def count(self, work: AlignedShard) -> Findings:
        """Sum up one shard; again without a set that does not belong to it, unless the rule needs the set."""
        left_out: dict[str, str] = {}
        while True:
            try:
                return self._shard_without(left_out, work)
            except DataError as error:
                name = _set_of(error, work)
                if name is None or name in self.needed or name in left_out:
                    raise
                left_out[name] = str(error)

    def _shard_without(self, left_out: dict[str, str], work: AlignedShard) -> Findings:
        sources = tuple(source for source in work.sources if source.name not in left_out)
        others = [source for source in work.sources if source.name in left_out]
        survey = self.without({column for source in others for column in source.columns})
        findings = replace(survey.start(), left_out=left_out)
        rows = replace(work, sources=sources).open()
        for block in rows:
            batch = block.batch
            columns = {name: batch.column(name) for name in batch.schema.names if name != "text"}
            findings = findings + survey_block(survey, work.shard.path, block.first_row, batch, columns)
        if len(findings.drops.groups) == 1:
            findings.single_sources = {work.shard.path: next(iter(findings.drops.groups))}
        unread = (InputRecord(one.info.path, one.info.bytes, one.info.stamp, "") for one in others)
        findings.inputs += [*rows.state.inputs, *unread]
        return findings

    def count_joined(self, works: Sequence[AlignedShard]) -> Findings:
        """Sum up small shards as one block; see `dolma_dask.engine.fold.JoiningFold`."""
        # records that name the very bytes of both files say more than digests of rows
        plain = [replace(work, digests=False) for work in works]
        if not all(map(is_joinable, plain)):
            raise NotJoinedError("some shards are read alone")
        joined, inputs = read_joined(plain, MAX_RECORD_BYTES)
        batch, cuts = joined.rows.batch, joined.cuts.tolist()
        columns = {name: batch.column(name) for name in batch.schema.names if name != "text"}

        def place(row: int) -> tuple[str, int]:
            number = bisect_right(cuts, row) - 1
            return works[number].shard.path, row - cuts[number]

        findings = _survey_rows(self, place, batch, columns)
        findings.inputs = [item for each in inputs for item in each]
        sources = [batch.column("source")[part].unique().to_pylist() for part in joined.parts]
        findings.single_sources = {
            work.shard.path: names[0] or ""
            for work, names in zip(works, sources, strict=True)
            if len(names) == 1
        }
        return findings


def _set_of(error: DataError, work: AlignedShard) -> str | None:
    """Return the attribute set whose file an error is about."""
    name = error.details.get("attributes")
    files_of = {files.join(work.root, source.info.path): source.name for source in work.sources}
    return name if isinstance(name, str) else files_of.get(str(error.details.get("url")))


# ------------------------------------------------------------------------------------------------ one block


def survey_block(
    survey: Survey, shard: str, first_row: int, documents: pa.RecordBatch, columns: Mapping[str, pa.Array]
) -> Findings:
    """Sum up consecutive rows of a shard; `documents` have a null id where a row could not be read, `columns` are all that the survey names."""
    return _survey_rows(survey, lambda index: (shard, first_row + index), documents, columns)


def _survey_rows(
    survey: Survey,
    place: Callable[[int], tuple[str, int]],
    documents: pa.RecordBatch,
    columns: Mapping[str, pa.Array],
) -> Findings:
    """Sum up rows, each of which has its place, a shard and a row in it."""
    readable = pc.is_valid(documents.column("id")).to_numpy(zero_copy_only=False)
    holds = [part.mask(columns).to_numpy(zero_copy_only=False) & readable for part in survey.parts]
    held = np.sum(holds, axis=0, dtype=np.int64) if holds else np.zeros(len(readable), np.int64)
    kept = readable & (held == len(holds))
    # moving the bound of one condition would keep them
    alone = [readable & ~mask & (held == len(holds) - 1) for mask in holds]
    drops = survey.start().drops
    _count(drops, documents.filter(pa.array(readable)), [~mask[readable] for mask in holds])
    signals = {key: floats(columns[key]) for key in survey.keys}

    def example(kind: Side | Literal["above a limit"], rule: str, signal: str, index: int) -> Example:
        shard, row = place(index)
        return Example(
            kind=kind,
            rule=rule,
            signal=signal,
            value=float(signals[signal][index]),
            source=documents.column("source")[index].as_py() or "",
            id=documents.column("id")[index].as_py(),
            shard=shard,
            row=row,
            excerpt=excerpt(documents.column("text").slice(index, 1)),
        )

    near: dict[tuple[Bound, Side], list[Example]] = {}
    for bound in survey.bounds:
        values = signals[bound.key]
        sides: dict[Side, Bools] = {"just inside": kept, "just outside": alone[bound.part]}
        for side, rows in sides.items():
            near[bound, side] = [
                example(side, survey.spelled[bound.part], bound.key, index)
                for index in _nearest(survey.examples, bound, values, rows)
            ]
    # a comparison with NaN, which is no value, does not hold
    above = {limit: kept & (signals[limit.key] > limit.value) for limit in survey.limits}
    own = [rows for limit, rows in above.items() if not limit.is_shared]
    worst = {
        limit: [
            example("above a limit", f"{limit.key} <= {limit.value:g}", limit.key, index)
            for index in _largest(survey.examples, signals[limit.key], rows)
        ]
        for limit, rows in above.items()
    }
    return Findings(
        survey.examples,
        rows=len(readable),
        bad=int(len(readable) - readable.sum()),
        drops=drops,
        signals={key: Histogram.of(values[readable]) for key, values in signals.items()},
        kept_signals={key: Histogram.of(values[kept]) for key, values in signals.items()} if holds else {},
        near=near,
        above={limit: int(rows.sum()) for limit, rows in above.items()},
        worst=worst,
        junk=int(np.any([np.zeros_like(kept), *own], axis=0).sum()),
    )


def floats(column: pa.Array) -> Floats:
    """Return a column of numbers as float64, NaN where it is null."""
    numbers = pc.cast(nearest(column), pa.float64(), safe=False)
    values: Floats = pc.fill_null(numbers, math.nan).to_numpy(zero_copy_only=False)
    return values


def _count(drops: Tally, documents: pa.RecordBatch, dropped: Sequence[Bools]) -> None:
    """Count documents and their text by source, and what the conditions of `drops` drop of them."""
    rows = np.array(dropped[: drops.conditions], bool).reshape(drops.conditions, documents.num_rows)
    sizes = pc.binary_length(documents.column("text")).to_numpy()
    drops.count(rows, sizes, documents.column("source"))


def _nearest(count: int, bound: Bound, values: Floats, rows: Bools) -> list[int]:
    """Return the `count` rows among `rows` whose values are nearest to the bound."""
    indices = np.flatnonzero(rows & ~np.isnan(values))
    with np.errstate(over="ignore"):
        order = np.argsort(np.abs(values[indices] - bound.value), kind="stable")
    nearest: list[int] = indices[order[:count]].tolist()
    return nearest


def _largest(count: int, values: Floats, rows: Bools) -> list[int]:
    """Return the `count` rows among `rows` with the largest values."""
    indices = np.flatnonzero(rows)
    largest: list[int] = indices[np.argsort(-values[indices], kind="stable")[:count]].tolist()
    return largest


def excerpt(text: pa.Array) -> str:
    """Return the beginning of the only string of `text`, without empty lines before it, and with an ellipsis if there is more."""
    start: str = without_blank_lines(pc.utf8_slice_codeunits(text, 0, LOOKED_AT)[0].as_py())
    if len(start) <= EXCERPT_CHARACTERS:
        return start
    return start[:EXCERPT_CHARACTERS].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def left_out_notes(root: str, left_out: Mapping[str, str]) -> tuple[str, ...]:
    """Say which attribute sets of a dataset are left out, and why; the same wherever it lies."""
    return tuple(
        f"attribute set {isolated(name)} is left out: {error.replace(f'{root}/', '')}"
        for name, error in sorted(left_out.items())
    )


class View(Struct, frozen=True):
    """Reading for a page: shards, attribute sets, and fields of the metadata that the rule names."""

    dataset: Dataset
    sets: AttributeSets | None
    fields: Mapping[str, AttributeKind]
    survey: Survey
    notes: tuple[str, ...]

    @property
    def sets_of_keys(self) -> dict[str, str]:
        """Signals and the attribute sets that they are read from."""
        return {key: self.sets.columns[key][0] for key in self.survey.keys} if self.sets else {}

    def shards(self) -> list[AlignedShard]:
        """Return the shards with the columns that are read."""
        return [self._work(shard) for shard in self.dataset.shards]

    def _work(self, shard: Shard) -> AlignedShard:
        sources = self.sets.sources(shard, sorted(self.survey.names)) if self.sets else ()
        documents = ("id", "text", "source", *(name for name in OPTIONAL if name in self.survey.names))
        dataset = self.dataset
        return AlignedShard(
            dataset.root, shard, documents, sources, self.fields, dataset.source, digests=True, exact=True
        )


def make_view(origin: Origin, shown: Dataset, examples: int, dedupe: Step | None = None) -> View:
    """Decide what is read of the selected shards, showing `examples` documents on each side of a bound; `dedupe` is what that verb did there.

    Raises `UsageError` if there is no such number of examples, or if the rule names what is not there any more, and `MissingAttributesError`
    if a shard lacks an attribute file that the rule needs.
    """
    if isinstance(examples, bool) or not isinstance(examples, int) or examples < 0:
        raise UsageError(
            f"examples is {examples!r}; expected how many documents to show on each side of a bound."
        )
    written = parse(origin.where) if origin.where else None
    selection = select(shown, written, origin.attributes if written is not None else ())
    needed = tuple(selection.sets.files) if selection.sets else ()
    sets, notes = _open_sets(shown, needed)
    rule_names = selection.rule.names if selection.rule is not None else frozenset()
    kinds = {key: sets.kind(key) for key in _signals(sets, rule_names)} if sets else {}
    flags = sets.flags if sets else {}
    levels = [key for key, kind in kinds.items() if kind == "level" and key in rule_names]
    keys = [key for key, kind in kinds.items() if kind in NUMERIC and key not in flags] + levels
    parts = conjuncts(selection.rule)
    bounds = tuple(bound for bound in bounds_of(parts) if bound.key in keys)
    read = [key for key in keys if key in rule_names]
    keys = list(dict.fromkeys([*(bound.key for bound in bounds), *read, *keys]))  # what decides comes first
    spelled = spelled_conjuncts(selection.rule, written)  # with the short names that the user gave
    plain = tuple(dropped_by(part, flags) for part in parts)
    limits: tuple[Limit, ...] = ()
    if sets:
        boilerplate = boilerplate_shares(sets.files, dedupe)
        limits = limits_of((key for key in keys if key in sets.columns), sets.columns, boilerplate)
    survey = Survey(tuple(keys), parts, spelled, plain, bounds, limits, examples, frozenset(needed))
    return View(shown, sets, selection.fields, survey, notes)


def _signals(sets: AttributeSets, rule_names: frozenset[str]) -> list[str]:
    """Return a name of each column: that in the rule, else the shortest."""
    in_rule = {sets.columns[name]: name for name in rule_names & sets.columns.keys()}
    return [in_rule.get(sets.columns[name], name) for name in once_each(sets.columns)]


def _open_sets(dataset: Dataset, needed: Sequence[str]) -> tuple[AttributeSets | None, tuple[str, ...]]:
    """Open all attribute sets; one that the rule does not need may be unfinished or clash, and is left out then with a note."""
    catalog = Catalog(dataset)
    taken, kinds = list(needed), {name: catalog.kinds(name) for name in needed}
    left_out: dict[str, str] = {}
    for name in dataset.attributes:
        if name in needed:
            continue
        try:
            own = catalog.open([name]).kinds[name]
            check_clash({**kinds, name: own}, own)
        except (DataError, UsageError) as error:
            left_out[name] = str(error)
        else:
            taken.append(name)
            kinds[name] = own
    return (catalog.open(taken) if taken else None), left_out_notes(dataset.root, left_out)
