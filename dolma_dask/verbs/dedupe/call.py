"""A call of `dedupe` as jobs: the columns that decide are found in each of its datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dolma_dask.dataset import Dataset
from dolma_dask.display import listed
from dolma_dask.errors import UsageError
from dolma_dask.exchange.flag_rows import COLUMNS
from dolma_dask.exchange.flagging import check_written
from dolma_dask.reading.columns import Columns, find_columns
from dolma_dask.reading.selection import select
from dolma_dask.verbs.dedupe.choice import Choice
from dolma_dask.verbs.dedupe.fuzzy import FuzzyDeduplication
from dolma_dask.verbs.dedupe.job import Deduplication, ExactDeduplication
from dolma_dask.verbs.dedupe.minhash_tables import find_tables
from dolma_dask.verbs.dedupe.options import DedupeOptions
from dolma_dask.verbs.dedupe.shards import KeyRecipe


def jobs_of(datasets: Sequence[Dataset], options: DedupeOptions) -> list[Deduplication]:
    """Return the job of each dataset; the first one does the work.

    Raises `UsageError`: a column has not one value per document, is written itself, or is another one elsewhere.
    """
    roots = [dataset.root for dataset in datasets]
    jobs = [_job(dataset, roots[1:], options) for dataset in datasets]
    for other in jobs[1:]:
        _check_same_columns(jobs[0], other)
    if len(jobs) == 1:
        return jobs
    return [replace(job, call=tuple(jobs), number=number) for number, job in enumerate(jobs)]


def _job(dataset: Dataset, others: Sequence[str], options: DedupeOptions) -> Deduplication:
    columns, choice, column = _resolved(dataset, options)
    check_written(columns, options.set_name)
    common: dict[str, Any] = {
        "dataset": dataset,
        "selected": options.selected(dataset),
        "columns": columns,
        "name": options.set_name,
        "file_format": options.format,
        "policy": options.policy,
        "shuffle": options.shuffle,
        "params": options.params_of(others),
    }
    if options.how == "exact":
        return ExactDeduplication(**common, recipe=KeyRecipe(column, choice))
    comparison, published = options.comparison, None
    if options.signatures is not None:
        paths = (shard.path for shard in dataset.shards)
        published = find_tables(dataset.root, options.signatures, comparison.minhash, paths)
    return FuzzyDeduplication(**common, comparison=comparison, choice=choice, published=published)


def _resolved(dataset: Dataset, options: DedupeOptions) -> tuple[Columns, Choice, str]:
    """Find the columns that decide; return them, and the choice and the column `by` with their full names."""
    by, choice, sets = options.by, options.choice, options.attributes
    requested = [*COLUMNS, *(name for name in (by, choice.rank, choice.within) if name)]
    requested = list(dict.fromkeys(requested))
    columns = find_columns(dataset, requested, sets)
    full = dict(zip(requested, columns.names, strict=True))
    rank, within = (full.get(name or "") for name in (choice.rank, choice.within))
    _check_kinds({name: columns.kinds[full[name]] for name in requested}, by, choice)
    rule = None if options.where is None else select(dataset, options.where, sets).rule
    choice = replace(choice, rank=rank, within=within, where=rule)
    every = list(dict.fromkeys([*columns.names, *choice.names]))
    if len(every) > len(columns.names):
        columns = find_columns(dataset, every, sets)
    return columns, choice, full[by]


def _check_same_columns(first: Deduplication, other: Deduplication) -> None:
    """Refuse datasets in which other columns, or columns of other kinds, have the names that decide."""
    one, another = ({(name, job.columns.kinds[name]) for name in job.columns.names} for job in (first, other))
    names = {name for name, _ in one ^ another}
    if names:
        raise UsageError(
            f"{other.root} and {first.root} do not have the same columns of the requested names, or not of one kind: {listed(sorted(names))}; expected "
            "the same in all datasets. Give their full names, or tag both alike."
        )


_NUMBERS = ("document", "number", "dict", "bool")
_VALUES = ("text", "string", *_NUMBERS)
"""Kinds of columns that have one value per document."""


def _check_kinds(kinds: Mapping[str, str], by: str, choice: Choice) -> None:
    for option, name in (("by", by), ("within", choice.within)):
        if name is not None and kinds[name] not in _VALUES:
            raise UsageError(
                f"{option}={name!r} has many spans per document; expected one value per document: text, id, another field, or a key with one value."
            )
    rank = choice.rank
    wanted = _VALUES if choice.keep in ("newest", "oldest") else _NUMBERS
    if rank is not None and kinds[rank] not in wanted:
        expected = "a number or a time" if wanted is _VALUES else "a number"
        raise UsageError(f"rank={rank!r} is of kind {kinds[rank]}; expected {expected} per document.")
