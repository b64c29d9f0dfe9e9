"""The Dolma toolkit's mixer configuration: the same file, in YAML or JSON, with the same keys.

Where the toolkit does something else than it says, this holds: ``max_size_in_bytes`` is the stored size of an output file, not the sum
of those of its inputs; all files are called ``<name>-0000.jsonl.gz``; ``shuffle: true``, which cuts files by size and shuffles nothing, cuts files
by size, and the key ``seed`` (not known to the toolkit) shuffles; numbers compare as numbers. ``compat="dolma-1.2"`` cuts and names files, and
leaves spans in attributes, as the toolkit does. Keys of our own: ``seed``, and ``sample_rate`` of a stream.
"""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from yaml import MappingNode, Node, SequenceNode

from dolma_dask import clusters
from dolma_dask.errors import Failure, StageError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io.yaml_files import Mistakes, References, convert, pairs, read_yaml, scalar
from dolma_dask.options.base import OWN, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import IdOptions, same
from dolma_dask.options.records import RecordOptions
from dolma_dask.outputs.cutting import DEFAULT_SIZE, FilePacking
from dolma_dask.reading.kept.recipe import SpanOptions, replacements_of
from dolma_dask.results.summary import Summary
from dolma_dask.rules.filters import check_syntax
from dolma_dask.verbs.mix.call import MixSummary
from dolma_dask.verbs.mix.streams import Stream, folders_of, mix_stream, sum_streams

CONFIGURATION = "a configuration of the Dolma toolkit in YAML or JSON"
"""Description of the file, for errors about one that is something else."""

_FORMATS: Mapping[str, FileFormat] = {"gz": "jsonl.gz", "zst": "jsonl.zst", "": "jsonl"}


# ------------------------------------------------------------------------------------------------ the file


class StreamOutput(msgspec.Struct, forbid_unknown_fields=True):
    """Files of a stream."""

    path: str
    max_size_in_bytes: int | None = None
    discard_fields: list[str] = []
    min_text_length: int = 0


class StreamFilter(msgspec.Struct, forbid_unknown_fields=True):
    """Documents that a stream keeps."""

    include: list[str] = []
    exclude: list[str] = []
    syntax: str = "jsonpath"


