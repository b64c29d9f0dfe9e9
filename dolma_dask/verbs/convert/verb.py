"""convert: raw files of any known kind -> documents in the Dolma layout, with stable ids and nothing lost.

One output shard per input file keeps names traceable; text files, which hold one document each, are put together. With `shard_bytes`
small inputs share a shard and large ones are cut; with `combine` published files share one by language. Memory: a few blocks per worker.
"""

import inspect
import posixpath
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Unpack, get_args

import numpy as np
import pyarrow as pa

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import matches, share_of
from dolma_dask.display import counted, listed
from dolma_dask.engine import Plan, Task, Unit, grouped, inputs_of
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.formats.documents import text_bytes
from dolma_dask.formats.json.attributes import Form
from dolma_dask.formats.layout import FileFormat
from dolma_dask.functions.calls import FunctionLike, UserFunction, user_function
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.options.shared import (
    Many,
    ReadArgs,
    as_dataset,
    budget,
    check_choice,
    checked,
    record_policy,
    run_options,
    skipped_notes,
    without_empty,
    words_of,
)
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.documents import open_writer
from dolma_dask.sources import CONVERTER_VERSION, FieldMapping, RawShard, open_sources, plan_shards, preset
from dolma_dask.sources.functions import FUNCTION_VERSION, documents_of
from dolma_dask.sources.mapping import Combine, group_of, is_sibling, place_of
from dolma_dask.sources.naming import list_raw
from dolma_dask.sources.plan import combined, is_text
from dolma_dask.sources.text import own_fields
from dolma_dask.verbs.convert.attributes import check_convertible, convert_attributes

COMBINED_BYTES = 1_000_000_000
"""Stored bytes of the raw files of a shard in which they are combined, by default."""

VERSION = 2
"""Raised whenever convert writes other bytes for the same raw file."""


