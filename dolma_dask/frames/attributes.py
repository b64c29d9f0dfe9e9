"""write_attributes: columns that a user has computed beside the documents become an attribute set, like that of a tagger.

The rows must be those of the documents, in their order; that is proved again while they are written (`aligned`), so that the journal can
prove the set to its readers. Nothing appears before all partitions are proved.
"""

from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

import dolma_dask
from dolma_dask.dataset import Dataset, Shard, shard_info
from dolma_dask.display import counted
from dolma_dask.engine import Plan, Task, Unit, WorkDir, inputs_of
from dolma_dask.errors import AlignmentError, SchemaError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.frames.aligned import ADVICE, AttributesWriter
from dolma_dask.frames.cutting import PARTITION_BYTES, Partitions, cut
from dolma_dask.frames.partitions import Collection, collection_of
from dolma_dask.frames.publishing import (
    MoveStage,
    Staged,
    Writing,
    computed,
    last_task,
    work_folder,
)
from dolma_dask.frames.values import is_of_documents, key_of, value_columns
from dolma_dask.io.quarantine import OnBadRecord, RecordPolicy
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Journal, Record, dataset_notes, work_key
from dolma_dask.options.shared import DatasetLike, as_dataset, check_format, without_empty, words_of
from dolma_dask.results.summary import Summary

if TYPE_CHECKING:
    from dask.delayed import Delayed

VERB = "write_attributes"

VERSION = 1
"""Raised whenever other bytes are written for the same values."""


