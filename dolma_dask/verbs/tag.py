"""tag: run any set of taggers over every document in one pass and write one attribute file per shard and set.

Memory: a few blocks per worker. The attribute file has the document file's path, name and number of rows; its record in the journal
proves which documents it belongs to. A document that cannot be read keeps its row, with an error in it, and makes the exit status 1.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import Dataset, Shard, shard_info
from dolma_dask.engine import Plan, Task, Unit, inputs_of
from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import AttributeColumn, attribute_key
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.formats.documents import text_bytes
from dolma_dask.formats.json.write import DECIMALS
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.artifacts import Artifacts
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import join
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block
from dolma_dask.journal import Journal, Record, dataset_notes, work_key
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
)
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.attributes import ROW_GROUP_SPANS, AttributeWriter
from dolma_dask.taggers.base import Tagger, ViewTagger
from dolma_dask.taggers.lifting import as_tagger
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.text.view import TextView

VERSION = 2
"""Raised whenever the bytes of an attribute file change for the same tagger output."""


TaggerLike = str | Tagger | Callable[..., Any]
"""A tagger, a function that becomes one, or the name or place of either."""


def tag(
    dataset: DatasetLike,
    /,
    taggers: Annotated[Sequence[TaggerLike] | TaggerLike, Many],
    *,
    experiment: str | None = None,
    artifacts: str | None = None,
    format: FileFormat | None = None,
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[RecordArgs],
) -> Summary:
    """Run taggers over every document, in one pass, and write their attributes beside the documents.

    Example: dolma-dask tag corpus/wiki/v0 --taggers gopher_v2 char_length_v1

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    taggers : list of str
        Names of taggers (see: dolma-dask list), or places of yours, file.py:name or module:name: a tagger, or a function of one text with a type
        for what it returns. From Python also the objects, or one without a list.
    experiment : str, optional
        Write the attributes of all taggers to this one attribute set; by default each tagger has a set of its own name.
    artifacts : str, optional
        Folder with files that taggers use: for redpajama_v2_doc lists of words as bad_words/en.txt, a phrase a line, and stop_words/en.txt in place of its own, and the
        numbers of domains in bad_urls/domain_to_category_id.json, or the lists of UT1 as blacklists/adult/domains.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some shards failed.
    UsageError
        An unknown tagger, or an attribute set that this command did not make; or an argument is unknown, or has a value that it
        cannot have.

    Notes
    -----
    With on_bad_record="quarantine" every bad record keeps its row, with an error in it, and one of them makes the exit status 1.
    """
    options = checked(tag, options, RecordArgs)
    taggers = [taggers] if isinstance(taggers, str) or callable(taggers) else taggers
    check_format(format)
    opened = as_dataset(dataset, source, version)
    objects = [_tagger(item) for item in taggers]
    sets = _sets(objects, experiment)
    used = Artifacts() if artifacts is None else Artifacts.of(artifacts, objects)
    stage = TagStage(opened.root, opened.source, sets, format, record_policy(options), used)
    layout.check_no_collision([layout.with_format(shard.path, format) for shard in opened.shards])
    names = [tagger.name for set_ in sets.values() for tagger in set_]
    shards = selected(opened, options).shards
    plan = Plan(
        stage=stage,
        root=opened.root,
        tasks=[stage.task(shard) for shard in shards],
        params=without_empty(
            {
                "taggers": names,
                "experiment": experiment,
                "artifacts": used.folder or None,
                "format": format,
                "source": source,
            }
        ),
        writes=tuple(f"{layout.ATTRIBUTES}/{name}/" for name in sets),
        version=dolma_dask.__version__,
        other_formats=layout.other_formats(stage.paths(shards), stage.paths(opened.shards)),
        bad_is_loss=True,
        notes=dataset_notes(opened),
    )
    lost = {} if options.get("overwrite") else _lost(opened, stage)
    if lost:
        path, names = next(iter(lost.items()))
        raise UsageError(
            f"{opened.root}/{path} holds the attributes of {', '.join(names)}, which are not requested now, and {len(lost) - 1} more; expected "
            "free paths. Choose another --experiment or the same taggers, or replace them with --overwrite."
        )
    return engine.run(plan, run_options(options)).summary


def _lost(dataset: Dataset, stage: "TagStage") -> dict[str, list[str]]:
    """Return finished files of the sets that hold other taggers than are requested now, and these."""
    shards = {layout.stem_of(shard.path): shard for shard in dataset.shards}
    lost: dict[str, list[str]] = {}
    for path, record in Journal(dataset.root, stage.verb).by_file().items():
        name, _, rest = path.removeprefix(f"{layout.ATTRIBUTES}/").partition("/")
        shard = shards.get(layout.stem_of(rest))
        if name not in stage.sets or shard is None or record.shard != shard.path:
            continue
        others = sorted(set(record.info.get("taggers", ())) - {tagger.name for tagger in stage.sets[name]})
        if others and files.stat(dataset.url(path)):
            lost[path] = others
    return lost


def _tagger(item: TaggerLike) -> Tagger:
    return get_tagger(item) if isinstance(item, str) else as_tagger(item)


def _sets(taggers: Sequence[Tagger], experiment: str | None) -> dict[str, tuple[Tagger, ...]]:
    if not taggers:
        raise UsageError(
            "no taggers were given; expected names such as gopher_v2. See them all: dolma-dask list."
        )
    names = [tagger.name for tagger in taggers]
    if len(set(names)) < len(names):
        raise UsageError(f"a tagger was given twice in {names}; expected each once.")
    if experiment is not None:
        return {layout.check_name(experiment, "experiment"): tuple(taggers)}
    return {tagger.name: (tagger,) for tagger in taggers}


@dataclass(frozen=True)
class TagStage:
    """The work of `tag` on one shard."""

    root: str  # of the dataset
    source: str | None  # source of documents that lack the field
    sets: Mapping[str, tuple[Tagger, ...]]  # attribute sets to write, and what goes into each
    file_format: FileFormat | None  # none: that of the document file
    policy: RecordPolicy = field(default_factory=RecordPolicy)  # what happens to bad records
    artifacts: Artifacts = field(default_factory=Artifacts)  # files that taggers use
    verb: str = "tag"

    def task(self, shard: Shard) -> Task:
        """Return the work on `shard`: one unit per attribute set."""
        units = tuple(Unit(self.path(name, shard), self.key(name)) for name in self.sets)
        return Task(shard.path, units, inputs_of(self.root, [shard_info(shard)]), shard)

    def path(self, name: str, shard: Shard) -> str:
        """Return where the set `name` of a shard is written."""
        return layout.attribute_path(name, shard.path, self.file_format)

    def paths(self, shards: Iterable[Shard]) -> list[str]:
        """Return where all sets of some shards are written."""
        return [self.path(name, shard) for shard in shards for name in self.sets]

    def key(self, name: str) -> str:
        """Return the key of the set: taggers, their versions and parameters, and what reading depends on."""
        taggers = [
            [tagger.name, str(tagger.version), tagger.params, list(tagger.types)]
            for tagger in self.sets[name]
        ]
        has_spans = any("spans" in tagger.types.values() for tagger in self.sets[name])
        used = {tagger.name: self.artifacts.used_by(tagger) for tagger in self.sets[name]}
        params = {
            **without_empty({"artifacts": {tagger: found for tagger, found in used.items() if found}}),
            **({"span_groups": ROW_GROUP_SPANS} if has_spans else {}),
            "set": name,
            "taggers": taggers,
            "source": self.source,
            "max_record_bytes": self.policy.max_record_bytes,
        }
        return work_key(self.verb, VERSION, params)

    def run_shard(self, task: Task) -> list[Record]:
        """Tag one shard; see `dolma_dask.engine.Stage`."""
        shard: Shard = task.work
        requested = {unit.name: unit for unit in task.units}
        sets = [name for name in self.sets if self.path(name, shard) in requested]
        taggers = {name: self.artifacts.all_loaded(self.sets[name]) for name in sets}
        reads = {column for name in sets for tagger in self.sets[name] for column in tagger.reads}
        columns = tuple(dict.fromkeys(("id", "text", "source", *sorted(reads))))
        document = layout.document_path(shard.path)
        reader = DocumentFile(
            join(self.root, document),
            columns,
            source=self.source,
            max_record_bytes=self.policy.max_record_bytes,
        )
        quarantine = Quarantine(self.policy)
        digests = DocumentDigests()
        counts: dict[str, float] = dict.fromkeys(("documents_in", "text_bytes"), 0)
        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(AttributeWriter(self.root, self.path(name, shard))) for name in sets
            }
            kinds: dict[str, dict[str, str | None]] = {name: {} for name in sets}
            view = None
            for block in reader:
                quarantine.admit(block)
                digests.update(block.batch)
                counts["documents_in"] += block.num_rows
                counts["text_bytes"] += text_bytes(block.batch.column("text"))
                view = _write(block, taggers, writers, kinds, view)
            kept = quarantine.publish(self.root, self.verb, shard.path)
        source = reader.stored.record(document)
        totals = {**counts, "bad_records": quarantine.count}
        return [
            Record(
                unit=self.path(name, shard),
                shard=shard.path,
                key=requested[self.path(name, shard)].key,
                inputs=(source,),
                files=(writers[name].record, *(kept if index == 0 else ())),
                rows=int(counts["documents_in"]),
                ids_digest=digests.ids,
                content_digest=digests.content,
                counts=totals,
                info=self._info(name, kinds[name]),
            )
            for index, name in enumerate(sets)
        ]

    def _info(self, name: str, kinds: Mapping[str, str | None]) -> dict[str, Any]:
        """Return what readers of the attributes need: the kind of each key, and which columns the set depends on."""
        reads = sorted({column for tagger in self.sets[name] for column in tagger.reads})
        info: dict[str, Any] = {"reads": reads, "taggers": [tagger.name for tagger in self.sets[name]]}
        return info if None in kinds.values() else {**info, "kinds": dict(kinds)}


def _write(
    block: Block,
    taggers: Mapping[str, Sequence[Tagger]],
    writers: Mapping[str, AttributeWriter],
    kinds: dict[str, dict[str, str | None]],
    previous: TextView | None,
) -> TextView:
    batch = _readable(block)
    view = TextView(batch.column("text"), previous)
    errors = {
        record.row - block.first_row: f"{record.reason}: expected {record.expected}" for record in block.bad
    }
    ids, sources = block.batch.column("id"), block.batch.column("source")
    for name, writer in writers.items():
        try:
            columns = [column for tagger in taggers[name] for column in _columns(name, tagger, batch, view)]
        except DataError as error:
            raise _located(error, block.first_row) from error
        kinds[name].update(pair for column in columns for pair in _read_kinds(column))
        writer.write(ids, sources, view.lengths, columns, errors)
    return view


def _located(error: DataError, first_row: int) -> DataError:
    """Return the error of a tagger with the row in the file in place of that in the batch."""
    row = error.details.get("row")
    if not isinstance(row, int):
        return error
    message = str(error).replace(f"row {row} of the batch", f"row {first_row + row}")
    return DataError(message, **{**error.details, "row": first_row + row})


def _columns(name: str, tagger: Tagger, batch: pa.RecordBatch, view: TextView) -> list[AttributeColumn]:
    if isinstance(tagger, ViewTagger):
        result, decimals = tagger.of_view(view, batch), tagger.decimals
    else:
        result, decimals = tagger(batch.select(list(tagger.reads))), DECIMALS
    return [
        AttributeColumn(
            attribute_key(name, tagger.name, output), kind, result.column(output), decimals=decimals
        )
        for output, kind in tagger.types.items()
    ]


def _read_kinds(column: AttributeColumn) -> list[tuple[str, str | None]]:
    """Return under which keys and kinds a reader finds a column; None where only the rows can tell."""
    kind = column.values.type
    if column.kind != "scalar" and column.kind != "dict":
        return [(column.key, column.kind)]
    if column.kind == "dict":
        members = kind.num_fields if pa.types.is_struct(kind) else 0
        return [(f"{column.key}.{kind.field(i).name}", "dict") for i in range(members)] or [
            (column.key, None)
        ]
    if pa.types.is_boolean(kind):
        return [(column.key, "bool")]
    is_text = pa.types.is_large_string(kind) or pa.types.is_string(kind)
    return [(column.key, "string" if is_text else "number")]


def _readable(block: Block) -> pa.RecordBatch:
    """Return the batch with empty strings for rows that could not be read: taggers see no nulls."""
    if not block.bad and not any(column.null_count for column in block.batch.columns):
        return block.batch
    columns = [pc.fill_null(column, "") for column in block.batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=block.batch.schema.names)
