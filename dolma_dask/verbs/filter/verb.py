"""filter: per document and rule, the number of levels of thresholds that it passes, so that nothing is computed again when another level is chosen.

Signals are read once, and no text where attributes alone hold them. Each document gets one number of at most 17 rules (`dolma_dask.formats.levels`). Memory:
a few blocks per worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Annotated, Any

from dolma_dask.dataset import Dataset
from dolma_dask.engine import run_job
from dolma_dask.errors import UsageError
from dolma_dask.exchange.flagging import check_written
from dolma_dask.formats import layout
from dolma_dask.options.base import OUTPUT, WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, Format, WithAttributes
from dolma_dask.options.records import RecordOptions
from dolma_dask.reading.columns import find_columns
from dolma_dask.reading.quantiles import QuantilesSummary
from dolma_dask.reading.signals import check_signal
from dolma_dask.reading.thresholds import (
    QUANTILES,
    check_name,
    quantiles_path,
    read_thresholds,
    tails_in_words,
)
from dolma_dask.reading.thresholds import thresholds as thresholds_from
from dolma_dask.rules.levels import Levels
from dolma_dask.rules.strictness import LEVELS
from dolma_dask.rules.thresholds import NullPolicy, Thresholds
from dolma_dask.verbs.filter.job import Filtering, LevelOutput
from dolma_dask.verbs.filter.summary import FilterSummary

ThresholdsOfLevels = Sequence[str | Thresholds] | str | Thresholds | QuantilesSummary | None
"""Files of thresholds or thresholds, the loosest first; or quantiles, of which all four levels are taken."""


@dataclass(frozen=True, kw_only=True)
class FilterOptions(DatasetOptions, RecordOptions):
    """Options of `filter`."""

    unrecorded = frozenset({"attributes"})

    quantiles: Annotated[
        str | None,
        Opt(
            "Quantiles in place of thresholds: the name of quantiles of the dataset, or a file of quantiles; all four levels are taken of them: regular, "
            'strict, even_stricter and strictest. By default "quantiles".'
        ),
    ] = None
    tails: Annotated[
        Mapping[str, str] | Sequence[str],
        Opt(
            "Ends of the distribution of a signal that are cut, as NAME=lower, NAME=upper or NAME=both, or {name: tail}; by default as for "
            "quantiles.",
            may_be_empty=True,
        ),
    ] = ()
    nulls: Annotated[
        NullPolicy | None,
        Opt(
            "A document without a value of a signal passes no level of its rule, all levels of its group, or is an error; by default as the "
            "thresholds say, of quantiles none."
        ),
    ] = None
    name: Annotated[str, Opt("Attribute set to write.", group=OUTPUT)] = "quality"
    attributes: Annotated[
        Sequence[str], Opt("Attribute sets to look for signals in; by default all.", group=WHAT)
    ] = ()
    format: Format = None

    def check(self) -> None:
        """Refuse a name that is none of a folder."""
        super().check()
        layout.check_name(self.name, "name")


@command
def filter(
    dataset: WithAttributes,
    /,
    thresholds: Annotated[
        ThresholdsOfLevels,
        Opt(
            "Files of thresholds (quantiles --level), one for each level from the loosest to the strictest. From Python also thresholds, or what "
            "quantiles returned."
        ),
    ] = None,
    *,
    options: FilterOptions,
) -> FilterSummary:
    """Write how many levels of thresholds each document passes, in each rule, beside the documents.

    Example: dolma-dask filter corpus/wiki/v0 --quantiles quantiles --name quality

    Returns
    -------
    FilterSummary
        With the documents that each rule keeps at each level, and all rules together, by group.

    Raises
    ------
    StageError
        Some shards failed.
    UsageError
        There are no such thresholds, or a signal of theirs is missing; bounds of a level are not inside of those before; or an argument is unknown, or has
        a value that it cannot have.

    Notes
    -----
    Readers see a column NAME.SIGNAL for each signal, from 0 to 4 (1: it passes regular, 4: strictest too), and NAME.level, the least of all rules:
    mix --where "quality.level >= 2 and quality.perplexity >= 3". Bounds are inclusive. When signals are made again, the levels made before are
    refused by readers until filter has run; quantiles that are made again change no level before that.
    """
    found = options.open(dataset)
    layout.check_no_collision([layout.with_format(shard.path, options.format) for shard in found.shards])
    tails = tails_in_words(options.tails)
    levels = Levels.of(_all_levels(found, thresholds, options.quantiles, tails), options.nulls)
    columns = find_columns(found, levels.columns, options.attributes)
    levels = levels.renamed(dict(zip(levels.columns, columns.names, strict=True)))
    check_written(columns, options.name)
    for rule in levels.rules:
        check_signal(columns, rule.signal)
    job = Filtering(
        dataset=found,
        selected=options.selected(found),
        columns=columns,
        output=LevelOutput(found.root, options.name, levels),
        policy=options.policy,
        file_format=options.format,
        params=options.params(thresholds=_files_of(thresholds), tails=dict(tails)),
    )
    return run_job(job, options)


def _all_levels(
    dataset: Dataset, thresholds: ThresholdsOfLevels, quantiles: str | None, tails: Mapping[str, str]
) -> list[Thresholds]:
    """Return the thresholds of each level, the loosest first."""
    if thresholds is None or thresholds == () or isinstance(thresholds, QuantilesSummary):
        given: Any = (
            thresholds if isinstance(thresholds, QuantilesSummary) else _quantiles_of(dataset, quantiles)
        )
        return [thresholds_from(given, level, tails=tails) for level in LEVELS]
    if quantiles is not None or tails:
        raise UsageError(
            "thresholds were given, with quantiles or tails, of which thresholds are made; expected the one or the other."
        )
    return [_read(one) for one in _listed(thresholds)]


def _quantiles_of(dataset: Dataset, quantiles: str | None) -> str:
    """Return where quantiles stand that are given by their name in the dataset, or as a file."""
    name = quantiles or QUANTILES
    return name if name.endswith(".json") else dataset.url(quantiles_path(check_name(name)))


def _listed(thresholds: Any) -> list[Any]:
    return list(thresholds) if isinstance(thresholds, list | tuple) else [thresholds]


def _files_of(thresholds: Any) -> list[str]:
    """Return the files among thresholds, for the journal."""
    return [fspath(one) for one in _listed(thresholds) if isinstance(one, str | PathLike)]


def _read(one: Any) -> Thresholds:
    if isinstance(one, Thresholds):
        return one
    if isinstance(one, str | PathLike):
        return read_thresholds(fspath(one))
    raise UsageError(
        f"thresholds={one!r} is of type {type(one).__name__}; expected files that quantiles --level wrote, what thresholds() returns, or what quantiles "
        "returned."
    )