class Span(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Spans of an attribute to replace."""

    span: str
    min_score: float | None = None
    max_score: float | None = None
    replacement: str | None = None
    syntax: str | None = None


class InOut(msgspec.Struct, forbid_unknown_fields=True):
    """Something of inputs, and of outputs."""

    input: str | None = None
    output: str | None = None


class StreamConfig(msgspec.Struct, forbid_unknown_fields=True):
    """One stream."""

    name: str
    documents: list[str]
    output: StreamOutput
    attributes: list[str] = []
    filter: StreamFilter = msgspec.field(default_factory=StreamFilter)
    span_replacement: list[Span] = []
    compression: InOut = msgspec.field(default_factory=InOut)
    sample_rate: float | None = None


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """A mixer configuration."""

    streams: list[StreamConfig] = []
    processes: int | None = None
    work_dir: InOut = msgspec.field(default_factory=InOut)
    shuffle: bool = True
    dryrun: bool = False
    seed: int | None = None


def read_config(config: str | Mapping[str, Any]) -> Config:
    """Read a mixer configuration: a file, or its content.

    Raises `UsageError`: with all mistakes: keys that there are not, values of other types, references that lead nowhere.
    """
    mistakes = Mistakes(config if isinstance(config, str) else "the configuration")
    node = read_yaml(config, mistakes, CONFIGURATION) if isinstance(config, str) else _node_of(config)
    resolved = ToolkitReferences(node, mistakes).resolve(node)
    values = convert(resolved, Config, "", mistakes, lax=True)
    mistakes.check()
    return values  # type: ignore[no-any-return]


def _node_of(value: object) -> Node:
    """Return a value from Python as if it stood in a file."""
    if isinstance(value, Mapping):
        values = [(scalar(str(key)), _node_of(item)) for key, item in value.items()]
        return MappingNode("tag:yaml.org,2002:map", values)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return SequenceNode("tag:yaml.org,2002:seq", list(map(_node_of, value)))
    is_text = isinstance(value, str | os.PathLike)
    return scalar("null" if value is None else str(value), quoted=is_text)


class ToolkitReferences(References):
    """Replaces references as OmegaConf writes them: ``${streams[0].name}``, ``${.name}``, ``${oc.env:OUT,out}``, ``${d.processes:2}``."""

    pattern = re.compile(r"\$\{([^${}]+)\}")

    def __init__(self, root: Node, mistakes: Mistakes) -> None:
        super().__init__(mistakes)
        self.root = root

    def find(self, match: re.Match[str], node: Node, path: tuple[str, ...]) -> Node:
        """Return the value at a path of the file, or what a resolver returns."""
        reference = match[1].strip()
        resolver, colon, argument = reference.partition(":")
        if colon:
            return self._call(resolver.strip(), argument.strip(), node)
        steps = re.findall(r"[^.\[\]]+", reference)
        up = len(reference) - len(reference.lstrip("."))
        way = (*path[: len(path) - up], *steps) if up else tuple(steps)
        value = self._at(way)
        found = value and self.follow(way, value, way)
        if found is not None:
            return found
        why = "leads to nothing" if value is None else "leads back to itself"
        expected = "expected the path of a value, such as ${streams[0].name}."
        return self.wrong(node, f"{match[0]} {why}; {expected}")

    def _at(self, way: Sequence[str]) -> Node | None:
        node = self.root
        for step in way:
            if isinstance(node, MappingNode) and step in pairs(node):
                node = pairs(node)[step][1]
            elif isinstance(node, SequenceNode) and step.isdigit() and int(step) < len(node.value):
                node = node.value[int(step)]
            else:
                return None
        return node

    def _call(self, resolver: str, argument: str, node: Node) -> Node:
        if resolver in ("oc.env", "env"):
            name, comma, otherwise = map(str.strip, argument.partition(","))
            value = os.environ.get(name, otherwise if comma else None)
            if value is not None:
                return scalar(value, node)
            expected = f"set it, or write ${{oc.env:{name},otherwise}}."
            return self.wrong(node, f"the environment variable {name} is not set; {expected}")
        if resolver == "d.processes" and argument.isdigit():
            return scalar(str(max(1, (os.cpu_count() or 1) - int(argument))), node)
        return self.wrong(
            node, f"${{{resolver}:...}} is not known here; expected a path, oc.env:NAME or d.processes:N."
        )


# ------------------------------------------------------------------------------------------------ the work


@dataclass(frozen=True, kw_only=True)
class ConfigOptions(IdOptions, RecordOptions):
    """Options of `mix_config`."""

    group = OWN

    processes: Annotated[int | None, Opt("Worker processes; counts more than the file's.")] = None
    dryrun: Annotated[bool, Opt("Show what would be done, and do nothing.")] = False
    shuffle: Annotated[
        bool | None,
        Opt(
            "Cut files by size (true, the default), or write one file per input file; counts more than the file's."
        ),
    ] = None
    seed: Annotated[int | None, Opt("Shuffle the documents of each stream; counts more than the file's.")] = (
        None
    )
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

    def over(self, read: Config) -> "ConfigOptions":
        """Return the options with those of a file where they say nothing."""
        return dataclasses.replace(
            self,
            workers=self.workers or self.processes or read.processes,
            dry_run=self.dry_run or self.dryrun or read.dryrun,
            shuffle=read.shuffle if self.shuffle is None else self.shuffle,
            seed=read.seed if self.seed is None else self.seed,
        )


@command
def mix_config(
    config: Annotated[
        str | Mapping[str, Any],
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
    options = options.over(read)
    streams = [_stream(item, options) for item in read.streams]
    if not streams:
        name = config if isinstance(config, str) else "the configuration"
        raise UsageError(f"{name} has no streams; expected a list of one or more under `streams`.")
    summaries: list[tuple[str, MixSummary]] = []
    failures: list[Failure] = []
    full = folders_of(streams)
    with clusters.shared_cluster():
        for stream in streams:
            try:
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


def _stream(given: StreamConfig, chosen: ConfigOptions) -> Stream:
    """Return a stream as the verb takes it."""
    output, seed = given.output, chosen.seed
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
    if chosen.shuffle or seed is not None:
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
    if name is None:
        return None
    if name not in _FORMATS:
        raise UsageError(f"compression.{what}: {name!r}; expected gz, zst, or '' for none.")
    return _FORMATS[name]
