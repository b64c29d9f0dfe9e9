"""validate: every file and every row of a dataset against its contract; problems are its result, not its failure.

One pass over documents and attributes (`shard`) checks each shard, then the identities of all documents, 16 bytes each, meet in the exchange
(`identities`). What was checked is remembered per shard and for the whole, so that the same command reads nothing again
unless files change. The report is the same for any number of workers. Memory: a few blocks per worker.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Annotated

from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.engine import run_job
from dolma_dask.errors import UsageError
from dolma_dask.exchange import Shuffle, check_shuffle
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.options.base import ABOVE_0, BAD, OUTPUT, WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetLike, DatasetOptions, ShardOptions, same
from dolma_dask.sources.naming import unread
from dolma_dask.verbs.validate.against_raw import compare
from dolma_dask.verbs.validate.identities import Identities
from dolma_dask.verbs.validate.job import Check
from dolma_dask.verbs.validate.listing import list_work, sampled
from dolma_dask.verbs.validate.problems import KINDS, Problems
from dolma_dask.verbs.validate.raw import RawFolder, check_raw, raw_folder
from dolma_dask.verbs.validate.shard import ValidateStage
from dolma_dask.verbs.validate.summary import FORMAT, KindProblems, ValidateSummary, last_names

KEPT = 20
"""Problems per kind and shard that a journal keeps, unless more are to be shown."""


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(DatasetOptions, ShardOptions):
    """Options of `validate`."""

    against: Annotated[
        DatasetLike | None,
        Opt(
            "Earlier version: every (source, id) must stand in it, and rows of files of the same name must keep their order. With `version` also "
            "the name of another version of the same source. A folder called raw without documents/ in it: every raw record must be a document here, and "
            "every document one of them, by ids as convert makes them.",
            kind="str or Dataset",
            convert=same,
        ),
    ] = None
    raw_id: Annotated[
        str | None,
        Opt("Field of the id in raw records, as the id of convert; by default id, or else file and row."),
    ] = None
    attributes: Annotated[
        Sequence[str] | None,
        Opt(
            "Attribute sets to check; by default all. In a pipeline [] checks documents alone, before stages that make attributes.",
            group=WHAT,
            may_be_empty=True,
        ),
    ] = None
    source: Annotated[
        str | None,
        Opt(
            "Source of all documents, for files that lack the field; with `version`, the name of its folder, and documents need the field.",
            group=WHAT,
        ),
    ] = None
    sample: Annotated[
        float | None,
        Opt(
            "Look at this share of the files only, such as 0.01; the report says what was not looked at.",
            min=ABOVE_0,
            max=1,
            expected="a share of the files above 0 and at most 1, such as 0.01",
        ),
    ] = None
    seed: Annotated[int, Opt("Draws another sample.")] = 0
    to: Annotated[str | None, Opt("Write the report there too, as JSON.", group=OUTPUT)] = None
    problems: Annotated[
        int, Opt("Problems of each kind that are shown, the first by file and row; all are counted.", min=1)
    ] = 10
    max_record_bytes: Annotated[int, Opt("Longer records are bad.", group=BAD, min=1)] = MAX_RECORD_BYTES
    shuffle: Annotated[
        Shuffle,
        Opt(
            "How identities reach each other: through files in the dataset, or through Dask's dataframe shuffle, for slow shared storage.",
            convert=check_shuffle,
        ),
    ] = "files"


@command
def validate(
    dataset: Annotated[
        DatasetLike,
        Opt(
            "Folder or URL with documents/ in it; with `version`, a root of sources. On the command line also a root of datasets: all below it are "
            "checked.",
            kind="str or Dataset",
            convert=same,
        ),
    ],
    /,
    *,
    options: ValidateOptions,
) -> ValidateSummary:
    """Check every file and every row: records, unique ids, attributes that line up, spans inside of texts, order between versions.

    Example: dolma-dask validate corpus/wiki/v1 --against corpus/wiki/v0

    Returns
    -------
    ValidateSummary
        Its exit status is 1 if there is any problem.

    Raises
    ------
    StageError
        Some files could not be checked at all.
    UsageError
        There is no such dataset or attribute set, or an argument is unknown or has a value that it cannot have.

    Notes
    -----
    Kinds of problems:

    unreadable_file       a file is truncated, damaged, or not what its suffix says
    schema                a column or key has another type than it needs, or than in other files
    bad_record            a line is no valid document
    empty_id              an id without characters
    bad_metadata          metadata that is no object
    duplicate_id          a (source, id) that stands earlier in the dataset too; dedupe by="id" flags it
    missing_attributes    a document file without file in an attribute set
    two_attribute_files   a document file with two files in an attribute set
    orphan_attributes     an attribute file without document file
    misaligned            rows of attributes and documents do not belong together
    stale                 attributes were made from other text than the documents have now
    two_runs              flags that depend on all shards, made by more than one run
    bad_attribute_row     a line is no valid attribute row
    span_outside_text     not 0 <= start <= end <= code points of the text
    not_finite            a score or number that is infinite or none
    not_document_level    several spans where the key has one of the whole text
    journal_mismatch      a file has other bytes than the journal says were written
    not_in_against        a document that the earlier version does not have
    lost_record           a raw record whose id no document has, where `against` is raw
    order_changed         rows in another order than in the earlier version

    Attribute sets that no journal proves are named in a note; they are no problem. With `sample`, `only` or `prune` ids are
    compared among the selected files only, and with `sample` only with the earlier files of their names. Then, and where a file cannot be read
    to its end, nothing is said of what might be there: a note says which records or documents were not looked for.

    A folder called raw without documents/ is of any form: its files are read as convert reads them. What can be told of them is whether they can be read, how
    many records they hold, and which fields these have.
    """
    target = None if options.to is None else _report_url(options.to, options.overwrite)
    if (folder := _raw(dataset, options, options.version)) is not None:
        answer = _checked_raw(folder, options)
        if target is not None and not options.dry_run:
            _publish(target, answer)
        return answer
    found = _open(dataset, options)
    raw = None if options.against is None else _raw_against(dataset, options)
    earlier = (
        None
        if options.against is None or raw is not None
        else _open_against(options.against, dataset, found, options)
    )
    names = _sets(found, options.attributes)
    part = sampled(options.selected(found), options.sample, options.seed)
    is_sample = options.sample is not None
    keep = max(KEPT, options.problems)
    listing = list_work(found, part, names, keep)
    stage = ValidateStage(found.root, found.source, keep, options.max_record_bytes)
    identities = Identities(stage, found, part, earlier, is_sample, options.shuffle)
    scope = {
        "files": len(part.shards),
        "files_of": len(found.shards),
        "attributes": list(names),
        "against": None if earlier is None else last_names(earlier.root),
        "sample": options.sample,
        "seed": options.seed if is_sample else None,
    }
    check = Check(stage, found, part, listing, identities, scope, options.problems)
    summary = run_job(check, options)
    if raw is not None and not options.dry_run:
        summary = _with_raw(summary, raw, found, part, options)
    if not options.dry_run:
        check.remember(summary.report())
        if target is not None:
            _publish(target, summary)
    return summary


# ------------------------------------------------------------------------------------------------ arguments


def _open(dataset: DatasetLike, options: ValidateOptions) -> Dataset:
    opened = options.open(dataset)
    return opened if options.version is None else replace(opened, source=None)


def _raw(place: DatasetLike, options: ValidateOptions, version: str | None) -> RawFolder | None:
    """Return raw files that a call names; None if it names a dataset."""
    if not isinstance(place, str | PathLike):
        return None
    root = fspath(place)
    roots = layout.version_roots(root, options.source, version) if version and options.source else (root,)
    more = (options.skip, options.raw_id, options.max_record_bytes, max(KEPT, options.problems))
    return next((folder for one in roots if (folder := raw_folder(one, *more)) is not None), None)


def _raw_against(dataset: DatasetLike, options: ValidateOptions) -> RawFolder | None:
    against = options.against
    if isinstance(against, str) and options.version and options.source and "/" not in against:
        return _raw(dataset, options, against)
    return None if against is None else _raw(against, options, None)


def _checked_raw(folder: RawFolder, options: ValidateOptions) -> ValidateSummary:
    """Return the report on raw files; nothing is remembered, since their folder is not ours."""
    if options.against is not None or options.sample is not None:
        raise UsageError(
            f"{folder.root} holds raw files; expected no `against` or `sample`. Compare a version with them: validate VERSION --against raw."
        )
    chosen = folder.selected(options)
    if not chosen.listing.known and options.share is None:
        what = unread(folder.listing.odd) if folder.listing.odd else "none is left by --only and --skip"
        raise UsageError(f"{folder.root} holds no file that can be looked at: {what}.")
    if options.dry_run:
        planned = tuple(info.path for info in chosen.listing.known)
        return ValidateSummary("validate", folder.root, planned=planned)
    sums, problems, notes = check_raw(chosen, options)
    count, total = len(chosen.listing.known), len(folder.listing.known)
    scope = {
        "files": count,
        "files_of": total,
        "attributes": [],
        "against": None,
        "sample": None,
        "seed": None,
    }
    if count < total:
        notes.append(
            f"looked at {count:,} of {total:,} files: NOTHING is known of the other {total - count:,}"
        )
    counts = {"bad_records": sums.bad, "documents_in": sums.records}
    found = _shown(problems, options.problems)
    return ValidateSummary(
        "validate", folder.root, done=count, counts=counts, notes=tuple(notes), found=found, scope=scope
    )


def _with_raw(
    summary: ValidateSummary, raw: RawFolder, found: Dataset, part: Dataset, options: ValidateOptions
) -> ValidateSummary:
    """Add to a report what the comparison with raw files has found."""
    problems, notes = compare(raw, found, part, options)
    more = _shown(problems, options.problems)
    none = KindProblems(0, ())
    pairs = {kind: (summary.found.get(kind, none), more.get(kind, none)) for kind in KINDS}
    both = {
        kind: KindProblems(ours.count + theirs.count, (*ours.first, *theirs.first)[: options.problems])
        for kind, (ours, theirs) in pairs.items()
        if ours.count + theirs.count
    }
    scope = {**summary.scope, "against": last_names(raw.root)}
    return replace(summary, found=both, scope=scope, notes=(*summary.notes, *notes))


def _shown(problems: Problems, most: int) -> dict[str, KindProblems]:
    return {
        kind: KindProblems(problems.counts[kind], tuple(problems.first(kind)[:most]))
        for kind in problems.kinds
    }


def _open_against(
    against: DatasetLike, dataset: DatasetLike, found: Dataset, options: ValidateOptions
) -> Dataset:
    if isinstance(against, str) and options.version and options.source and "/" not in against:
        earlier = _open(dataset, dataclasses.replace(options, version=against))
    else:
        earlier = dataclasses.replace(options, source=found.source).beside(against)
    if files.resolved(earlier.root) == files.resolved(found.root):
        raise UsageError(
            f"{found.root} cannot be compared with itself; expected an earlier version in `against`, such as the dataset that it was "
            "mixed from."
        )
    return earlier


def _sets(dataset: Dataset, attributes: Sequence[str] | None) -> tuple[str, ...]:
    if attributes is None:
        return dataset.attributes
    unknown = [name for name in attributes if name not in dataset.attributes]
    if unknown:
        raise UsageError(
            f"{dataset.root} has no attribute set {unknown[0]!r}; it has: {', '.join(dataset.attributes) or 'none'}."
        )
    return tuple(dict.fromkeys(attributes))


def _report_url(to: str, overwrite: bool) -> str:
    """Return the URL of the report; refuse to replace a file that is none."""
    target = files.normalize(to)
    if not target.endswith(".json"):
        raise UsageError(
            f"to is {to!r}; expected the path or URL of a file that ends in .json, such as report.json."
        )
    if not overwrite and files.stat(target):
        with files.open_read(target) as handle:
            if f'"format": "{FORMAT}"'.encode() not in handle.read(4096):
                raise UsageError(
                    f"{target} is there and is no report of ours; expected a free path. Choose another name, or replace it with --overwrite."
                )
    return target


def _publish(target: str, summary: ValidateSummary) -> None:
    sweep(*target.rsplit("/", 1))  # of a run that was killed
    with publish(target) as out:
        out.write(json.dumps(summary.report(), indent=2, ensure_ascii=False).encode() + b"\n")
