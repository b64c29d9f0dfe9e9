"""dedupe: flag every document but one of those that are equal or similar, over all shards of a dataset.

Equal ones (`dolma_dask.verbs.dedupe.job`) have the same text, id or other value; for similar ones see `dolma_dask.verbs.dedupe.fuzzy.job`. Each shard is read once. 24 bytes per document go through the exchange, which holds 32 MB of them in memory at a time; 40 bytes per
document wait on disk until the flags of its shard are written. The survivor is the first by the requested order, then in the listing: the
flags are the same for any number of workers.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.display import listed
from dolma_dask.engine import run_jobs
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.options.command import command
from dolma_dask.options.groups import Documents
from dolma_dask.reading.catalog import Catalog
from dolma_dask.verbs.dedupe.bloom.pieces import lease_of_filter
from dolma_dask.verbs.dedupe.call import jobs_of
from dolma_dask.verbs.dedupe.index.segments import check_place, lease_of
from dolma_dask.verbs.dedupe.options import DedupeOptions
from dolma_dask.verbs.dedupe.summary import DedupeSummary, joined


@command
def dedupe(
    dataset: Documents,
    /,
    *,
    options: DedupeOptions,
) -> DedupeSummary:
    """Flag every document but one of those that are equal or similar, over all shards, and write the flags beside the documents.

    Example: dolma-dask dedupe corpus/wiki/v0 --by text --keep longest

    Example: dolma-dask dedupe corpus/wiki/v0 --how fuzzy

    Example: dolma-dask dedupe corpus/wiki/v0 --how fuzzy --similarity 0.8 --keep longest --within source --name strict

    Example: dolma-dask dedupe corpus/wiki/v0 --others corpus/books/v0 corpus/news/v0

    Example: dolma-dask dedupe corpus/wiki/v0 --unit paragraph --min-length 20

    Example: dolma-dask dedupe corpus/news/v0 --index corpus/index

    Returns
    -------
    DedupeSummary
        Documents, duplicates and clusters, by source, and the largest clusters.

    Raises
    ------
    StageError
        Some shards failed.
    ExpressionError
        There is no such column.
    UsageError
        An argument is unknown or has a value that it cannot have, or there is an attribute set of this name that dedupe did not make.

    Notes
    -----
    A survivor has nothing under the key, the others have [[0, length, 1]] in code points: mix keeps survivors, and documents without duplicates, with
    --where "exact is None" or "fuzzy is None". Nothing is removed before. A run with other options replaces flags of the same --name.
    With unit="paragraph" the key has a span for each duplicate paragraph, and <name>__share, by default paragraphs__share, is the share of the text's characters in
    them: mix cuts the spans out with --replace '{"span": "$.attributes.paragraphs", "min_score": 1, "replacement": ""}', or drops documents with
    --where "paragraphs__share < 0.5". With --min-text-length 1 it drops what has no text left.
    Members of clusters of similar documents have fuzzy__cluster_size too, and where pairs are verified fuzzy__similarity: to the nearest member that
    each was compared with.
    `only` and `share` name the shards whose documents are compared, for rounds of growing parts: all others are kept, and the next round goes on with
    --where "r1 is None" under a name of its own. `prune` is for a rehearsal (`dry_run`) or an `audit`.
    If mix asks for both, choose near duplicates with --where "exact is None", or survivors of one may be flagged in the other.
    With on_bad_record="quarantine" every bad record keeps its row, with an error in it; more of them than `max_bad_fraction` allows make the exit status 1.
    """
    datasets = [
        options.open(dataset),
        *map(options.beside, options.others),
    ]
    _check_datasets(datasets)
    for one in datasets:
        _check_key(one, options)
        layout.check_no_collision([layout.with_format(shard.path, options.format) for shard in one.shards])
    if options.audit:
        return _audited(options.selected(datasets[0]), options)
    _check_whole(options, [dataset, *options.others])
    if options.index is not None:
        check_place(options.index, datasets[0].root)
    written = None if options.read_only or options.dry_run else options.bloom
    with lease_of(options.index, dry_run=options.dry_run), lease_of_filter(written):
        jobs = jobs_of(datasets, options)
        summary = joined(run_jobs(jobs, options, as_one=True))
    if options.index is not None:
        from dolma_dask.verbs.dedupe.index.own_segment import with_index

        summary = with_index(summary, options.index, datasets[0], options.set_name)
    if summary.planned:
        return replace(summary, notes=(*summary.notes, *jobs[0].needs()))
    return summary


def _check_datasets(datasets: Sequence[Dataset]) -> None:
    """Refuse datasets that are one, and those that cannot tell where the others are."""
    roots = [files.resolved(one.root) for one in datasets]
    for root in roots:
        if roots.count(root) > 1:
            raise UsageError(f"{root} was given twice; expected each dataset once.")
        if any(root.startswith(f"{other}/{layout.DOCUMENTS}/") for other in roots):
            raise UsageError(
                f"{root} lies in the documents of another dataset; expected datasets side by side."
            )
    if len({root.partition("://")[0] if not files.is_local(root) else "" for root in roots}) > 1:
        raise UsageError(
            f"{listed(roots)} lie on stores of different kinds; expected one kind, since the flags of each dataset name the others. Copy one there."
        )


def _check_key(dataset: Dataset, options: DedupeOptions) -> None:
    """Refuse a key that is not the name of the set, and in rules would stand for what another set has; flags may share a key, which rules then refuse by itself."""
    if (key := options.own_key) is None:
        return
    catalog = Catalog(dataset)
    for name in (other for other in dataset.attributes if other != options.set_name):
        keys, _ = catalog.keys(name)
        is_theirs = key in keys and catalog.makers.get(name) != "dedupe"
        if name == key or is_theirs or any(one.endswith(f"__{key}") for one in keys):
            raise UsageError(
                f"key={key!r} stands for the attribute set {name} in rules; expected a name that no other attribute of {dataset.root} has."
            )


def _audited(dataset: Dataset, options: DedupeOptions) -> DedupeSummary:
    """Audit a comparison, and say which options an audit does not look at."""
    from dolma_dask.verbs.dedupe.fuzzy.audit import AuditSummary, run_audit

    if options.dry_run:
        summary = AuditSummary("dedupe --audit", dataset.root, comparison=options.comparison)
    else:
        summary = run_audit(dataset, options.comparison, options.max_record_bytes)
    unused = [name for name in ("where", "within") if getattr(options, name) is not None]
    notes = [f"{' and '.join(unused)} not looked at: the sample is of all documents"] if unused else []
    return replace(summary, notes=(*summary.notes, *notes))


def _check_whole(options: DedupeOptions, datasets: Sequence[Any]) -> None:
    """Refuse datasets of which shards are left out, whose set would look like that of all."""
    opened = [one for one in datasets if isinstance(one, Dataset)]
    for one in opened:
        if len(one.shards) < (every := len(open_dataset(one.root, skip=one.skip).shards)):
            raise UsageError(
                f"{one.root}: {len(one.shards):,} of {every:,} shards were given; expected all, since a duplicate may be in any of them. Make a dataset of "
                "some: dolma-dask mix ... --only."
            )
    if options.prune is not None and not options.dry_run:
        raise UsageError(
            "dedupe was given --prune; expected all shards, since a duplicate may be in any of them. Leave it out, rehearse with --dry-run, or name the shards "
            "whose documents are compared, while all others are kept: --only or --share."
        )