def convert(
    inputs: Annotated[Sequence[str] | str, Many],
    /,
    *,
    to: str,
    mapping: str = "dolma",
    id: str | None = None,
    text: str | None = None,
    source_field: str | None = None,
    added: str | None = None,
    created: str | None = None,
    source: str | None = None,
    metadata: Annotated[Sequence[str] | None, Many] = None,
    generated_id: str | None = None,
    function: FunctionLike | None = None,
    under: str | None = None,
    shard_bytes: int | None = None,
    combine: Combine | None = None,
    format: FileFormat = "jsonl.gz",
    attributes: str | None = None,
    form: Form = "nested",
    rename: str | None = None,
    **options: Unpack[ReadArgs],
) -> Summary:
    """Turn raw files into documents: .jsonl .json .jsonl.gz .jsonl.zst .jsonl.zst.tar .parquet .txt .md, files, folders and globs.

    Example: dolma-dask convert raw/c4 --to corpus/c4/v0 --mapping c4

    Parameters
    ----------
    inputs : list of str
        Files, folders or globs, local or URLs.
    to : str
        Root of the dataset; its documents/ is written.
    mapping : str, optional
        Field names of published data: dolma, c4, fineweb, pile, redpajama_v1, redpajama_v2, refinedweb, slimpajama, wikipedia. Signals,
        MinHash and duplicates of redpajama_v2 among the inputs are left out, and its ids are the published ones.
    id : str, optional
        Field that becomes the id; a dot goes into objects (meta.id). Records without an id get one from file and row.
    text : str, optional
        Field that becomes the text; a dot goes into objects (content.body). Text files are taken as they are, with their paths as ids.
    added : str, optional
        Field that becomes the time stamp added.
    created : str, optional
        Field that becomes the time stamp created.
    source_field : str, optional
        Field that holds the source.
    source : str, optional
        Source of all records, or of those without the field.
    metadata : list of str, optional
        Further fields to keep under metadata; by default all, byte for byte.
    generated_id : str, optional
        Pattern of the ids of records without one, over {path} and {stem} (below the input folder), {place} (the file and two folders
        above it) and {row}; default "{stem}-{row:08d}".
        With `under`, that folder stands before it, so that ids of different sources differ; not with {place}.
    function : str, optional
        A function of yours in place of a mapping, file.py:name or module:name. From Python also the function itself. It gets each record as a dict, the
        JSON object or a table's row (of a text file id, text and path), and returns a document, a dict with text and whatever else it should hold, several
        in a list, or nothing. From the second document of a record on, generated ids end in -1, -2 and so on.
    under : str, optional
        Folder below documents/ to write to, so that several sources can be converted into one dataset.
    shard_bytes : int, optional
        Bytes of JSON per output shard, about; by default one shard per input file. With `combine`, stored bytes of the input files of a shard; by
        default 1,000,000,000.
    combine : {"language", "bucket"}, optional
        Put the files of each language, or of each language and bucket, of redpajama_v2 together: shards such as en/00000.jsonl.gz or
        en_head/00000.jsonl.gz, each of neighbouring whole files. Few files are made of many, for file systems that count them.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the documents.
    attributes : str, optional
        Instead of raw files, convert this attribute set of the dataset `inputs`; `to` is the same dataset.
    form : {"nested", "flat"}, optional
        Form of the converted attributes: that of the Dolma toolkit, or keys at the top level.
    rename : str, optional
        Name of the converted attribute set; default: the old name with the form behind it.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some files failed.
    BadRecordBudgetError
        More records are bad than `max_bad_fraction` allows; other verbs refuse the dataset until it is mended.
    UsageError
        A file has an unknown suffix, or no file was found; the function cannot be used; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Members of tar archives that are no files, such as links, and hidden ones are skipped, counted and named in a note.
    """
    given = locals()
    options = checked(convert, options, ReadArgs)
    inputs = words_of("inputs", inputs)
    check_choice("format", format, layout.FORMATS)
    check_choice("form", form, get_args(Form))
    if combine is not None:
        check_choice("combine", combine, get_args(Combine))
    if attributes is not None:
        defaults = inspect.signature(convert).parameters
        raw = [name for name in _RAW_OPTIONS if given[name] != defaults[name].default]
        dataset = as_dataset(check_convertible(inputs, raw, options), source)
        if layout.dataset_root(files.normalize(to)) != dataset.root:
            raise UsageError(
                f"attributes are converted inside their dataset {dataset.root}; expected --to {dataset.root}, found {to}."
            )
        return convert_attributes(dataset, attributes, form=form, rename=rename, **options)
    if rename is not None or form != "nested":
        raise UsageError("form and rename are of attributes; expected the set to convert in attributes too.")
    if shard_bytes is not None and shard_bytes < 1:
        raise UsageError(
            f"shard_bytes={shard_bytes}; expected a number of bytes from 1 on, such as 1000000000."
        )
    made_by = None
    if function is not None:
        defaults = inspect.signature(convert).parameters
        check_alone([name for name in MAPPING_OPTIONS if given[name] != defaults[name].default])
        made_by = user_function(function, ("record",))
    published = preset(mapping)
    base, found = list_raw(inputs)
    raw_files = [info for info in found if not is_sibling(mapping, info.path)]
    left_out = len(found) - len(raw_files)
    if not raw_files:
        raise UsageError(
            f"{base} holds {counted(left_out, 'file')} of signals, MinHash or duplicates of {mapping}, the first {found[0].path}; expected documents. Name their folder."
        )
    folder = _folder(under)
    fields = _mapping(
        published,
        id=id,
        text=text,
        source=source_field,
        added=added,
        created=created,
        source_name=source,
        metadata_fields=None if metadata is None else words_of("metadata", metadata, may_be_empty=True),
        generated_id=generated_id,
    )
    if "{place}" not in fields.generated_id:  # a place differs between sources by itself
        fields = replace(fields, generated_id=folder + fields.generated_id)
    target = layout.dataset_root(files.normalize(to))
    _check_outside(inputs, target)
    policy = record_policy(options)
    planned = plan_shards(raw_files)
    if combine is None:
        stage = ConvertStage(target, base, fields, shard_bytes, policy, function=made_by)
        shards = _outputs(planned, shard_bytes, format, folder)
    else:
        stage = ConvertStage(target, base, fields, None, policy, is_combined=True, function=made_by)
        together = combined(planned, partial(group_of, mapping, combine), shard_bytes or COMBINED_BYTES)
        shards = _outputs(together, None, format, folder)
    every = frozenset(layout.document_path(shard.path) for shard in shards)
    requested = _selected(shards, options)
    plan = Plan(
        stage=stage,
        root=target,
        tasks=[stage.task(shard) for shard in requested],
        params=without_empty(
            {
                "inputs": base,
                "mapping": fields.canonical(),
                "function": made_by and made_by.name,
                "function_version": made_by and made_by.version,
                "under": under,
                "shard_bytes": shard_bytes,
                "combine": combine,
                "format": format,
            }
        ),
        writes=(f"{layout.DOCUMENTS}/{folder}",),
        options_key=stage.key(base=base),
        version=dolma_dask.__version__,
        origin=base,
        how_to_add="Another source goes beside them with --under FOLDER. ",
        reads=layout.DOCUMENT_SUFFIXES,
        all_units=every,
        other_formats=layout.other_formats(every),
        max_bad_fraction=budget(policy),
    )
    ran = engine.run(plan, run_options(options))
    without: tuple[str, ...] = (
        (f"{counted(left_out, 'file')} left out, which hold no documents of {mapping}",) if left_out else ()
    )
    if combine is not None:
        without += (f"{counted(len(raw_files), 'raw file')} became {counted(len(shards), 'shard')}",)
    if bad := ran.summary.counts.get("bad_records"):
        folder = files.join(target, f"{layout.QUARANTINE}/convert")
        without += (f"{counted(int(bad), 'record')} set aside in {folder}/",)
    return replace(ran.summary, notes=(*ran.summary.notes, *without, *skipped_notes(ran.records.values())))


