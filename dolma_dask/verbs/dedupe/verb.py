"""dedupe: flag every document but one of those that are equal or similar, over all shards of a dataset.

Equal ones (`dolma_dask.verbs.dedupe.job`) have the same text, id or other value; for similar ones see `dolma_dask.verbs.dedupe.fuzzy`. Each shard is read once. 24 bytes per document go through the exchange, which holds 32 MB of them in memory at a time; 40 bytes per
document wait on disk until the flags of its shard are written. The survivor is the first by the requested order, then in the listing: the
flags are the same for any number of workers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Annotated, Any, Literal, Unpack, get_args

from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.display import listed
from dolma_dask.errors import UsageError
from dolma_dask.exchange import Shuffle, check_shuffle
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.minhash.schemes import Scheme, Unit
from dolma_dask.options.shared import (
    DatasetLike,
    Many,
    RecordArgs,
    RuleLike,
    as_dataset,
    check_choice,
    check_format,
    checked,
    record_policy,
    rule_of,
    run_options,
    selected,
    without_empty,
    words_of,
)
from dolma_dask.results.summary import Summary
from dolma_dask.verbs.dedupe.call import Call
from dolma_dask.verbs.dedupe.choice import Choice, Keep
from dolma_dask.verbs.dedupe.comparison import Comparison, Verify, comparison_of
from dolma_dask.verbs.dedupe.fuzzy import FuzzyDeduplication
from dolma_dask.verbs.dedupe.job import run_deduplication
from dolma_dask.verbs.dedupe.needs import needs_note
from dolma_dask.verbs.dedupe.summary import DedupeSummary


def dedupe(
    dataset: DatasetLike,
    /,
    *,
    how: Literal["exact", "fuzzy"] = "exact",
    by: str = "text",
    keep: Keep = "first",
    rank: str | None = None,
    where: RuleLike = None,
    within: str | None = None,
    similarity: float | None = None,
    verify: Verify | None = None,
    num_bands: int | None = None,
    rows_per_band: int | None = None,
    ngram: int | None = None,
    unit: Unit | None = None,
    num_perm: int | None = None,
    seed: int | None = None,
    scheme: Scheme | None = None,
    signatures: str | None = None,
    audit: bool = False,
    others: Annotated[Sequence[DatasetLike], Many] = (),
    name: str | None = None,
    format: FileFormat | None = None,
    source: str | None = None,
    version: str | None = None,
    attributes: Annotated[Sequence[str], Many] = (),
    shuffle: Shuffle = "files",
    **options: Unpack[RecordArgs],
) -> DedupeSummary:
    """Flag every document but one of those that are equal or similar, over all shards, and write the flags beside the documents.

    Example: dolma-dask dedupe corpus/wiki/v0 --by text --keep longest

    Example: dolma-dask dedupe corpus/wiki/v0 --how fuzzy

    Example: dolma-dask dedupe corpus/wiki/v0 --how fuzzy --similarity 0.8 --keep longest --within source --name strict

    Example: dolma-dask dedupe corpus/wiki/v0 --others corpus/books/v0 corpus/news/v0

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    how : {"exact", "fuzzy"}
        Documents are duplicates if they are equal in `by`, or if their texts are similar: MinHash signatures of their n-grams share a band and, with `verify`,
        agree in enough values.
    by : str
        "text"; "id", which means source and id together; another field of documents; "metadata.<field>", at any depth ("metadata.page.hash"); or an
        attribute key with one value per document (a unique ending is enough). A document without a value is nobody's duplicate. Integers are
        compared by all of their digits.
    keep : {"first", "longest", "newest", "oldest", "highest", "lowest"}
        Which document of a cluster survives: the first in the listing, that with the longest text, the newest or oldest, or that with the highest or
        lowest `rank`. Among equals the first in the listing survives; a document without rank comes behind those that have one.
    rank : str, optional
        An attribute key or a field of the documents or their metadata. For "highest" and "lowest" a number, compared in double precision. For "newest"
        and "oldest" a number or a time in ISO 8601 ("2024-05-01", "2024-05-01T12:30:59.5Z", "2024-05-01 12:30:59 +0200"; UTC where no zone is
        given), by default `created`; what is no time counts as missing.
    where : str, optional
        Only documents for which this rule holds take part, as in mix: the others are in no cluster, so that none of them survives in place of one that is
        kept, and they get no flag.
    within : str, optional
        An attribute key or a field of the documents or their metadata, with one value per document: documents with different values, of different
        languages for example, are not in one cluster, and those without a value in none.
    similarity : float, optional
        Jaccard similarity of n-grams from which documents are duplicates (fuzzy), from 0 to 1; by default 0.7, with scheme="redpajama_v2" 0.8.
        Higher is stricter: fewer are removed. Given, it decides the shape of the bands too, unless `num_bands` and `rows_per_band` do.
    verify : {"signatures", "ngrams", "none"}, optional
        Join documents that share a band only if their signatures say that they are as similar as `similarity` (the default); if their sets of n-grams
        are, which reads the texts twice more; or all of them (with scheme="redpajama_v2" the default), as RedPajama-V2 does (fuzzy).
    num_bands, rows_per_band : int, optional
        Shape of the bands (fuzzy), both or none; by default 14 bands of 8 rows, or what fits `similarity`.
    ngram : int, optional
        Tokens of an n-gram (fuzzy); by default 5, with scheme="redpajama_v2" 13.
    unit : {"word", "char"}, optional
        Tokens are words (by default; in scripts without spaces, characters) or characters (fuzzy). Words of the other schemes are what stands
        between white space, in all scripts.
    num_perm : int, optional
        Values of a signature (fuzzy); by default 128.
    seed : int, optional
        Of the permutations (fuzzy); by default 42, with datasketch's schemes 1.
    scheme : {"dolma_dask", "datasketch", "datasketch_legacy", "redpajama_v2"}, optional
        How signatures are made (fuzzy); by default the fastest. The others give the bytes of these projects.
    signatures : str, optional
        Folder or URL of published MinHash tables, <snapshot>/<shard>/<lang>_<bucket>.minhash.parquet, from which signatures are taken instead of
        making them (fuzzy, scheme="redpajama_v2"). Rows are found by the ids of documents; one without a signature there is nobody's duplicate.
    audit : bool
        Write nothing: plant copies of known similarities into a sample of the documents, find them with these options, and tell how many were found,
        beside how many should be (fuzzy). All documents may be in the sample, whatever `where` and `within` say. Needs the space of two thousand documents in the temporary folder.
    others : list of str or Dataset, optional
        Further datasets whose documents are compared with these and with each other; they come behind these in the listing, and each gets flags of
        its own. Flags hold while none of the datasets changes or is gone.
    name : str, optional
        Attribute set to write, and its key; by default "exact" or "fuzzy".
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.
    attributes : list of str, optional
        Attribute sets to look for `by`, `rank`, `within` and the names in `where` in; by default all.
    shuffle : {"files", "dask"}
        How keys reach each other: through files beside the dataset, or through Dask's dataframe shuffle, for slow shared storage.

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
    Members of clusters of similar documents have fuzzy__cluster_size too, and where pairs are verified fuzzy__similarity: to the nearest member that
    each was compared with.
    `only`, `share` and `prune` are for a rehearsal (`dry_run`) or an `audit`: a duplicate may be in any shard.
    If mix asks for both, choose near duplicates with --where "exact is None", or survivors of one may be flagged in the other.
    With on_bad_record="quarantine" every bad record keeps its row, with an error in it, and one of them makes the exit status 1.
    """
    options = checked(dedupe, options, RecordArgs)
    compared = {
        "similarity": similarity,
        "verify": verify,
        "num_bands": num_bands,
        "rows_per_band": rows_per_band,
        "ngram": ngram,
        "unit": unit,
        "num_perm": num_perm,
        "seed": seed,
        "scheme": scheme,
    }
    _check_names(by, rank, within)
    _check_choices(how, keep, rank, shuffle)
    where = rule_of(where)
    attributes = words_of("attributes", attributes)
    _check_of_how(
        how, by, shuffle, without_empty({**compared, "signatures": signatures, "audit": audit or None})
    )
    check_format(format)
    name = layout.check_name(how if name is None else name, "name")
    found = as_dataset(dataset, source, version)
    beside = [as_dataset(one, source) for one in _datasets_of(others)]
    _check_datasets([found, *beside])
    for one in (found, *beside):
        layout.check_no_collision([layout.with_format(shard.path, format) for shard in one.shards])
    if audit:
        if signatures is not None or beside:
            more = f"signatures={signatures!r}" if signatures is not None else "others"
            raise UsageError(
                f"audit with {more}; expected one dataset and its texts: an audit is of how documents are compared, and planted copies are in no table."
            )
        unused = [option for option, value in (("where", where), ("within", within)) if value is not None]
        return _audited(selected(found, options), comparison_of(compared), unused, options)
    _check_whole(options, [dataset, *_datasets_of(others)])
    call = Call(
        how=how,
        by=by,
        choice=Choice(
            keep, "created" if keep in ("newest", "oldest") and rank is None else rank, within=within
        ),
        where=where,
        attributes=attributes,
        comparison=comparison_of(compared),
        signatures=signatures,
        name=name,
        file_format=format,
        shuffle=shuffle,
        rank=rank,
        source=source,
        options=options,
    )
    job = call.job([found, *beside])
    summary = run_deduplication(job, run_options(options))
    if summary.planned and isinstance(job, FuzzyDeduplication):
        return replace(summary, notes=(*summary.notes, needs_note(job)))
    return summary


def _datasets_of(others: object) -> Sequence[Any]:
    """Return further datasets as a list."""
    if isinstance(others, str | PathLike | Dataset | Summary):
        return (others,)
    if not isinstance(others, Sequence) or (isinstance(others, list) and not others):
        raise UsageError(f"others={others!r}; expected further datasets, such as others=['corpus/books/v0'].")
    return others


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


def _audited(
    dataset: Dataset, comparison: Comparison, unused: Sequence[str], options: RecordArgs
) -> DedupeSummary:
    """Audit a comparison, and say which options an audit does not look at."""
    from dolma_dask.verbs.dedupe.audit import AuditSummary, run_audit

    if options.get("dry_run"):
        summary = AuditSummary("dedupe --audit", dataset.root, comparison=comparison)
    else:
        summary = run_audit(dataset, comparison, record_policy(options).max_record_bytes)
    told = [f"{' and '.join(unused)} not looked at: the sample is of all documents"] if unused else []
    return replace(summary, notes=(*summary.notes, *told))


def _check_of_how(how: str, by: str, shuffle: str, compared: Mapping[str, Any]) -> None:
    """Refuse options that the way to compare documents does not have."""
    if how == "exact" and compared:
        raise UsageError(
            f"{', '.join(compared)} with how='exact'; expected how='fuzzy' for documents that are similar."
        )
    if how == "fuzzy" and (by != "text" or shuffle != "files"):
        found = f"by={by!r}" if by != "text" else f"shuffle={shuffle!r}"
        raise UsageError(
            f"{found} with how='fuzzy'; expected by='text' and shuffle='files': signatures are of texts, and their bands go through files."
        )


def _check_names(by: object, rank: object, within: object) -> None:
    if not isinstance(by, str) or not by:
        raise UsageError(f"by={by!r}; expected the name of a column, such as text, id or metadata.url.")
    if rank is not None and (not isinstance(rank, str) or not rank):
        raise UsageError(f"rank={rank!r}; expected the name of a column of numbers or times.")
    if within is not None and (not isinstance(within, str) or not within):
        raise UsageError(f"within={within!r}; expected the name of a column, such as metadata.language.")


def _check_choices(how: str, keep: str, rank: str | None, shuffle: str) -> None:
    check_choice("how", how, ("exact", "fuzzy"))
    check_choice("keep", keep, get_args(Keep))
    check_shuffle(shuffle)
    if keep in ("highest", "lowest") and rank is None:
        raise UsageError(f"keep={keep!r} without rank; expected a rank, such as rank='word_count'.")
    if keep in ("first", "longest") and rank is not None:
        raise UsageError(
            f"keep={keep!r} with rank={rank!r}; expected a rank for keep='highest', 'lowest', 'newest' or 'oldest' alone, such as "
            "keep='highest', rank='word_count'."
        )


def _check_whole(options: RecordArgs, datasets: Sequence[Any]) -> None:
    """Refuse to flag duplicates among some of the shards: the set would look like that of all."""
    opened = [one for one in datasets if isinstance(one, Dataset)]
    for one in opened:
        if len(one.shards) < (every := len(open_dataset(one.root).shards)):
            raise UsageError(
                f"{one.root}: {len(one.shards):,} of {every:,} shards were given; expected all, since a duplicate may be in any of them. Make a dataset of "
                "some: dolma-dask mix ... --only."
            )
    if {"only", "share", "prune"} & options.keys() and not options.get("dry_run"):
        raise UsageError(
            "dedupe was given --only, --share or --prune; expected all shards, since a duplicate may be in any of them and the flags of some would "
            "look like those of all. Leave it out, rehearse with --dry-run, or make a dataset of some shards: dolma-dask mix ... --only."
        )
