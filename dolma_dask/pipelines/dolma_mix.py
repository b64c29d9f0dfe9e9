"""The Dolma toolkit's mixer configuration: the same file, in YAML or JSON, with the same keys.

Where the toolkit does something else than it says, this holds: ``max_size_in_bytes`` is the stored size of an output file, not the sum
of those of its inputs; all files are called ``<name>-0000.jsonl.gz``; ``shuffle: true``, which cuts files by size and shuffles nothing, cuts files
by size, and the key ``seed`` (not known to the toolkit) shuffles; numbers compare as numbers. ``compat="dolma-1.2"`` cuts and names files, and
leaves spans in attributes, as the toolkit does. Keys of our own: ``seed``, and ``sample_rate`` of a stream.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from yaml import Node

from dolma_dask import clusters
from dolma_dask.errors import Failure, StageError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io.yaml_files import Mistakes, read_yaml
from dolma_dask.options.base import OWN, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import IdOptions, same
from dolma_dask.options.records import RecordOptions
from dolma_dask.outputs.cutting import DEFAULT_SIZE, FilePacking
from dolma_dask.pipelines.dolma_config import CONFIGURATION, converted, node_of, place_of
from dolma_dask.pipelines.dolma_options import Mix, StreamConfig, format_of
from dolma_dask.reading.kept.recipe import SpanOptions, replacements_of
from dolma_dask.results.summary import Summary
from dolma_dask.rules.filters import SYNTAXES, check_expression, check_syntax
from dolma_dask.rules.replacements import Replacement
from dolma_dask.verbs.mix.call import MixSummary
from dolma_dask.verbs.mix.streams import Stream, folders_of, mix_stream, sum_streams


def read_config(config: str | Mapping[str, Any] | Mix) -> Mix:
    """Read a mixer configuration: a file, or its content.

    Raises `UsageError`: with all mistakes: keys that there are not, values of other types, references that lead nowhere.
    """
    if isinstance(config, Mix):
        return config
    mistakes = Mistakes(config if isinstance(config, str) else "the configuration")
    node = read_yaml(config, mistakes, CONFIGURATION) if isinstance(config, str) else node_of(config)
    read: Mix = converted(node, Mix, mistakes)
    check_expressions(read, node, mistakes)
    return read


def check_expressions(read: Mix, node: Node, mistakes: Mistakes) -> None:
    """Refuse filters and replacements that cannot be read, each where it stands.

    Raises `UsageError`: with the list that each is in, the character, and its text.
    """
    for number, stream in enumerate(read.streams):
        for name, check in _checks(stream):
            full = f"streams[{number}].{name}"
            try:
                check()
            except UsageError as error:
                at = error.details.get("position")  # of jq the beginning: it tells in its own words
                place = f", character {at + 1}" if isinstance(at, int) and at > 0 else ""
                mistakes.add(place_of(node, full), f"{full}{place}: {error}")
    mistakes.check()


def _checks(stream: StreamConfig) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what has to be readable in a stream: the name of each option, and a call that refuses its value."""
    given = stream.filter
    yield "filter.syntax", partial(check_syntax, given.syntax)
    lists = (("include", given.include), ("exclude", given.exclude)) if given.syntax in SYNTAXES else ()
    for name, texts in lists:
        for number, text in enumerate(texts):
            yield f"filter.{name}[{number}]", partial(check_expression, text, check_syntax(given.syntax))
    for number, span in enumerate(stream.span_replacement):
        name, syntax = f"span_replacement[{number}]", span.syntax or "jsonpath"
        if syntax not in SYNTAXES:
            yield f"{name}.syntax", partial(check_syntax, syntax)
            continue
        yield f"{name}.span", partial(check_expression, span.span, check_syntax(syntax))
        made = partial(Replacement, "$.attributes.a", replacement=span.replacement or "")
        yield f"{name}.replacement", made


# ------------------------------------------------------------------------------------------------ the work