MAPPING_OPTIONS = ("mapping", "id", "text", "source_field", "added", "created", "metadata")
"""Options that say which field is what."""

_RAW_OPTIONS = (*MAPPING_OPTIONS, "generated_id", "function", "under", "shard_bytes", "combine", "format")  # fmt: skip
"""Options for raw files alone."""


def check_alone(given: Sequence[str]) -> None:
    """Refuse options of a mapping beside a function."""
    if given:
        raise UsageError(
            f"function and {', '.join(given)} both say which field becomes what; expected one of them. Leave {listed(given)} out; source and "
            "generated_id fill in what a document of the function lacks."
        )


def _folder(under: str | None) -> str:
    """Return the checked folder below ``documents/``, which also begins generated ids: they differ between sources."""
    parts = under.strip("/").split("/") if under is not None else []
    return "".join(f"{layout.check_name(part, 'folder')}/" for part in parts)


def _check_outside(inputs: Sequence[str], target: str) -> None:
    """Refuse a target inside of an input folder: the next run would read the documents as raw files."""
    documents = files.resolved(files.join(target, layout.DOCUMENTS))
    for item in inputs:
        folder = files.resolved(files.normalize(item))
        if f"{documents}/".startswith(f"{folder}/"):
            raise UsageError(
                f"convert to {target} would write into its own input {item}; expected a folder outside of it."
            )


def _mapping(base: FieldMapping, **fields: Any) -> FieldMapping:
    """Return `base` with the fields that are given."""
    return replace(base, **{name: value for name, value in fields.items() if value is not None})


def _outputs(
    shards: Sequence[RawShard], shard_bytes: int | None, file_format: FileFormat, folder: str
) -> list[RawShard]:
    """Return the shards with the paths that they are written to; with `shard_bytes`, neighbours share one."""
    if shard_bytes is None:
        return [replace(shard, path=folder + layout.with_format(shard.path, file_format)) for shard in shards]
    return [
        RawShard(
            f"{folder}shard-{number:05d}.{file_format}",
            tuple(info for shard in group for info in shard.files),
        )
        for number, group in enumerate(grouped(shards, lambda shard: shard.bytes, shard_bytes))
    ]


def _selected(shards: Sequence[RawShard], options: ReadArgs) -> Sequence[RawShard]:
    only, prune = tuple(options.get("only", ())), options.get("prune")
    if prune is not None and prune < 1:
        raise UsageError(f"prune={prune} leaves no shard; expected 1 or more.")
    kept = [shard for shard in shards if not only or _is_named(shard, only)]
    if not kept:
        raise UsageError(f"no input matches {' '.join(only)!r}; the first output is {shards[0].path!r}.")
    return share_of(kept, options.get("share"))[:prune]


def _is_named(shard: RawShard, only: Sequence[str]) -> bool:
    return any(matches(path, only) for path in (shard.path, *(info.path for info in shard.files)))


