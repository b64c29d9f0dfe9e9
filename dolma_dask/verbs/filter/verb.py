"""filter: per document and rule, the number of levels of thresholds that it passes, so that nothing is computed again when another level is chosen.

Signals are read once, and no text where attributes alone hold them. Each document gets one number of at most 17 rules (`dolma_dask.formats.levels`). Memory:
a few blocks per worker.
"""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Annotated, Any, Unpack

from dolma_dask.dataset import Dataset
from dolma_dask.engine import run_job
from dolma_dask.errors import UsageError
from dolma_dask.exchange.flagging import check_written
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.options.shared import (
    DatasetLike,
    Many,
    RecordArgs,
    as_dataset,
    check_format,
    checked,
    record_policy,
    run_options,
    selected,
    without_empty,
    words_of,
)
from dolma_dask.reading import find_columns
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


def filter(
    dataset: DatasetLike,
    /,
    thresholds: Annotated[ThresholdsOfLevels, Many] = None,
    *,
    quantiles: str | None = None,
    tails: Annotated[Mapping[str, str] | Sequence[str], Many] = (),
    nulls: NullPolicy | None = None,
    name: str = "quality",
    attributes: Annotated[Sequence[str], Many] = (),
    format: FileFormat | None = None,
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[RecordArgs],
) -> FilterSummary:
    """Write how many levels of thresholds each document passes, in each rule, beside the documents.

    Example: dolma-dask filter corpus/wiki/v0 --quantiles quantiles --name quality

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    thresholds : list of str, optional
        Files of thresholds (quantiles --level), one for each level from the loosest to the strictest. From Python also thresholds, or what quantiles
        returned.
    quantiles : str, optional
        In place of thresholds: the name of quantiles of the dataset, or a file of quantiles; all four levels are taken of them: regular, strict,
        even_stricter and strictest. By default "quantiles".
    tails : list of str, optional
        Ends of the distribution of a signal that are cut, as NAME=lower, NAME=upper or NAME=both, or {name: tail}; by default as for quantiles.
    nulls : {"drop", "keep", "fail"}, optional
        A document without a value of a signal passes no level of its rule, all levels of its group, or is an error; by default as the thresholds say, of
        quantiles none.
    name : str
        Attribute set to write.
    attributes : list of str, optional
        Attribute sets to look for signals in; by default all.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

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
    options = checked(filter, options, RecordArgs)
    check_format(format)
    layout.check_name(name, "name")
    found = as_dataset(dataset, source, version)
    layout.check_no_collision([layout.with_format(shard.path, format) for shard in found.shards])
    levels = Levels.of(_all_levels(found, thresholds, quantiles, tails), nulls)
    columns = find_columns(found, levels.columns, words_of("attributes", attributes))
    levels = levels.renamed(dict(zip(levels.columns, columns.names, strict=True)))
    check_written(columns, name)
    for rule in levels.rules:
        check_signal(columns, rule.signal)
    job = Filtering(
        dataset=found,
        selected=selected(found, options),
        columns=columns,
        output=LevelOutput(found.root, name, levels),
        policy=record_policy(options),
        file_format=format,
        params=without_empty(
            {
                "thresholds": _files_of(thresholds),
                "quantiles": quantiles,
                "tails": dict(tails_in_words(tails)),
                "nulls": nulls,
                "name": name,
                "format": format,
                "source": source,
            }
        ),
    )
    return run_job(job, run_options(options))


def _all_levels(
    dataset: Dataset,
    thresholds: ThresholdsOfLevels,
    quantiles: str | None,
    tails: Mapping[str, str] | Sequence[str],
) -> list[Thresholds]:
    """Return the thresholds of each level, the loosest first."""
    if thresholds is None or thresholds == () or isinstance(thresholds, QuantilesSummary):
        given: Any = (
            thresholds if isinstance(thresholds, QuantilesSummary) else _quantiles_of(dataset, quantiles)
        )
        return [thresholds_from(given, level, tails=tails_in_words(tails)) for level in LEVELS]
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
