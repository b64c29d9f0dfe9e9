"""write_attributes: columns that a user has computed beside the documents become an attribute set, like that of a tagger.

The rows must be those of the documents, in their order; that is proved again while they are written (`aligned`), so that the journal can
prove the set to its readers. Nothing appears before all partitions are proved.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from dask.delayed import Delayed
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard, shard_info
from dolma_dask.display import counted
from dolma_dask.engine import Plan, Task, Unit, WorkDir, attribute_plan, inputs_of
from dolma_dask.errors import AlignmentError, SchemaError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.frames.aligned import ADVICE, AttributesWriter
from dolma_dask.frames.cutting import PARTITION_BYTES, Partitions, cut
from dolma_dask.frames.options import CollectionOptions, frame_of
from dolma_dask.frames.partitions import Collection, collection_of
from dolma_dask.frames.publishing import (
    MoveStage,
    StagedFiles,
    Writing,
    computed,
    last_task,
    work_folder,
)
from dolma_dask.frames.values import is_of_documents, key_of, value_columns
from dolma_dask.io.quarantine import OnBadRecord, RecordPolicy
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.options.base import Opt, without_empty
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetLike, DatasetOptions, Format, same
from dolma_dask.options.records import budget
from dolma_dask.results.summary import Summary

VERB = "write_attributes"

VERSION = 1
"""Raised whenever other bytes are written for the same values."""


_AS_READ = "As it was given to `read_dataframe` or `read_bag`: it tells which rows are in which partition."


@dataclass(frozen=True, kw_only=True)
class AttributesOptions(CollectionOptions, DatasetOptions):
    """Options of `write_attributes`."""

    format: Format = None
    partition_bytes: Annotated[int | None, Opt(_AS_READ, convert=same)] = PARTITION_BYTES
    only: Annotated[Sequence[str], Opt(_AS_READ)] = ()
    prune: Annotated[int | None, Opt(_AS_READ, convert=same)] = None
    overwrite: Annotated[
        bool, Opt("Replace a set that another verb has made, or one with other columns.")
    ] = False
    on_bad_record: Annotated[
        OnBadRecord,
        Opt(
            "Fail at a document that cannot be read, or keep its row with an error in it (of a frame read with "
            '``on_bad_record="null"``).'
        ),
    ] = "fail"
    max_record_bytes: Annotated[
        int,
        Opt("Longer lines are bad records.", min=1, expected="a whole number of bytes, 1 or more"),
    ] = MAX_RECORD_BYTES


@command
def write_attributes(
    frame: Annotated[
        Any,
        frame_of(
            "What `read_dataframe` or `read_bag` gave, with columns added: all rows, in their order and partitions. ``id`` and ``source`` are needed "
            "and compared with the documents, ``text`` is compared if it is there; other columns of documents are left out. Every further column "
            "becomes an attribute: numbers scores of the whole document, truth values and strings scalars, lists of ``[start, end, score]`` spans, "
            "dicts of numbers objects. A missing value (null, NaN) leaves the key out."
        ),
    ],
    dataset: Annotated[
        DatasetLike,
        Opt("What the frame was read from.", kind="str, Dataset or Summary", convert=same),
    ],
    name: Annotated[
        str,
        Opt(
            "Name of the set. The key of a column is ``<name>__<name>__<column>``; a column that is named ``a__b__c`` keeps its name."
        ),
    ],
    /,
    *,
    options: AttributesOptions,
) -> Summary | Delayed:
    """Write columns of a Dask dataframe or bag beside the documents that it was read from, as an attribute set.

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
    collection, policy = collection_of(frame, VERB), options.policy
    collection.check(("id", "source"), VERB)
    keys, notes = _keys(collection, name)
    opened = options.open(dataset)
    selected = opened.select(tuple(options.only), options.prune)
    partitions = cut(selected, None, options.partition_bytes, with_text=False)
    _check_partitions(collection, partitions, options.partition_bytes)
    plan = _plan(opened, selected, name, options.format, policy, sorted(keys), notes)
    if keys and not options.overwrite:
        _check_columns(plan, name, keys.keys())
    writing = Writing(plan, work_folder(opened.root, VERB, name), options.overwrite)
    writing.check()
    writer = AttributesWriter(opened.root, name, options.format, policy, opened.source, writing.work.url)
    needed = [
        column for column in collection.columns or () if column == "text" or not is_of_documents(column)
    ]
    written = _tasks(collection.select(["id", "source", *needed]), partitions, writer, writing.work)
    last = last_task(VERB, partial(_publish, writing, name), written)
    return computed(last, writing.work, f"{opened.root}, attributes/{name}", options)


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
        columns = {key.partition(".")[0] for key in record.info.get("kinds", ())} if record else set()
        lost = sorted(columns - keys)
        if lost:
            raise UsageError(
                f"attribute set {name} of {plan.root} holds {', '.join(lost)}, which the columns given now are not, first in {task.shard}; expected "
                "another name or the same columns. Read the set beside the others and write all, or replace it with overwrite=True."
            )


def _publish(writing: Writing, name: str, staged: Sequence[StagedFiles]) -> Summary:
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
    return {key.partition(".")[0] for key in first}


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

    params = {"set": name, **opened.params, "max_record_bytes": policy.max_record_bytes}
    key = work_key(VERB, VERSION, params)
    layout.check_no_collision([layout.with_format(shard.path, file_format) for shard in opened.shards])
    tasks = [
        Task(shard.path, (Unit(path(shard), key),), inputs_of(opened.root, [shard_info(shard)]))
        for shard in selected.shards
    ]
    shown = {"name": name, "format": file_format, **opened.params, "keys": list(keys)}
    every = list(map(path, opened.shards))
    stage = MoveStage(VERB, opened.root)
    plan = attribute_plan(stage, opened, (name,), tasks, every, without_empty(shown), notes=notes)
    return replace(plan, max_bad_fraction=budget(policy))


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