@dataclass(frozen=True)
class ConvertStage:
    """The work of `convert` on the raw files of one shard."""

    # of the dataset, and the raw folder
    target: str
    base: str
    mapping: FieldMapping  # which field is what
    shard_bytes: int | None  # bytes of JSON after which a further part begins
    policy: RecordPolicy = field(default_factory=RecordPolicy)  # what happens to bad records
    is_combined: bool = False  # records tell of which published files a shard was made
    function: UserFunction | None = None  # in place of the mapping
    verb: str = "convert"

    def key(self, **more: Any) -> str:
        """Return the digest of the options and of `more`."""
        params: dict[str, Any] = {
            "mapping": self.mapping.canonical(),
            "converter": CONVERTER_VERSION,
            "shard_bytes": self.shard_bytes,
            "max_record_bytes": self.policy.max_record_bytes,
            "on_bad_record": self.policy.on_bad_record,
        }
        if self.function is not None:
            params |= {"function": self.function.version, "function_version": FUNCTION_VERSION}
        return work_key(self.verb, VERSION, {**params, **more})

    def task(self, shard: RawShard) -> Task:
        """Return the work on one shard."""
        paths = [info.path for info in shard.files]
        more: dict[str, Any] = (
            {"places": self._places(shard)} if "{place}" in self.mapping.generated_id else {}
        )
        if self.function is None and self.mapping != own_fields(self.mapping) and any(map(is_text, paths)):
            more["text_files"] = 2  # before, the fields of records were looked for in them
        unit = Unit(layout.document_path(shard.path), self.key(files=paths, **more))
        return Task(shard.path, (unit,), inputs_of(self.base, shard.files), shard)

    def _places(self, shard: RawShard) -> list[str]:
        return [place_of(files.join(self.base, info.path)) for info in shard.files]

    def run_shard(self, task: Task) -> list[Record]:
        """Convert one shard; see `dolma_dask.engine.Stage`."""
        shard: RawShard = task.work
        unit = task.units[0]
        quarantine = Quarantine(self.policy)
        digests = DocumentDigests()
        names = ("documents_in", "documents_out", "text_bytes_out")
        counts = dict.fromkeys((*names, *(("records_dropped", "records_split") if self.function else ())), 0)
        inputs: list[InputRecord] = []
        with _Parts(self.target, unit.name, self.shard_bytes) as parts:
            for batch in self._documents(shard, quarantine, counts, inputs):
                digests.update(batch)
                counts["documents_out"] += batch.num_rows
                counts["text_bytes_out"] += text_bytes(batch.column("text"))
                parts.write(batch.column("raw"))
        self._remove_left_over(unit.name, {item.path for item in parts.records})
        kept = quarantine.publish(self.target, self.verb, shard.path)
        record = Record(
            unit=unit.name,
            shard=shard.path,
            key=unit.key,
            inputs=tuple(inputs),
            files=(*parts.records, *kept),
            rows=counts["documents_out"],
            ids_digest=digests.ids,
            content_digest=digests.content,
            counts={
                **counts,
                "bad_records": quarantine.count,
                **({"skipped_members": quarantine.skipped} if quarantine.skipped else {}),
                "bytes_in": task.bytes,
                "bytes_out": sum(item.bytes for item in parts.records),
            },
            info={
                **({"skipped_members": quarantine.skipped_names} if quarantine.skipped else {}),
                **({"places": self._places(shard)} if self.is_combined else {}),
            },
        )
        return [record]

    def _documents(
        self, shard: RawShard, quarantine: Quarantine, counts: dict[str, int], inputs: list[InputRecord]
    ) -> Iterator[pa.RecordBatch]:
        limit = self.policy.max_record_bytes
        sources = open_sources(
            self.base, shard.files, self.mapping, max_record_bytes=limit, function=self.function
        )
        for source in sources:
            for block in source.read(inputs):
                quarantine.admit(block)
                counts["documents_in"] += block.num_rows
                if self.function is not None:
                    sizes = block.batch.column("id").value_lengths().drop_null().to_numpy()
                    counts["records_dropped"] += int((sizes == 0).sum())
                    counts["records_split"] += int((sizes > 1).sum())
                    yield documents_of(block.batch)
                    continue
                yield block.batch.filter(block.batch.column("id").is_valid()) if block.bad else block.batch

    def _remove_left_over(self, unit: str, written: Set[str]) -> None:
        """Remove further parts that a killed run may have left: there may be fewer of them now."""
        if self.shard_bytes is None:
            return
        folder = posixpath.dirname(unit)
        for info in files.list_files(files.join(self.target, folder)):
            path = f"{folder}/{info.path}"
            if layout.unit_of(path) == unit and path not in written:
                files.remove(files.join(self.target, path))


class _Parts:
    """Writes rows to the unit's file and, each time `shard_bytes` are reached, goes on in a further part."""

    def __init__(self, root: str, unit: str, shard_bytes: int | None) -> None:
        self._root = root
        self._unit = unit
        self._limit = shard_bytes
        self._size = 0
        self.records: list[FileRecord] = []

    def __enter__(self) -> "_Parts":
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._stack.__exit__(kind, error, None)
        if kind is None:
            self.records.append(self._writer.record)

    def _open(self) -> None:
        index = len(self.records)
        path = layout.part_path(self._unit, index) if index else self._unit
        self._stack = ExitStack()
        self._writer = open_writer(self._root, path)
        self._stack.enter_context(self._writer)
        self._size = 0

    def write(self, rows: pa.LargeBinaryArray) -> None:
        while self._limit is not None and len(rows):
            if self._size >= self._limit:
                self.__exit__(None, None, None)
                self._open()
            ends = np.frombuffer(rows.buffers()[1], np.int64)[rows.offset : rows.offset + len(rows) + 1]
            stop = min(int(np.searchsorted(ends[1:], ends[0] + self._limit - self._size)) + 1, len(rows))
            self._writer.write(rows.slice(0, stop))
            self._size += int(ends[stop] - ends[0])
            rows = rows.slice(stop)
        self._writer.write(rows)
