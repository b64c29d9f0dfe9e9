"""What one pass over documents and their signals finds, small enough to be sent and added up over any number of shards.

Per signal a histogram of all values and one of the kept ones, counts per source and per condition, and for every condition of the form
``name op number`` the documents nearest to its bound. The sum depends neither on the order of shards nor on how they are cut into
blocks, as long as there are no more than 10,000 sources. Memory: at most 100 KB per signal, 20,000 sources, and a few excerpts.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.rules.rules import Compare, Rule
from dolma_dask.rules.values import Literal, Name
from dolma_dask.verbs.report.histogram import Histogram
from dolma_dask.verbs.report.model import Side

EXCERPT_CHARACTERS = 600
"""Code points of a document that an example shows."""

COUNTED_SOURCES = 10_000
"""Sources that are told apart while counting, at least; the smallest of more are put together."""

OTHER_SOURCES = "(other sources)"

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bound:
    """A condition that compares one signal with one number.

    Attributes
    ----------
    part : int
        Number of the condition in the rule.
    key : str
        The signal.
    sign : str
        Operator as it reads with the signal on its left.
    value : float
        The number.
    """

    part: int
    key: str
    sign: str
    value: float


def bounds_of(parts: Sequence[Rule]) -> tuple[Bound, ...]:
    """Return the conditions among `parts` that compare a column with a number, written either way round."""
    found = ((part, _bound(rule)) for part, rule in enumerate(parts))
    return tuple(Bound(part, *bound) for part, bound in found if bound is not None)


def _bound(rule: Rule) -> tuple[str, str, float] | None:
    match rule:
        case Compare(sign, Name(key), Literal(value, kind="number")):
            return key, sign, float(value)
        case Compare(sign, Literal(value, kind="number"), Name(key)):
            return key, _MIRRORED[sign], float(value)
    return None


@dataclass(frozen=True)
class Survey:
    """What to look for; the same for all shards.

    Attributes
    ----------
    keys : tuple of str
        Signals to count.
    parts : tuple of Rule
        Conditions that all must hold for a document to be kept; none: nothing is selected.
    bounds : tuple of Bound
        Conditions with a line to show examples of.
    examples : int
        Documents to show on each side of each line.
    """

    keys: tuple[str, ...] = ()
    parts: tuple[Rule, ...] = ()
    bounds: tuple[Bound, ...] = ()
    examples: int = 3

    @property
    def names(self) -> frozenset[str]:
        """Columns to read."""
        return frozenset(self.keys).union(*(part.names for part in self.parts))


@dataclass(frozen=True, order=True)
class Candidate:
    """A document near a bound; sorts by distance, then by shard and row."""

    distance: float
    shard: str
    row: int
    value: float = field(compare=False)
    source: str = field(compare=False)
    id: str = field(compare=False)
    excerpt: str = field(compare=False)


@dataclass(frozen=True)
class Values:
    """One signal: all its values, and those of kept documents."""

    every: Histogram = field(default_factory=Histogram)
    kept: Histogram = field(default_factory=Histogram)

    def __add__(self, other: "Values") -> "Values":
        return Values(self.every + other.every, self.kept + other.kept)


@dataclass
class Findings:
    """What was found so far.

    Attributes
    ----------
    rows, bad : int
        All rows, and those that could not be read.
    kept : int
        Documents for which all conditions hold.
    matched : dict of int to int
        Condition to the documents for which it holds.
    sources : dict of str to ndarray of int64, shape (4,)
        Documents, bytes of text, kept documents, bytes of kept text.
    signals : dict of str to Values
        By key.
    near : dict of (int, Side) to list of Candidate
        Number of the condition and side of its line to the nearest documents, in order.
    left_out : dict of str to str
        Attribute sets that do not belong to some shard, and why; their signals are incomplete.
    """

    rows: int = 0
    bad: int = 0
    kept: int = 0
    matched: dict[int, int] = field(default_factory=dict)
    sources: dict[str, Ints] = field(default_factory=dict)
    signals: dict[str, Values] = field(default_factory=dict)
    near: dict[tuple[int, Side], list[Candidate]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def text_bytes(self) -> int:
        """Bytes of text of all documents that could be read."""
        return int(sum(counts[1] for counts in self.sources.values()))

    def add(self, other: "Findings", examples: int) -> None:
        """Take up what was found elsewhere, keeping `examples` documents on each side of a line."""
        self.rows += other.rows
        self.bad += other.bad
        self.kept += other.kept
        for name, why in other.left_out.items():
            self.left_out.setdefault(name, why)
        for part, count in other.matched.items():
            self.matched[part] = self.matched.get(part, 0) + count
        for key, values in other.signals.items():
            self.signals[key] = self.signals[key] + values if key in self.signals else values
        for place, nearest in other.near.items():
            self.near[place] = heapq.nsmallest(examples, [*self.near.get(place, ()), *nearest])
        for source, counts in other.sources.items():
            self.sources[source] = self.sources[source] + counts if source in self.sources else counts
        if len(self.sources) > 2 * COUNTED_SOURCES:
            self.sources = largest_sources(self.sources, COUNTED_SOURCES)


def largest_sources(sources: Mapping[str, Ints], most: int) -> dict[str, Ints]:
    """Return the sources with most documents, largest first, and the sum of the others under `OTHER_SOURCES` at the end."""
    named = [source for source in sources if source != OTHER_SOURCES]
    order = sorted(named, key=lambda source: (-int(sources[source][0]), source))
    rest = [
        sources[source] for source in (*order[most:], *([OTHER_SOURCES] if OTHER_SOURCES in sources else ()))
    ]
    shown = {source: sources[source] for source in order[:most]}
    return {**shown, OTHER_SOURCES: np.sum(rest, axis=0)} if rest else shown


# ------------------------------------------------------------------------------------------------ looking at a block


def look_at(
    survey: Survey, shard: str, first_row: int, documents: pa.RecordBatch, columns: Mapping[str, pa.Array]
) -> Findings:
    """Look at consecutive rows of a shard.

    Parameters
    ----------
    survey : Survey
        What to look for.
    shard, first_row
        Where the rows stand.
    documents : pyarrow.RecordBatch
        (n,) with ``id``, ``source`` and ``text``; the id is null in rows that could not be read.
    columns : Mapping[str, pyarrow.Array]
        (n,) each: all that the rule names, and the signals.

    Returns
    -------
    Findings
    """
    readable = pc.is_valid(documents.column("id")).to_numpy(zero_copy_only=False)
    holds = [part.mask(columns).to_numpy(zero_copy_only=False) & readable for part in survey.parts]
    held = np.sum(holds, axis=0, dtype=np.int64) if holds else np.zeros(len(readable), np.int64)
    kept = readable & (held == len(holds))
    signals = {key: floats(columns[key]) for key in survey.keys}
    near: dict[tuple[int, Side], list[Candidate]] = {}
    for bound in survey.bounds:
        # outside are those that this condition alone drops: moving its bound would keep them
        sides: dict[Side, Bools] = {
            "just inside": kept,
            "just outside": readable & ~holds[bound.part] & (held == len(holds) - 1),
        }
        for side, rows in sides.items():
            found = _nearest(survey.examples, bound, signals[bound.key], rows)
            near[bound.part, side] = [_candidate(*item, shard, first_row, documents) for item in found]
    return Findings(
        rows=len(readable),
        bad=int(len(readable) - readable.sum()),
        kept=int(kept.sum()),
        matched={part: int(mask.sum()) for part, mask in enumerate(holds)},
        sources=_by_source(documents, readable, kept),
        signals={key: _values(values, readable, kept if holds else None) for key, values in signals.items()},
        near=near,
    )


def floats(column: pa.Array) -> Floats:
    """Return a column of numbers as float64, NaN where it is null."""
    numbers = pc.cast(column, pa.float64(), safe=False)
    values: Floats = pc.fill_null(numbers, math.nan).to_numpy(zero_copy_only=False)
    return values


def _values(values: Floats, readable: Bools, kept: Bools | None) -> Values:
    every = Histogram.of(values if readable.all() else values[readable])
    return Values(every, Histogram() if kept is None else Histogram.of(values[kept]))


def _by_source(documents: pa.RecordBatch, readable: Bools, kept: Bools) -> dict[str, Ints]:
    encoded = pc.fill_null(documents.column("source").filter(pa.array(readable)), "").dictionary_encode()
    codes = encoded.indices.to_numpy()
    sizes = pc.binary_length(documents.column("text").filter(pa.array(readable))).to_numpy()
    stays = kept[readable]
    names = encoded.dictionary.to_pylist()
    counts = np.zeros((len(names), 4), np.int64)
    for column, weights in enumerate((np.ones_like(sizes), sizes, stays, sizes * stays)):
        counts[:, column] = np.bincount(codes, weights, len(names))  # exact below 2 ** 53
    return dict(zip(names, counts, strict=True))


def _nearest(count: int, bound: Bound, values: Floats, rows: Bools) -> list[tuple[float, int, float]]:
    """Return distance, row and value of the `count` rows among `rows` whose values are nearest to the bound."""
    places = np.flatnonzero(rows & ~np.isnan(values))
    with np.errstate(over="ignore"):
        distances = np.abs(values[places] - bound.value)
    order = np.argsort(distances, kind="stable")[:count]
    return [(float(distances[i]), int(places[i]), float(values[places[i]])) for i in order]


def _candidate(
    distance: float, place: int, value: float, shard: str, first_row: int, documents: pa.RecordBatch
) -> Candidate:
    source, identity = (documents.column(name)[place].as_py() for name in ("source", "id"))
    text = excerpt(documents.column("text").slice(place, 1))
    return Candidate(distance, shard, first_row + place, value, source or "", identity, text)


def excerpt(text: pa.Array) -> str:
    """Return the beginning of the only string of `text`, with an ellipsis if there is more."""
    start: str = pc.utf8_slice_codeunits(text, 0, EXCERPT_CHARACTERS + 1)[0].as_py()
    if len(start) <= EXCERPT_CHARACTERS:
        return start
    return start[:EXCERPT_CHARACTERS].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