@dataclass(frozen=True, kw_only=True)
class ConfigOptions(IdOptions, RecordOptions):
    """Options of `mix_config`."""

    group = OWN

    compat: Annotated[
        Literal["dolma-1.2"] | None,
        Opt(
            "As the toolkit does: cut files by the sizes of the inputs, give the last one of a stream the suffix .json.gz, and keep spans (`keep_spans`)."
        ),
    ] = None
    keep_spans: Annotated[
        bool | None,
        Opt(
            "Write the attributes of documents whose spans were replaced as they were, as the toolkit does: the spans then point at other places of the "
            "new text. By default, unless `compat` asks for the toolkit's way, spans move with their text, and those that were replaced are left out."
        ),
    ] = None


@command
def mix_config(
    config: Annotated[
        str | Mapping[str, Any] | Mix,
        Opt("File in YAML or JSON, or its content.", kind="str or dict", convert=same),
    ],
    /,
    *,
    options: ConfigOptions,
) -> Summary:
    """Run the streams of a mixer configuration of the Dolma toolkit, unchanged.

    Example: dolma-dask -c mixer.yaml mix

    Returns
    -------
    Summary
        That of the stream, or of all of them.

    Raises
    ------
    StageError
        Some shards failed.
    UsageError
        The configuration cannot be read: with file, line, key, and the nearest key that there is.
    """
    read = read_config(config)
    options = dataclasses.replace(
        options, workers=options.workers or read.processes, dry_run=options.dry_run or read.dryrun
    )
    streams = list[Stream]()
    for item in read.streams:
        with _told_of(item.name):
            streams.append(_stream(item, read, options))
    if not streams:
        name = config if isinstance(config, str) else "the configuration"
        raise UsageError(f"{name} has no streams; expected a list of one or more under `streams`.")
    summaries: list[tuple[str, MixSummary]] = []
    failures: list[Failure] = []
    full = folders_of(streams)
    with clusters.shared_cluster():
        for stream in streams:
            try:
                with _told_of(stream.name):
                    summaries.append((stream.name, mix_stream(stream, full, options)))
            except StageError as error:
                if len(streams) == 1:
                    raise
                failures += [
                    dataclasses.replace(item, shard=f"{stream.name}: {item.shard}") for item in error.failures
                ]
    if failures:
        first = failures[0]
        raise StageError(
            f"mix: {len(failures):,} shards failed in {len(streams):,} streams; the others are finished. First: {first.shard}: {first.error}: "
            f"{first.message}",
            failures=failures,
        )
    return summaries[0][1] if len(summaries) == 1 else sum_streams(summaries)


@contextmanager
def _told_of(stream: str) -> Iterator[None]:
    """Name the stream in what is said of its options."""
    try:
        yield
    except UsageError as error:
        start = f"stream {stream!r}"
        if str(error).startswith(start):
            raise
        raise type(error)(f"{start}: {error}", **error.details) from error


def _stream(given: StreamConfig, read: Mix, chosen: ConfigOptions) -> Stream:
    """Return a stream as the verb takes it; raise `UsageError` about its options."""
    output, seed = given.output, read.seed
    options = SpanOptions(
        include=tuple(given.filter.include),
        exclude=tuple(given.filter.exclude),
        syntax=check_syntax(given.filter.syntax),
        replace=replacements_of([msgspec.to_builtins(span) for span in given.span_replacement]),
        discard_fields=tuple(output.discard_fields),
        min_text_length=output.min_text_length,
        provenance=True,
        merge_attributes="attributes" not in output.discard_fields,
        keep_spans=chosen.compat is not None if chosen.keep_spans is None else chosen.keep_spans,
        sample=given.sample_rate,
        seed=seed or 0,
    )
    input_format = _format(given.compression.input, "input")
    output_format = _format(given.compression.output, "output")
    packing = None
    if read.shuffle or seed is not None:
        name, size = layout.check_name(given.name, "stream"), output.max_size_in_bytes or DEFAULT_SIZE
        packing = FilePacking(
            name,
            output_format or "jsonl.gz",
            size,
            seed,
            by_inputs=chosen.compat is not None and seed is None,
        )
    return Stream(
        name=given.name,
        documents=tuple(given.documents),
        attributes=tuple(given.attributes),
        path=output.path,
        options=options,
        packing=packing,
        input_format=input_format,
        output_format=output_format,
        ids_as_text=chosen.ids_as_text,
    )


def _format(name: str | None, what: str) -> FileFormat | None:
    return None if name is None else format_of(name, what)
