"""A call of `dedupe` as jobs, one per dataset, in which the columns that decide are found."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import listed
from dolma_dask.errors import UsageError
from dolma_dask.exchange.flag_rows import COLUMNS
from dolma_dask.exchange.flagging import check_written
from dolma_dask.io import files
from dolma_dask.options.base import without_empty
from dolma_dask.options.groups import check_outside
from dolma_dask.reading.columns import Columns, find_columns
from dolma_dask.reading.selection import select
from dolma_dask.verbs.dedupe.bloom.pieces import Ordered, check_no_folder
from dolma_dask.verbs.dedupe.bloom.toolkit import open_filter
from dolma_dask.verbs.dedupe.choice import Choice
from dolma_dask.verbs.dedupe.job import Deduplication, ExactDeduplication
from dolma_dask.verbs.dedupe.options import DedupeOptions
from dolma_dask.verbs.dedupe.short import ANY, Least

if TYPE_CHECKING:
    from dolma_dask.verbs.dedupe.fuzzy.job import FuzzyDeduplication


def jobs_of(datasets: Sequence[Dataset], options: DedupeOptions) -> list[Deduplication]:
    """Return the job of each dataset; the first one does the work.

    Raises `UsageError`: a column has not one value per document, is written itself, or is another one elsewhere.
    """
    roots = [dataset.root for dataset in datasets]
    jobs = [_job(dataset, roots[1:], options) for dataset in datasets]
    for other in jobs[1:]:
        _check_same_columns(jobs[0], other)
    if options.index is not None:
        from dolma_dask.verbs.dedupe.index.exact import indexed

        return [indexed(jobs[0], options)]
    if len(jobs) == 1:
        return jobs
    return [dataclasses.replace(job, call=tuple(jobs), number=number) for number, job in enumerate(jobs)]


def _job(dataset: Dataset, others: Sequence[str], options: DedupeOptions) -> Deduplication:
    columns, choice, column = _resolved(dataset, options)
    check_written(columns, options.set_name)
    common: dict[str, Any] = {
        "dataset": dataset,
        "selected": dataset,
        "compared": _compared(dataset, options),
        "columns": columns,
        "name": options.set_name,
        "own_key": options.own_key,
        "file_format": options.format,
        "policy": options.policy,
        "shuffle": options.shuffle,
        "params": options.params_of(others),
        "choice": choice,
    }
    if options.bloom is not None:
        common |= _filters(dataset, options, columns, column, choice)
    if options.is_by_paragraph:  # what the others need is imported for no other
        from dolma_dask.verbs.dedupe.paragraphs.job import ParagraphDeduplication

        return ParagraphDeduplication(**common, how=options.paragraphs)
    if options.how == "exact":
        return ExactDeduplication(**common, column=column, least=_least(columns, column, options))
    return _fuzzy(dataset, options, common)


def _least(columns: Columns, column: str, options: DedupeOptions) -> Least:
    """Return what a value has at least; refuse it of numbers."""
    least = options.least
    if least != ANY and columns.kinds[column] not in _TEXTS:
        raise UsageError(
            f"{', '.join(least.params())} with by={options.by!r}, which are numbers; expected by='text' or another column of texts."
        )
    return least


def _fuzzy(dataset: Dataset, options: DedupeOptions, common: Mapping[str, Any]) -> "FuzzyDeduplication":
    """Return the job by similarity."""
    from dolma_dask.reading.minhash_tables import find_tables
    from dolma_dask.verbs.dedupe.fuzzy.carried import find_carried
    from dolma_dask.verbs.dedupe.fuzzy.job import FuzzyDeduplication

    comparison, url, published, carried = options.comparison, options.signatures, None, None
    if url is not None:
        carried = find_carried(url, comparison.minhash)
        if carried is None:
            paths = (shard.path for shard in dataset.shards)
            published = find_tables(dataset.root, url, comparison.minhash, paths)
    return FuzzyDeduplication(
        **common, comparison=comparison, published=published, carried=carried, merge_bytes=options.merge_bytes
    )


def _filters(
    dataset: Dataset, options: DedupeOptions, columns: Columns, column: str, choice: Choice
) -> dict[str, Any]:
    """Return the filter to write, or to read."""
    assert options.bloom is not None
    url = files.normalize(options.bloom)
    check_no_folder(url)
    kinds = {name: columns.kinds[name] for name in (column, choice.within) if name is not None}
    keys = {
        "unit": options.unit or "document",
        "of": column,
        "ngram": options.ngram,
        "within": choice.within,
        "kinds": {name: kind for name, kind in kinds.items() if kind != "text"},
    }
    keys = without_empty(keys)
    if options.read_only:
        return {"seen": open_filter(url, keys)}
    check_outside(url, dataset.root)
    return {"ordered": Ordered(files.relative(dataset.root, url), url, options.wanted, keys)}


def _compared(dataset: Dataset, options: DedupeOptions) -> frozenset[str] | None:
    part = options.selected(dataset).shards
    return frozenset(shard.path for shard in part) if len(part) < len(dataset.shards) else None


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


_TEXTS = ("text", "string")

_NUMBERS = ("document", "number", "dict", "bool")

_VALUES = (*_TEXTS, *_NUMBERS)
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
