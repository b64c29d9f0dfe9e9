"""tag: run any set of taggers over every document in one pass and write one attribute file per shard and set.

Memory: a few blocks per worker. The attribute file has the document file's path, name and number of rows; its record in the journal
proves which documents it belongs to. A document that cannot be read keeps its row, with an error in it; one whose attributes are too long for any
reader, spans of millions of lines, has a row without them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from dolma_dask import engine
from dolma_dask.dataset import Dataset, Shard, shard_info
from dolma_dask.engine import LazyTasks, Task, Unit, attribute_plan, inputs_of
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Journal
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, Documents, Format
from dolma_dask.options.records import RecordOptions
from dolma_dask.options.taggers import ArtifactOptions, ModuleOptions
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.results.summary import Summary
from dolma_dask.taggers.base import Tagger, ViewTagger
from dolma_dask.taggers.scoring import TaggerLike, locked_seconds, taggers_of
from dolma_dask.verbs.tag.against import AgainstOptions
from dolma_dask.verbs.tag.output import TagOutput, TagStage
from dolma_dask.verbs.tag.recorded import summarize

ALWAYS_READ = ("id", "text", "source")
"""Columns that the digests of a record are of."""


@dataclass(frozen=True, kw_only=True)
class TagOptions(AgainstOptions, ArtifactOptions, ModuleOptions, DatasetOptions, RecordOptions):
    """Options of `tag`."""

    experiment: Annotated[
        str | None,
        Opt(
            "Write the attributes of all taggers to this one attribute set; by default each tagger has a set of its own name.",
            group=OUTPUT,
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        Opt(
            "Tokenizer whose tokens taggers count: a tokenizer.json (Hugging Face tokenizers), a folder that has one, or a model on the hub: "
            "EleutherAI/pythia-70m, with a revision behind @."
        ),
    ] = None
    format: Format = None


@command
def tag(
    dataset: Documents,
    /,
    taggers: Annotated[
        Sequence[TaggerLike] | TaggerLike,
        Opt(
            "Names of taggers (see: dolma-dask list), or places of yours, file.py:name or module:name: a tagger, or a function of one text with a "
            "type for what it returns. From Python also the objects, or one without a list.",
            kind="list of str",
        ),
    ],
    *,
    options: TagOptions,
) -> Summary:
    """Run taggers over every document, in one pass, and write their attributes beside the documents.

    Example: dolma-dask tag corpus/wiki/v0 --taggers gopher_v2 char_length_v1

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
    With on_bad_record="quarantine" every bad record keeps its row, with an error in it; more of them than `max_bad_fraction` allows make the exit status 1.
    """
    options.register_modules()
    objects, notes = _without_missing(taggers_of(taggers))
    _check_tokenizer(objects, options.tokenizer)
    comparison = options.comparison(objects)
    if comparison is not None:
        objects = [
            item.with_against(comparison) if isinstance(item, ViewTagger) else item for item in objects
        ]
    notes += tuple(comparison.notes()) if comparison else ()
    if options.tokenizer is None:
        return _tag(dataset, objects, options, notes)
    from dolma_dask.outputs.tokenizing import CountingOptions, by_definition_if_engines_differ

    counting = CountingOptions(tokenizer=options.tokenizer)

    def with_tokenizer() -> Summary:
        engine = counting.opened()
        tokenizing = [
            item.with_tokenizer(engine) if isinstance(item, ViewTagger) else item for item in objects
        ]
        return _tag(dataset, tokenizing, options, (*notes, *engine.notes))

    return by_definition_if_engines_differ([counting], with_tokenizer)


def _check_tokenizer(taggers: Sequence[Tagger], given: str | None) -> None:
    """Refuse a tokenizer that no tagger uses."""
    if given is not None and not any(isinstance(item, ViewTagger) and item.tokenize for item in taggers):
        names = ", ".join(item.name for item in taggers)
        raise UsageError(
            f"tokenizer={given!r}, but none of the taggers {names} uses one. Leave tokenizer out."
        )


def _tag(
    dataset: Documents, objects: Sequence[Tagger], options: TagOptions, notes: tuple[str, ...] = ()
) -> Summary:
    opened = options.open(dataset)
    sets = _sets(objects, options.experiment)
    used = options.artifacts_of(objects)
    used.check_needs(objects)
    longest = max(options.max_record_bytes, MAX_RECORD_BYTES)  # as readers have it
    keeps_failed = options.policy.on_bad_record == "quarantine"
    outputs = tuple(
        TagOutput(opened.root, name, own, options.format, used, longest, keeps_failed)
        for name, own in sets.items()
    )
    stage = TagStage(outputs, options.policy, "tag", locked=locked_seconds(objects))
    layout.check_no_collision([layout.with_format(shard.path, options.format) for shard in opened.shards])
    _check_tables(opened, outputs)
    keys = [output.key(opened, options.policy) for output in outputs]
    selected = options.selected(opened).shards

    def units(shard: Shard) -> tuple[Unit, ...]:
        return tuple(Unit(output.path(shard), key) for output, key in zip(outputs, keys, strict=True))

    def task(shard: Shard) -> Task:
        source = AlignedShard(opened.root, shard, ALWAYS_READ, default_source=opened.source)
        return stage.task(source, *units(shard))

    def outline(shard: Shard) -> Task:
        return Task(shard.path, units(shard), inputs_of(opened.root, [shard_info(shard)]))

    every = [output.path(shard) for shard in opened.shards for output in outputs]
    is_whole = len(selected) == len(opened.shards)
    own = every if is_whole else [output.path(shard) for shard in selected for output in outputs]
    tasks = LazyTasks(selected, task, outline)
    params = options.params(taggers=[tagger.name for tagger in objects], artifacts=used.folder or None)
    told = (*notes, *used.notes(objects))
    plan = attribute_plan(stage, opened, list(sets), tasks, every, params, own=own, notes=told)
    lost = {} if options.overwrite else _lost(opened, sets)
    if lost:
        path, names = next(iter(lost.items()))
        raise UsageError(
            f"{opened.root}/{path} holds the attributes of {', '.join(names)}, which are not requested now, and {len(lost) - 1} more; expected "
            "free paths. Choose another --experiment or the same taggers, or replace them with --overwrite."
        )
    outcome = engine.run(plan, options)
    return summarize(outcome.summary, outcome.records.values())


def _lost(dataset: Dataset, sets: Mapping[str, Sequence[Tagger]]) -> dict[str, list[str]]:
    """Return finished files of the sets that hold other taggers than are requested now, and these."""
    requested = {name: {tagger.name for tagger in taggers} for name, taggers in sets.items()}
    others: dict[str, tuple[str, list[str]]] = {}
    for path, record in Journal(dataset.root, "tag").by_file().items():
        name = path.removeprefix(f"{layout.ATTRIBUTES}/").partition("/")[0]
        if name in requested and not requested[name].issuperset(record.info.get("taggers", ())):
            others[path] = record.shard, sorted(set(record.info["taggers"]) - requested[name])
    shards = {layout.stem_of(shard.path): shard.path for shard in dataset.shards} if others else {}
    return {
        path: names
        for path, (shard, names) in others.items()
        if shards.get(_stem_in_set(path)) == shard and files.stat(dataset.url(path))
    }


def _stem_in_set(path: str) -> str:
    """Return the stem of an attribute file below its set: that of its shard."""
    return layout.stem_of(path.split("/", 2)[-1])


def _without_missing(taggers: Sequence[Tagger]) -> tuple[list[Tagger], tuple[str, ...]]:
    """Leave out optional taggers whose package is missing, unless nothing is left; return what is said of them."""
    lacking = {
        tagger.name: message
        for tagger in taggers
        if isinstance(tagger, ViewTagger) and tagger.is_optional and (message := tagger.lacks())
    }
    kept = [tagger for tagger in taggers if tagger.name not in lacking]
    return (
        (kept, tuple(f"left out: {message}" for message in lacking.values())) if kept else (list(taggers), ())
    )


def _check_tables(dataset: Dataset, outputs: Sequence["TagOutput"]) -> None:
    """Refuse taggers whose keys follow from what they find, where attributes are tables, which have the same columns for all documents."""
    for output in outputs:
        tables = [shard for shard in dataset.shards if layout.format_of(output.path(shard)) == "parquet"]
        for tagger in output.taggers if tables else ():
            if "labels" in tagger.types.values() and not (
                isinstance(tagger, ViewTagger) and tagger.labels is not None
            ):
                raise UsageError(
                    f"the tagger {tagger.name} makes keys of what it finds, and {output.path(tables[0])} would be a table with the same columns for all "
                    "documents; expected lines of JSON. Give --format jsonl.gz."
                )


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
