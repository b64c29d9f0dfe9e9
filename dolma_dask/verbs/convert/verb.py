"""convert: raw files of any known kind -> documents in the Dolma layout, with stable ids and nothing lost.

One output shard per input file keeps names traceable; text files, which hold one document each, are put together. With `shard_bytes`
small inputs share a shard and large ones are cut; with `combine` published files share one by language. Memory: a few blocks per worker.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from msgspec.structs import replace

from dolma_dask import engine
from dolma_dask.dataset import matches, share_of
from dolma_dask.display import counted, listed
from dolma_dask.engine import Plan, Unit, grouped
from dolma_dask.engine.documents import DocumentStage, document_plan
from dolma_dask.errors import Failure, StageError, UsageError
from dolma_dask.extras import require
from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import Form
from dolma_dask.formats.layout import FileFormat
from dolma_dask.functions.calls import FunctionLike, user_function
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Record, work_key
from dolma_dask.options.base import OUTPUT, Opt, fields_of, without_empty
from dolma_dask.options.command import command
from dolma_dask.options.groups import ShardOptions, SkipOptions, as_dataset, same
from dolma_dask.options.records import RecordOptions, skipped_notes
from dolma_dask.reading.tombstones import tombstones_above
from dolma_dask.results.summary import Summary
from dolma_dask.sources import FieldMapping, RawShard, plan_shards, preset, with_parts
from dolma_dask.sources.encoding import known_encoding
from dolma_dask.sources.inline import POST_SKIPPED, PRE_SKIPPED
from dolma_dask.sources.mapping import Combine, group_of, is_sibling
from dolma_dask.sources.naming import list_raw, sorted_out, unread
from dolma_dask.sources.pages import Extractor, Pages
from dolma_dask.sources.plan import combined, is_single
from dolma_dask.taggers.scoring import locked_seconds
from dolma_dask.verbs.convert.attributes import check_convertible, convert_attributes
from dolma_dask.verbs.convert.documents import Conversion, PartsOutput, RawDocuments
from dolma_dask.verbs.convert.inline import InlineOptions, check_archives

COMBINED_BYTES = 1_000_000_000
"""Stored bytes of the raw files of a shard in which they are combined, by default."""

VERSION = 2
"""Raised whenever convert writes other bytes for the same raw file."""


_OF_FILES = re.compile(r"\{(?:path|place|stem)\b")
"""What tells files apart in a pattern of ids."""

_NAMED = 12
"""Kinds of records without documents that a note names."""

_OF_MAPPING = ("mapping", "id", "text", "source_field", "added", "created", "metadata")
"""Options that say which field is what."""

_OF_ATTRIBUTES = frozenset(
    {
        "to",
        "source",
        "attributes",
        "form",
        "rename",
        "skip",
        *(field.name for field in fields_of(ShardOptions)),
    }
)
"""Options that attributes are converted with; the others are for raw files."""


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(InlineOptions, RecordOptions, SkipOptions):
    """Options of `convert`."""

    to: Annotated[str, Opt("Root of the dataset; its documents/ is written.", group=OUTPUT)]
    mapping: Annotated[
        str,
        Opt(
            "Field names of published data: dolma, c4, fineweb, pile, redpajama_v1, redpajama_v2, refinedweb, slimpajama, wikipedia. Signals, "
            "MinHash and duplicates of redpajama_v2 among the inputs are left out, and its ids are the published ones."
        ),
    ] = "dolma"
    id: Annotated[
        str | None,
        Opt(
            "Field that becomes the id; a dot goes into objects (meta.id). Records without an id get one from file and row."
        ),
    ] = None
    text: Annotated[
        str | None,
        Opt(
            "Field that becomes the text; a dot goes into objects (content.body). Text files are taken as they are, with their paths as ids."
        ),
    ] = None
    source_field: Annotated[str | None, Opt("Field that holds the source.")] = None
    added: Annotated[str | None, Opt("Field that becomes the time stamp added.")] = None
    created: Annotated[str | None, Opt("Field that becomes the time stamp created.")] = None
    source: Annotated[str | None, Opt("Source of all records, or of those without the field.")] = None
    metadata: Annotated[
        Sequence[str] | None,
        Opt("Further fields to keep under metadata; by default all, byte for byte.", may_be_empty=True),
    ] = None
    generated_id: Annotated[
        str | None,
        Opt(
            "Pattern of the ids of records without one, over {path} and {stem} (below the input folder), {place} (the file and two folders above "
            'it) and {row}; default "{stem}-{row:08d}". With `under`, that folder stands before it, so that ids of different sources differ; not '
            "with {place}."
        ),
    ] = None
    function: Annotated[
        FunctionLike | None,
        Opt(
            "A function of yours in place of a mapping, file.py:name or module:name. From Python also the function itself. It gets each record as "
            "a dict, the JSON object or a table's row (of a text file id, text and path), and returns a document, a dict with text and whatever "
            "else it should hold, several in a list, or nothing. From the second document of a record on, generated ids end in -1, -2 and so on.",
            convert=same,
        ),
    ] = None
    encoding: Annotated[
        str | None,
        Opt(
            "Encoding of text and JSON lines, such as latin-1 or utf-16; auto guesses it of each file that is not UTF-8 (names and accents among ASCII are taken for "
            "windows-1252). metadata.encoding names the encoding of what is not UTF-8. By default only UTF-8 is accepted.",
            kind="auto or an encoding",
            convert=known_encoding,
        ),
    ] = None
    store_html: Annotated[
        bool,
        Opt(
            "Keep the HTML of each web page in metadata.html, as taggers of licences (cc_re) read it.",
            is_flag=True,
        ),
    ] = False
    extractor: Annotated[
        Extractor, Opt("Package that finds the main text of web pages; each is an extra of its own.")
    ] = "resiliparse"
    under: Annotated[
        str | None,
        Opt(
            "Folder below documents/ to write to, so that several sources can be converted into one dataset; no other convert removes what lies there."
        ),
    ] = None
    shard_bytes: Annotated[
        int | None,
        Opt(
            "Approximate bytes of JSON per output shard; by default one shard per input file. With `combine`, stored bytes of the input files of a "
            "shard; by default 1,000,000,000.",
            min=1,
            expected="a number of bytes from 1 on, such as 1000000000",
        ),
    ] = None
    combine: Annotated[
        Combine | None,
        Opt(
            "Put the files of each language, or of each language and bucket, of redpajama_v2 together: shards such as en/00000.jsonl.gz or "
            "en_head/00000.jsonl.gz, each of neighbouring whole files. Few files are made of many, for file systems that count them."
        ),
    ] = None
    format: Annotated[FileFormat, Opt("Format of the documents.", group=OUTPUT)] = "jsonl.gz"
    attributes: Annotated[
        str | None,
        Opt(
            "Instead of raw files, convert this attribute set of the dataset `inputs`; `to` is the same dataset."
        ),
    ] = None
    form: Annotated[
        Form, Opt("Form of the converted attributes: that of the Dolma toolkit, or keys at the top level.")
    ] = "nested"
    rename: Annotated[
        str | None, Opt("Name of the converted attribute set; default: the old name with the form behind it.")
    ] = None

    def check(self) -> None:
        """Refuse options of attributes without these, and options of a mapping beside a function."""
        super().check()
        if self.attributes is not None:
            return
        if self.extractor == "trafilatura":
            require(self.extractor, "extractor='trafilatura'")
        if self.rename is not None or self.form != "nested":
            raise UsageError(
                "form and rename are of attributes; expected the set to convert in attributes too."
            )
        if self.function is not None:
            _check_alone([name for name in _OF_MAPPING if name in self.given()])
            if self.pre_taggers or self.post_taggers:
                raise UsageError(
                    "pre_taggers and post_taggers look at pages and their texts, and a function may make anything of them; expected one of both. Tag its documents afterwards: dolma-dask tag."
                )

    def field_mapping(self, folder: str) -> FieldMapping:
        """Return which field is what; generated ids begin with a folder, since they differ between sources."""
        given: dict[str, Any] = {
            "id": self.id,
            "text": self.text,
            "source": self.source_field,
            "added": self.added,
            "created": self.created,
            "source_name": self.source,
            "metadata_fields": self.metadata,
            "generated_id": self.generated_id,
        }
        known = {name: value for name, value in given.items() if value is not None}
        fields = replace(preset(self.mapping), **known)
        if "{place}" in fields.generated_id:  # a place differs between sources by itself
            return fields
        return replace(fields, generated_id=folder + fields.generated_id)


@command
def convert(
    inputs: Annotated[Sequence[str] | str, Opt("Files, folders or globs, local or URLs.")],
    /,
    *,
    options: ConvertOptions,
) -> Summary:
    """Turn raw files into documents: JSON lines, Parquet, CSV, text, web pages, WARC, mail, and tars of them; files, folders and globs.

    Example: dolma-dask convert raw/c4 --to corpus/c4/v0 --mapping c4

    To see what a folder holds, and the command that converts it: dolma-dask look raw

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some files failed, or are of no known kind and not named in `skip`.
    BadRecordBudgetError
        More records are bad than `max_bad_fraction` allows; other verbs refuse the dataset until it is mended.
    UsageError
        No file of a known kind was found; the function cannot be used; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Members of tar archives that are no files, such as links, and hidden ones are skipped, counted and named in a note.
    """
    if options.attributes is not None:
        return _attributes_converted(inputs, options.attributes, options)
    function = None if options.function is None else user_function(options.function, ("record",))
    folder = _folder(options.under)
    fields = options.field_mapping(folder)
    taggers = options.inline()
    base, raw_files, odd, left_out = _raw_files(inputs, options)
    target = layout.dataset_root(files.normalize(options.to))
    _check_outside(inputs, target)
    if taggers:
        check_archives(raw_files)
    _check_ids(fields, raw_files)
    shards = _shards(raw_files, folder, options)
    is_combined = options.combine is not None
    how = Conversion(
        base,
        fields,
        function,
        is_combined,
        options.encoding,
        tuple(options.skip or ()),
        Pages(options.extractor, options.store_html, taggers),
        tombstones_above(base).beside(tombstones_above(target)),
    )
    plan = _plan(target, how, shards, options)
    ran = _all_read(plan, odd, options)
    notes = [*ran.summary.notes, *left_out]
    if is_combined:
        notes.append(f"{counted(len(raw_files), 'raw file')} became {counted(len(shards), 'shard')}")
    if bad := ran.summary.counts.get("bad_records"):
        place = files.join(target, f"{layout.QUARANTINE}/convert")
        notes.append(f"{counted(int(bad), 'record')} set aside in {place}/")
    records = ran.records.values()
    notes += [*skipped_notes(records), *_encoding_notes(records), *_passed_notes(records)]
    notes += [*_left_out_notes(ran.summary), *taggers.artifacts.notes([*taggers.pre, *taggers.post])]
    return replace(ran.summary, notes=tuple(notes))


def _encoding_notes(records: Iterable[Record]) -> Iterator[str]:
    """Say how many files were in other encodings than UTF-8."""
    files_of: Counter[str] = Counter()
    for record in records:
        files_of.update(record.info.get("encodings", {}))
    if files_of:
        names = ", ".join(f"{name} {count:,}" for name, count in files_of.most_common())
        yield f"{counted(files_of.total(), 'file')} not in UTF-8: {names}; metadata.encoding of each document says so"


def _passed_notes(records: Iterable[Record]) -> Iterator[str]:
    """Say which records of archives of the web hold no documents."""
    passed: Counter[str] = Counter()
    for record in records:
        passed.update(record.info.get("passed_over", {}))
    if passed:
        names = ", ".join(f"{name} {count:,}" for name, count in passed.most_common(_NAMED))
        rest = passed.total() - sum(count for _, count in passed.most_common(_NAMED))
        more = f", others {rest:,}" if rest else ""
        yield f"{counted(passed.total(), 'record')} of WARC files passed over, which hold no page or text: {names}{more}"


def _left_out_notes(summary: Summary) -> Iterator[str]:
    """Say how many pages taggers have left out."""
    for name in (PRE_SKIPPED, POST_SKIPPED):
        if count := summary.counts.get(f"left_out_by_{name}"):
            yield f"{counted(int(count), 'page')} left out by {name}: its taggers found nothing there"


def _plan(target: str, how: Conversion, shards: Sequence[RawShard], options: ConvertOptions) -> Plan:
    """Return the plan of a run over the shards that are selected of all."""
    part_bytes = None if how.is_combined else options.shard_bytes
    taggers = how.pages.taggers
    locked = locked_seconds([*taggers.pre, *taggers.post])
    stage = DocumentStage((PartsOutput(target, part_bytes),), options.policy, "convert", locked=locked)

    def key(params: Mapping[str, Any]) -> str:
        return work_key("convert", VERSION, {"shard_bytes": part_bytes, **options.policy.params(), **params})

    sources = [RawDocuments(how, shard) for shard in _selected(shards, options)]
    params = {
        "inputs": how.base,
        "mapping": how.mapping.canonical(),
        "function": how.function and how.function.name,
        "function_version": how.function and how.function.version,
        "under": options.under,
        "shard_bytes": options.shard_bytes,
        "combine": options.combine,
        "encoding": options.encoding,
        "store_html": options.store_html or None,
        "extractor": None if options.extractor == "resiliparse" else options.extractor,
        "format": options.format,
        "pre_taggers": [tagger.name for tagger in taggers.pre],
        "pre_skip": taggers.pre_skip or None,
        "post_taggers": [tagger.name for tagger in taggers.post],
        "post_skip": taggers.post_skip or None,
        "artifacts": taggers.artifacts.folder or None,
    }
    plan = document_plan(
        stage,
        [stage.task(one, Unit(layout.document_path(one.name), key(one.params))) for one in sources],
        [layout.document_path(shard.path) for shard in shards],
        without_empty(params),
        key=key({**how.params, "base": how.base}),
        origin=how.base,
        folder=f"{layout.DOCUMENTS}/{_folder(options.under)}",
    )
    another = "another " if options.under else ""
    return replace(plan, how_to_add=f"Another source goes beside them with {another}--under FOLDER. ")


def _attributes_converted(inputs: Sequence[str], name: str, options: ConvertOptions) -> Summary:
    """Convert an attribute set; refuse what is for raw files."""
    raw = [given for given in options.given() if given not in _OF_ATTRIBUTES]
    folder = check_convertible(inputs, raw)
    dataset = as_dataset(folder, options.source, skip=options.skip, ids_as_text=True)
    if layout.dataset_root(files.normalize(options.to)) != dataset.root:
        raise UsageError(
            f"attributes are converted inside their dataset {dataset.root}; expected --to {dataset.root}, found {options.to}."
        )
    return convert_attributes(dataset, name, options.form, options.rename, options)


def _raw_files(
    inputs: Sequence[str], options: ConvertOptions
) -> tuple[str, list[FileInfo], list[FileInfo], list[str]]:
    """Return the raw folder, the files of it that hold documents, those that nobody knows, and what is to be said of others."""
    base, found = list_raw(inputs)
    mapping = options.mapping
    documents = [info for info in found if not is_sibling(mapping, info.path)]
    siblings = len(found) - len(documents)
    if not documents:
        raise UsageError(
            f"{base} holds {counted(siblings, 'file')} of signals, MinHash or duplicates of {mapping}, the first {found[0].path}; expected documents. Name their folder."
        )
    listing = sorted_out(documents, options.skip)
    if not listing.known:
        what = (
            unread(listing.odd)
            if listing.odd
            else "nothing is left of its files but markers and what --skip names"
        )
        raise UsageError(f"{base} holds no file with documents: {what}.")
    folders = {info.path.partition("/")[0] for info in listing.known}
    if {layout.DOCUMENTS, layout.ATTRIBUTES} <= folders:
        raise UsageError(
            f"{base} is a dataset: beside its documents lie attributes, which hold none; expected raw files. To convert its documents again, name "
            f"their folder: {files.join(base, layout.DOCUMENTS)}."
        )
    skipped = len(documents) - sum(map(len, listing))
    marks = ", ".join(info.path for info in listing.markers[:3])
    notes = [
        f"{counted(siblings, 'file')} left out, which hold no documents of {mapping}" if siblings else "",
        f"{counted(len(listing.markers), 'marker')} left out, such as {marks}" if marks else "",
        f"{counted(skipped, 'file')} left out by skip" if skipped else "",
        *_idle_patterns(options.skip or (), documents),
    ]
    return base, listing.known, listing.odd, [note for note in notes if note]


def _idle_patterns(skip: Sequence[str], found: Sequence[FileInfo]) -> list[str]:
    """Return a note on patterns that match no file, unless they may match members of archives, which are not listed here."""
    if any(info.path.lower().endswith(".tar") for info in found):
        return []
    idle = [pattern for pattern in skip if not any(layout.is_named(info.path, [pattern]) for info in found)]
    return [f"skip matches no file: {', '.join(idle)}; paths begin below the input folder"] if idle else []


def _all_read(plan: Plan, odd: Sequence[FileInfo], options: ConvertOptions) -> engine.Ran:
    """Run a plan; files that nobody knows are a failure after it, since what is in them is lost.

    Raises
    ------
    StageError
        There are such files, or some shards failed.
    """
    try:
        ran = engine.run(plan, options)
    except StageError as error:
        summary = error.details.get("summary")
        if odd and summary is not None:
            raise _unread(summary, error.failures, odd) from error
        raise
    if odd:
        raise _unread(ran.summary, (), odd)
    return ran


def _unread(summary: Any, failures: Sequence[Failure], odd: Sequence[FileInfo]) -> StageError:
    what = unread(odd)
    all_of_them = (*failures, Failure(odd[0].path, "UnknownKind", f"{what}."))
    failed = replace(summary, failed=summary.failed + len(odd), failures=all_of_them)
    return StageError(f"convert: {what}. All others are done.", failures=all_of_them, summary=failed)


def _check_ids(fields: FieldMapping, raw_files: Sequence[FileInfo]) -> None:
    """Refuse a pattern of ids that gives rows of several files the same ones."""
    named = [info.path for info in raw_files if not is_single(info.path)]  # others are called by their paths
    if fields.id is None and len(named) > 1 and not _OF_FILES.search(fields.generated_id):
        raise UsageError(
            f"generated_id {fields.generated_id!r} gives rows of {named[0]} and {named[1]} the same ids; expected a pattern that names the file too, such as "
            "'{stem}-{row:08d}'."
        )


def _check_alone(given: Sequence[str]) -> None:
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


def _shards(raw_files: Sequence[FileInfo], folder: str, options: ConvertOptions) -> list[RawShard]:
    """Return the shards that raw files become."""
    planned = plan_shards(raw_files)
    if options.combine is None:
        whole = planned if options.shard_bytes else with_parts(planned)
        return _outputs(whole, options.shard_bytes, options.format, folder)
    group = partial(group_of, options.mapping, options.combine)
    together = combined(planned, group, options.shard_bytes or COMBINED_BYTES)
    return _outputs(together, None, options.format, folder)


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


def _selected(shards: Sequence[RawShard], options: ShardOptions) -> Sequence[RawShard]:
    only, prune = options.only or (), options.prune
    if prune is not None and prune < 1:
        raise UsageError(f"prune={prune} leaves no shard; expected 1 or more.")
    kept = [shard for shard in shards if not only or _is_named(shard, only)]
    if not kept:
        raise UsageError(f"no input matches {' '.join(only)!r}; the first output is {shards[0].path!r}.")
    return share_of(kept, options.share)[:prune]


def _is_named(shard: RawShard, only: Sequence[str]) -> bool:
    return any(matches(path, only) for path in (shard.path, *(info.path for info in shard.files)))
