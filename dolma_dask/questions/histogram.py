"""histogram: how the values of a signal are spread, for all documents, for those that a rule keeps, and by group.

Attribute columns alone are read, in one pass. The counts are exact: bins can be added up over shards before the range of the values is known
(`dolma_dask.figures.histogram`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.display import counted, last_name, percent
from dolma_dask.engine.fold import added, fold, mask_of, readable_rows, shards_of
from dolma_dask.figures.figure import Figure
from dolma_dask.figures.histogram import Histogram, display_edges, signal_histogram
from dolma_dask.figures.model import SignalHistogram
from dolma_dask.formats.exact_numbers import floats, nearest
from dolma_dask.options.base import WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import QuestionOptions, WithAttributes
from dolma_dask.options.kept import KeptOptions, RuleLike, rule_of
from dolma_dask.options.pictures import PictureOptions
from dolma_dask.ownership import dataset_notes
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.reading.rule_ends import Ends, ends_of
from dolma_dask.reading.selection import select
from dolma_dask.reading.signals import find_signals
from dolma_dask.rules.groups import MAX_GROUPS, Groups, too_many
from dolma_dask.rules.labels import BETWEEN
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.signal_names import short_name
from dolma_dask.rules.thresholds import shown_by

MAX_PANELS = 8
"""Groups with a panel of their own; where there are more, the last panel is of all others."""

AT_ONCE = 1 << 20
"""Values that are sorted into bins together."""

WITHOUT = "(no value)"
"""Name of the panel of the documents without a group."""

OTHERS = "(others)"


@dataclass(frozen=True, kw_only=True)
class HistogramOptions(PictureOptions, KeptOptions, QuestionOptions):
    """Options of `histogram`."""

    where: Annotated[
        RuleLike,
        Opt(
            "Rule, as in mix, or thresholds: what it keeps stands before all values, and its bounds of this signal are dashed lines.",
            kind="str",
            convert=rule_of,
        ),
    ] = None
    by: Annotated[
        Sequence[str] | str | None,
        Opt(
            "Column with a value for each group, or several, as in quantiles: a panel for each of the largest groups, with the same bins."
        ),
    ] = None
    log: Annotated[
        bool | None,
        Opt(
            "Space bins by powers of ten; by default where most values would share a few bins.",
            expected="True, False or None",
        ),
    ] = None
    attributes: Annotated[Sequence[str], Opt("Attribute sets to look in; by default all.", group=WHAT)] = ()


@command
def histogram(
    dataset: WithAttributes,
    signal: Annotated[
        str,
        Opt(
            "Attribute key (a unique ending is enough, set/ending for one of several sets), metadata.<field>, or a metric such as number_of_words, with one number per document."
        ),
    ],
    /,
    *,
    options: HistogramOptions,
) -> Figure:
    """Count the values of a signal in bins: of all documents, of those that a rule keeps, and by group.

    Example: dolma-dask histogram corpus/wiki/v0 word_count --to words.svg

    Returns
    -------
    Figure
        Shows itself in a notebook and prints as a table; ``frame()`` has its numbers, and ``save("words.png")`` writes PNG, SVG or HTML.

    Raises
    ------
    UsageError
        There is no such column, it has not one number per document, the rule cannot be read, or the shards together have more than 1,000 values of `by`.
    StageError
        Some shards could not be read, for example because attributes do not line up or one alone has more than 1,000 values of `by`.

    Notes
    -----
    Documents that could not be read are not counted. A document without a value is in no bin, and counts as kept or not like any other.

    Examples
    --------
    >>> words = dk.histogram("corpus/v0", "word_count", where="word_count >= 50", by="source")  # doctest: +SKIP
    >>> words.frame()[["panel", "from", "documents", "kept_documents"]]  # doctest: +SKIP
    """
    part, sets = options.selected(options.open(dataset)), tuple(options.attributes)
    options.check_outside(part.root)
    rule = select(part, options.where, sets).rule
    columns, (name,), groups = find_signals(part, [signal], options.by, sets, rule, sampled=False)
    label = groups if not isinstance(groups, tuple) else BETWEEN.join(groups)
    counting = CountValues(name, rule, label)
    counts = fold(counting, shards_of(columns), options).by_group
    panels, others = _panels(
        short_name(name), counts, label, ends_of(rule, columns, name, groups), options.log
    )
    total = sum(counts.values(), Spread.of(rule))
    figure = Figure(
        short_name(name) + (f" by {shown_by(groups)}" if groups else ""),
        panels,
        short_name(name),
        (f"{last_name(part.root)}: {total}", *others, *dataset_notes(part)),
    )
    return options.save(figure)


class Spread(Struct, frozen=True):
    """Values of some documents, and those of the kept ones; None without a rule."""

    every: Histogram
    kept: Histogram | None = None

    @classmethod
    def of(cls, rule: Rule | None) -> "Spread":
        """Return the values of no documents."""
        return cls(Histogram(), None if rule is None else Histogram())

    def __add__(self, other: "Spread") -> "Spread":
        both = self.kept is not None and other.kept is not None
        return Spread(self.every + other.every, self.kept + other.kept if both else None)  # type: ignore[operator]

    @property
    def documents(self) -> int:
        """Documents, those without a value included."""
        return self.every.n + self.every.nulls

    def __str__(self) -> str:
        every = self.every
        parts = [counted(self.documents, "document")]
        parts += [f"{every.nulls:,} without a value"] if every.nulls else []
        parts += [f"{every.infinite:,} infinite"] if every.infinite else []
        if self.kept is not None:
            kept = self.kept.n + self.kept.nulls
            parts.append(f"{kept:,} kept ({percent(kept, self.documents)})")
        return ", ".join(parts)


Codes = npt.NDArray[np.uint16]
Bools = npt.NDArray[np.bool_]


class Spreads(Struct, frozen=True):
    """Values by group; None stands for documents without one."""

    label: str | None  # column of the groups
    by_group: Mapping[str | None, Spread] = {}

    def __add__(self, other: "Spreads") -> "Spreads":
        both = added(self.by_group, other.by_group)
        if len(both) > MAX_GROUPS + 1:
            raise too_many(self.label or "")
        return Spreads(self.label, both)


class CountValues(Struct, frozen=True):
    """Counts the values of shards by group; see `dolma_dask.engine.fold.Fold`."""

    signal: str  # full name of its column
    rule: Rule | None  # over full names
    label: str | None  # column of the groups
    verb: ClassVar[str] = "histogram"

    def start(self) -> Spreads:
        """Return the counts of no shards."""
        return Spreads(self.label)

    def count(self, shard: AlignedShard) -> Spreads:
        """Count the values of one shard."""
        groups = Groups(self.label) if self.label else None
        counts: dict[int, Spread] = {}
        for values, codes, kept in _large(self._blocks(shard, groups)):
            for code in np.unique(codes).tolist():
                mine = codes == code
                held = Histogram.of(values[mine & kept]) if self.rule is not None else None
                counts[code] = counts.get(code, Spread.of(self.rule)) + Spread(
                    Histogram.of(values[mine]), held
                )
        labels = [None, *(groups.labels if groups else [])]
        return Spreads(self.label, {labels[code]: spread for code, spread in counts.items()})

    def _blocks(self, shard: AlignedShard, groups: Groups | None) -> Iterator[tuple[Any, ...]]:
        """Yield values, codes of groups, and which rows are kept."""
        for batch in readable_rows(shard):
            count = batch.num_rows
            codes = (
                np.zeros(count, np.uint16)
                if groups is None
                else groups.codes(nearest(batch.column(groups.by)))
            )
            kept = np.ones(count, np.bool_)
            if self.rule is not None:
                kept = mask_of(self.rule, batch).to_numpy(zero_copy_only=False)
            yield floats(batch.column(self.signal)), codes, kept


def _large(blocks: Iterator[tuple[Any, ...]]) -> Iterator[list[Any]]:
    """Join the columns of consecutive blocks until there are `AT_ONCE` rows."""
    waiting: list[tuple[Any, ...]] = []
    rows = 0
    for block in blocks:
        waiting.append(block)
        rows += len(block[0])
        if rows >= AT_ONCE:
            yield [np.concatenate(parts) for parts in zip(*waiting, strict=True)]
            waiting, rows = [], 0
    if waiting:
        yield [np.concatenate(parts) for parts in zip(*waiting, strict=True)]


def _panels(
    signal: str,
    counts: Mapping[str | None, Spread],
    label: str | None,
    ends: Sequence[Ends],
    log: bool | None,
) -> tuple[tuple[SignalHistogram, ...], tuple[str, ...]]:
    """Return a panel for each of the largest groups, all with the same bins, and one for the others, with a note on these."""
    order = sorted(counts, key=lambda group: (-counts[group].documents, group or ""))
    shown = order if len(order) <= MAX_PANELS else order[: MAX_PANELS - 1]
    unnamed = WITHOUT if label else signal
    parts = [(unnamed if group is None else group, group, counts[group]) for group in shown]
    notes: tuple[str, ...] = ()
    if rest := order[len(shown) :]:
        every = [counts[group] for group in rest]
        parts.append((OTHERS, None, sum(every[1:], every[0])))
        notes = (f"{OTHERS}: {counted(len(rest), 'group')} of fewer documents, together",)
    spreads = [spread for _, _, spread in parts] or [Spread(Histogram())]
    bins = display_edges(sum(spreads[1:], spreads[0]).every, log)
    panels = (
        signal_histogram(
            name,
            spread.every,
            spread.kept,
            tuple(dict.fromkeys(end.bound for end in ends if end.group in (None, group))),
            bins,
        )
        for name, group, spread in parts
    )
    return tuple(panels), notes