def write_attributes(
    frame: Any,
    dataset: DatasetLike,
    name: str,
    /,
    *,
    format: FileFormat | None = None,
    partition_bytes: int | None = PARTITION_BYTES,
    only: Sequence[str] = (),
    prune: int | None = None,
    source: str | None = None,
    version: str | None = None,
    overwrite: bool = False,
    compute: bool = True,
    scheduler: str | None = None,
    on_bad_record: OnBadRecord = "fail",
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> "Summary | Delayed":
    """Write columns of a Dask dataframe or bag beside the documents that it was read from, as an attribute set.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame or dask.bag.Bag
        What `read_dataframe` or `read_bag` gave, with columns added: all rows, in their order and partitions. ``id`` and ``source`` are needed and
        compared with the documents, ``text`` is compared if it is there; other columns of documents are left out. Every further
        column becomes an attribute: numbers scores of the whole document, truth values and strings scalars, lists of
        ``[start, end, score]`` spans. A missing value (null, NaN) leaves the key out.
    dataset : str, Dataset or Summary
        What the frame was read from.
    name : str
        Name of the set. The key of a column is ``<name>__<name>__<column>``; a column that is named ``a__b__c`` keeps its name.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    partition_bytes, only, prune, source, version
        As they were given to `read_dataframe` or `read_bag`; they tell which rows are in which partition.
    overwrite : bool
        Replace a set that another verb has made, or one with other columns.
    compute, scheduler
        As for `write_documents`.
    on_bad_record : {"fail", "quarantine"}
        Fail at a document that cannot be read, or keep its row with an error in it (of a frame read with ``on_bad_record="null"``).
    max_record_bytes : int
        Longer lines are bad records.

    Returns
    -------
    Summary or dask.delayed.Delayed

    Raises
    ------
    UsageError
        A column is missing, or files of others are in the way; nothing is computed then.
    AlignmentError
        The rows are not those of the documents: filtered, shuffled, sorted or repartitioned. Nothing has appeared then.
    SchemaError, DataError, SourceChangedError
        While computing: a column has a type or value that no attribute has; a file was written meanwhile.

    Examples
    --------
    >>> df = read_dataframe("corpus/v0")  # doctest: +SKIP
    >>> df["shout"] = df.text.str.count("!") / df.text.str.len()  # doctest: +SKIP
    >>> write_attributes(df, "corpus/v0", "mine")  # doctest: +SKIP
    """
    layout.check_name(name, "name")
    check_format(format)
    policy = RecordPolicy(on_bad_record, max_record_bytes=max_record_bytes)
    collection = collection_of(frame, VERB)
    collection.check(("id", "source"), VERB)
    keys, notes = _keys(collection, name)
    opened = as_dataset(dataset, source, version)
    selected = opened.select(words_of("only", only), prune)
    partitions = cut(selected, None, partition_bytes, with_text=False)
    _check_partitions(collection, partitions, partition_bytes)
    plan = _plan(opened, selected, name, format, policy, sorted(keys), notes)
    if keys and not overwrite:
        _check_columns(plan, name, keys.keys())
    writing = Writing(plan, work_folder(opened.root, VERB, name), overwrite)
    writing.check()
    writer = AttributesWriter(opened.root, name, format, policy, opened.source, writing.work.url)
    needed = [
        column for column in collection.columns or () if column == "text" or not is_of_documents(column)
    ]
    written = _tasks(collection.select(["id", "source", *needed]), partitions, writer, writing.work)
    return computed(
        last_task(VERB, partial(_publish, writing, name), written),
        writing.work,
        f"{opened.root}, attributes/{name}",
        compute,
        scheduler,
    )


def _keys(collection: Collection, name: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the columns by key, as far as they are known, and what a person should know of those that are left out."""
    if collection.columns is None:
        return {}, ()
    keys: dict[str, str] = {}
    for column in value_columns(collection.columns):
        other = keys.setdefault(key_of(name, column), column)
        if other != column:
            raise UsageError(
                f"columns {other!r} and {column!r} would both become {key_of(name, column)!r}; expected one. Rename or drop one."
            )
    if not keys:
        raise UsageError(
            f"{VERB}: the dataframe has the columns {', '.join(collection.columns)}, all of documents; expected one more or more, which become attributes."
        )
    left_out = [
        item for item in collection.columns if is_of_documents(item) and item not in ("id", "source", "text")
    ]
    return keys, (
        f"columns of documents are no attributes, left out: {', '.join(left_out)}",
    ) if left_out else ()


def _check_partitions(collection: Collection, partitions: Partitions, partition_bytes: int | None) -> None:
    if collection.npartitions != len(partitions):
        raise AlignmentError(
            f"the collection has {counted(collection.npartitions, 'partition')}; expected {len(partitions):,}, as the dataset is cut with "
            f"partition_bytes={partition_bytes!r}. Give partition_bytes, only and prune as they were given when it was read. {ADVICE}"
        )


def _check_columns(plan: Plan, name: str, keys: Set[str]) -> None:
    """Refuse to lose columns that an earlier call has written."""
    known = Journal(plan.root, VERB).records
    for task in plan.tasks:
        record = known.get(task.units[0].name)
        lost = sorted(set(record.info.get("kinds", ())) - keys) if record else []
        if lost:
            raise UsageError(
                f"attribute set {name} of {plan.root} holds {', '.join(lost)}, which the columns given now are not, first in {task.shard}; expected "
                "another name or the same columns. Read the set beside the others and write all, or replace it with overwrite=True."
            )


def _publish(writing: Writing, name: str, staged: Sequence[Staged]) -> Summary:
    """Let the set appear, if all shards have one kind of each column, and none is lost; of a bag that is known only now."""
    kinds = _one_kind(record for each in staged for record in each.records)
    if kinds and not writing.overwrite:
        _check_columns(writing.plan, name, kinds)
    return writing.publish(staged)


def _one_kind(records: Iterable[Record]) -> set[str]:
    """Return the keys of all files; raise `SchemaError` where they differ in kind, since no reader takes such a set."""
    first: dict[str, tuple[str, str]] = {}
    for record in sorted(records, key=lambda record: record.unit):
        for key, kind in record.info["kinds"].items():
            other, path = first.setdefault(key, (kind, record.unit))
            if other != kind:
                raise SchemaError(
                    f"{key} is of kind {other} in {path}, and {kind} in {record.unit}; expected one kind in all partitions. Convert the column first, "
                    "such as with astype in a dataframe, or str in a bag.",
                    key=key,
                )
    return set(first)


def _plan(
    opened: Dataset,
    selected: Dataset,
    name: str,
    file_format: FileFormat | None,
    policy: RecordPolicy,
    keys: Sequence[str],
    notes: tuple[str, ...],
) -> Plan:
    def path(shard: Shard) -> str:
        return layout.attribute_path(name, shard.path, file_format)

    params = {"set": name, "source": opened.source, "max_record_bytes": policy.max_record_bytes}
    key = work_key(VERB, VERSION, params)
    layout.check_no_collision([layout.with_format(shard.path, file_format) for shard in opened.shards])
    return Plan(
        stage=MoveStage(VERB, opened.root),
        root=opened.root,
        tasks=[
            Task(shard.path, (Unit(path(shard), key),), inputs_of(opened.root, [shard_info(shard)]))
            for shard in selected.shards
        ],
        params=without_empty(
            {"name": name, "format": file_format, "source": opened.source, "keys": list(keys)}
        ),
        writes=(f"{layout.ATTRIBUTES}/{name}/",),
        version=dolma_dask.__version__,
        other_formats=layout.other_formats(map(path, selected.shards), map(path, opened.shards)),
        bad_is_loss=True,
        notes=(*dataset_notes(opened), *notes),
    )


def _tasks(
    collection: Collection, partitions: Partitions, writer: AttributesWriter, work: WorkDir
) -> "list[Delayed]":
    """Return a task for each partition of whole shards, and for each shard that several partitions are ranges of."""
    from dask import delayed

    tasks: list[Delayed] = []
    parts: dict[Shard, list[Delayed]] = {}
    for number, (part, partition) in enumerate(zip(collection.delayed(), partitions, strict=True)):
        named = f"{VERB}-{partition.pieces[0].shard.path if partition.pieces else ''}-{number}-{work.key}"
        task = delayed(partial(writer.write, number=number, partition=partition), pure=False)(
            part, dask_key_name=named
        )
        if partition.pieces and partition.pieces[0].part is not None:
            parts.setdefault(partition.pieces[0].shard, []).append(task)
        else:
            tasks.append(task)
    for shard, staged in parts.items():
        named = f"{VERB}-{shard.path}-{work.key}"
        tasks.append(delayed(partial(writer.assemble, shard), pure=False)(staged, dask_key_name=named))
    return tasks
