"""The Dolma toolkit's mixer configuration: the same file, in YAML or JSON, with the same keys.

What it means here, where the toolkit does something else than it says: ``max_size_in_bytes`` is the stored size of an output file, not the sum
of those of its inputs; all files are called ``<name>-0000.jsonl.gz``; ``shuffle: true``, which cuts files by size and shuffles nothing, cuts files
by size, and the key ``seed`` (not known to the toolkit) shuffles; numbers compare as numbers. ``compat="dolma-1.2"`` cuts and names files as the
toolkit does. Keys of our own: ``seed``, and ``sample_rate`` of a stream.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack

from dolma_dask import clusters
from dolma_dask.config.variables import near
from dolma_dask.config.yaml_nodes import Items, Mistakes, Node, Pairs, Place, Scalar, moved, read_yaml
from dolma_dask.errors import Failure, StageError, UsageError
from dolma_dask.formats.layout import FileFormat
from dolma_dask.stages.mix import make_wishes
from dolma_dask.stages.mix_streams import Stream, mix_stream
from dolma_dask.stages.mix_summary import MixSummary
from dolma_dask.stages.options import ReadArgs, checked, record_policy, run_options
from dolma_dask.summary import Summary

COMPAT = "dolma-1.2"

_FORMATS: Mapping[str, FileFormat] = {"gz": "jsonl.gz", "zst": "jsonl.zst", "": "jsonl"}

_REFERENCE = re.compile(r"\$\{([^${}]+)\}")


_OUTPUT = {
    "path": "text",
    "max_size_in_bytes": "whole",
    "discard_fields": "texts",
    "min_text_length": "whole",
}
_FILTER = {"include": "texts", "exclude": "texts", "syntax": "text"}
_SPAN = {
    "span": "text",
    "min_score": "number",
    "max_score": "number",
    "replacement": "text",
    "syntax": "text",
}
_COMPRESSION = {"input": "text", "output": "text"}
_STREAM: dict[str, Any] = {
    "name": "text",
    "documents": "texts",
    "attributes": "texts",
    "output": _OUTPUT,
    "filter": _FILTER,
    "span_replacement": [_SPAN],
    "compression": _COMPRESSION,
    "sample_rate": "number",
}
_FILE: dict[str, Any] = {
    "streams": [_STREAM],
    "processes": "whole",
    "work_dir": {"input": "text", "output": "text"},
    "shuffle": "truth",
    "dryrun": "truth",
    "seed": "whole",
}
"""The keys of a file, with what their values are: a kind of scalar, the keys of a map, or those of each map of a list."""

_KINDS = {
    "text": "a text",
    "texts": "a list of texts",
    "whole": "a whole number",
    "number": "a number",
    "truth": "true or false",
}
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def mix_config(
    config: str | Mapping[str, Any],
    /,
    *,
    processes: int | None = None,
    dryrun: bool = False,
    shuffle: bool | None = None,
    seed: int | None = None,
    compat: Literal["dolma-1.2"] | None = None,
    **options: Unpack[ReadArgs],
) -> Summary:
    """Run the streams of a mixer configuration of the Dolma toolkit, unchanged.

    Example: dolma-dask -c mixer.yaml mix

    Parameters
    ----------
    config : str or dict
        File in YAML or JSON, or its content.
    processes : int, optional
        Worker processes; counts more than the file's.
    dryrun : bool, optional
        Tell what would be done, and do nothing.
    shuffle : bool, optional
        Cut files by size (true, the default), or write one file per input file; counts more than the file's.
    seed : int, optional
        Shuffle the documents of each stream; counts more than the file's.
    compat : {"dolma-1.2"}, optional
        Cut files by the sizes of the inputs, and give the last one of a stream the suffix .json.gz, as the toolkit does.

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
    options = checked(mix_config, options, ReadArgs)
    if compat not in (None, COMPAT):
        raise UsageError(f"compat={compat!r}; expected {COMPAT}, or nothing.")
    read = read_config(config)
    shuffle = read.get("shuffle", True) if shuffle is None else shuffle
    seed = read.get("seed") if seed is None else seed
    streams = [_stream(item, bool(shuffle), seed, compat == COMPAT) for item in read.get("streams", ())]
    if not streams:
        raise UsageError(f"{_called(config)} has no streams; expected a list of one or more under `streams`.")
    run = run_options(options)
    workers = processes or read.get("processes")
    if workers is not None and run.workers is None:
        run = replace(run, workers=workers)
    if dryrun or read.get("dryrun"):
        run = replace(run, dry_run=True)
    policy = record_policy(options)
    with clusters.shared_cluster():
        return _together(
            [(stream, lambda stream=stream: mix_stream(stream, policy, run)) for stream in streams]
        )


def _called(config: object) -> str:
    return config if isinstance(config, str) else "the configuration"


def _together(runs: Sequence[tuple[Stream, Any]]) -> Summary:
    """Run all streams, also if one fails, and return what they were."""
    summaries: list[tuple[Stream, MixSummary]] = []
    failures: list[Failure] = []
    for stream, run in runs:
        try:
            summaries.append((stream, run()))
        except StageError as error:
            if len(runs) == 1:
                raise
            failures += [replace(item, shard=f"{stream.name}: {item.shard}") for item in error.failures]
    if failures:
        first = failures[0]
        raise StageError(
            f"mix: {len(failures):,} shards failed in {len(runs):,} streams; the others are finished. First: {first.shard}: {first.error}: "
            f"{first.message}",
            failures=failures,
        )
    return summaries[0][1] if len(summaries) == 1 else _sum(summaries)


@dataclass(frozen=True, repr=False)
class StreamsSummary(MixSummary):
    """The outcome of several streams; ``streams`` holds that of each by its name."""

    streams: tuple[tuple[str, MixSummary], ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table: those of each stream below its name."""
        rows = []
        for name, summary in self.streams:
            rows += [("stream", name), *((f"  {label}", value) for label, value in summary.rows())]
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        return {**super().to_json(), "streams": {name: summary.to_json() for name, summary in self.streams}}


def _sum(summaries: Sequence[tuple[Stream, MixSummary]]) -> StreamsSummary:
    counts: dict[str, float] = {}
    for _, summary in summaries:
        for name, count in summary.counts.items():
            counts[name] = counts.get(name, 0) + count
    every = [summary for _, summary in summaries]
    return StreamsSummary(
        verb="mix",
        target=", ".join(dict.fromkeys(item.target for item in every)),
        done=sum(item.done for item in every),
        skipped=sum(item.skipped for item in every),
        seconds=sum(item.seconds for item in every),
        counts=counts,
        notes=tuple(f"{stream.name}: {note}" for stream, item in summaries for note in item.notes),
        planned=tuple(f"{stream.name}: {shard}" for stream, item in summaries for shard in item.planned),
        streams=tuple((stream.name, item) for stream, item in summaries),
    )


def _stream(given: Mapping[str, Any], packed: bool, seed: int | None, by_inputs: bool) -> Stream:
    """Return a stream as the verb takes it."""
    output, filters = given["output"], given.get("filter") or {}
    compression = given.get("compression") or {}
    wishes = make_wishes(
        include=tuple(filters.get("include", ())),
        exclude=tuple(filters.get("exclude", ())),
        syntax=filters.get("syntax", "jsonpath"),
        replacements=given.get("span_replacement", ()),
        discard_fields=tuple(output.get("discard_fields", ())),
        min_text_length=output.get("min_text_length") or 0,
        provenance=True,
        merge_attributes="attributes" not in output.get("discard_fields", ()),
        sample_rate=given.get("sample_rate"),
        seed=seed or 0,
    )
    return Stream(
        name=given["name"],
        documents=tuple(given["documents"]),
        attributes=tuple(given.get("attributes", ())),
        path=output["path"],
        wishes=wishes,
        input_format=_format(compression.get("input"), "input"),
        output_format=_format(compression.get("output"), "output"),
        packed=packed or seed is not None,
        seed=seed,
        by_inputs=by_inputs and seed is None,
        **({"max_bytes": output["max_size_in_bytes"]} if output.get("max_size_in_bytes") else {}),
    )


def _format(name: str | None, what: str) -> FileFormat | None:
    if name is None:
        return None
    if name not in _FORMATS:
        raise UsageError(f"compression.{what}: {name!r}; expected gz, zst, or '' for none.")
    return _FORMATS[name]


def read_config(config: str | Mapping[str, Any]) -> dict[str, Any]:
    """Read a mixer configuration, and check its keys and the types of its values.

    Parameters
    ----------
    config : str or dict
        File, or content.

    Returns
    -------
    dict
        With the keys that are given.

    Raises
    ------
    UsageError
        With all mistakes.
    """
    mistakes = Mistakes(_called(config))
    node = read_yaml(config, mistakes) if isinstance(config, str) else _node_of(config)
    node = _Interpolation(node, mistakes).resolve(node, ())
    found = _map(node, _FILE, "", mistakes)
    for number, stream in enumerate(found.get("streams", ())):
        _check_stream(stream, f"streams[{number}]", node, mistakes)
    mistakes.check()
    return found


def _check_stream(stream: dict[str, Any], where: str, node: Node, mistakes: Mistakes) -> None:
    """Note what a stream lacks."""
    for key, given in (
        ("name", stream.get("name")),
        ("documents", stream.get("documents")),
        ("output.path", (stream.get("output") or {}).get("path")),
    ):
        if not given:
            mistakes.add(node.place, f"{where}.{key} is missing.")
    for place, span in enumerate(stream.get("span_replacement") or ()):
        if not span.get("span"):
            mistakes.add(node.place, f"{where}.span_replacement[{place}].span is missing.")


def _node_of(value: object) -> Node:
    """Return a value from Python as if it stood in a file."""
    if isinstance(value, Mapping):
        values = {str(key): _node_of(item) for key, item in value.items()}
        return Pairs(values, dict.fromkeys(values, Place()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Items(tuple(map(_node_of, value)))
    if isinstance(value, bool) or value is None:
        return Scalar({True: "true", False: "false", None: "null"}[value])
    return Scalar(
        os.fspath(value) if isinstance(value, os.PathLike) else str(value), plain=not isinstance(value, str)
    )


def _map(node: Node, known: Mapping[str, Any], where: str, mistakes: Mistakes) -> dict[str, Any]:
    if not isinstance(node, Pairs):
        mistakes.add(node.place, f"{where or 'the file'}: expected a map with the keys {', '.join(known)}.")
        return {}
    found = {}
    for key, value in node.values.items():
        name = f"{where}.{key}" if where else key
        if key not in known:
            mistakes.add(node.keys[key], f"{name}: there is no such key; {near(key, known, '')}")
        elif not (isinstance(value, Scalar) and value.is_nothing):
            found[key] = _value(value, known[key], name, mistakes)
    return found


def _value(node: Node, kind: Any, name: str, mistakes: Mistakes) -> Any:
    if isinstance(kind, dict):
        return _map(node, kind, name, mistakes)
    if isinstance(kind, list) or kind == "texts":
        if not isinstance(node, Items):
            mistakes.add(node.place, f"{name}: expected a list.")
            return []
        inner = "text" if kind == "texts" else kind[0]
        return [_value(item, inner, f"{name}[{at}]", mistakes) for at, item in enumerate(node.items)]
    value = _scalar(node, kind)
    if value is None:
        shown = repr(node.text) if isinstance(node, Scalar) else "a list or map"
        mistakes.add(node.place, f"{name}: found {shown}, expected {_KINDS[kind]}.")
    return value


def _scalar(node: Node, kind: str) -> Any:
    """Return a value of a kind, None if it is none."""
    if not isinstance(node, Scalar):
        return None
    text = node.text
    try:
        if kind == "truth":
            return _TRUTH.get(text.lower())
        if kind == "whole":
            return int(text.replace("_", ""))
        return float(text) if kind == "number" else text
    except ValueError:
        return None


@dataclass(frozen=True)
class _Interpolation:
    """Values of the form ``${streams[0].name}``, ``${.name}``, ``${oc.env:HOME}``, ``${oc.env:OUT,out}`` and ``${d.processes:2}``."""

    root: Node
    mistakes: Mistakes
    depth: int = 0

    def resolve(self, node: Node, path: tuple[str, ...]) -> Node:
        """Return a node with all references replaced; `path` leads to it."""
        if isinstance(node, Items):
            return replace(
                node, items=tuple(self.resolve(item, (*path, str(at))) for at, item in enumerate(node.items))
            )
        if isinstance(node, Pairs):
            return replace(
                node, values={key: self.resolve(item, (*path, key)) for key, item in node.values.items()}
            )
        alone = _REFERENCE.fullmatch(node.text)
        if alone:
            return moved(self.look_up(alone[1], node, path), node.place)
        return replace(node, text=_REFERENCE.sub(lambda found: self.text(found[1], node, path), node.text))

    def text(self, reference: str, node: Scalar, path: tuple[str, ...]) -> str:
        value = self.look_up(reference, node, path)
        if isinstance(value, Scalar):
            return value.text
        self.mistakes.add(node.place, f"${{{reference}}} is a list or map; expected a text inside of a text.")
        return ""

    def look_up(self, reference: str, node: Scalar, path: tuple[str, ...]) -> Node:
        resolver, colon, argument = reference.partition(":")
        if colon:
            return self.call(resolver.strip(), argument, node)
        found = self.follow(reference.strip(), path)
        if found is None or self.depth > 20:
            why = "leads back to itself" if found is not None else "leads to nothing"
            self.mistakes.add(
                node.place,
                f"${{{reference}}} {why}; expected the path of a value, such as ${{streams[0].name}}.",
            )
            return Scalar("", False, node.place)
        value, at = found
        return replace(self, depth=self.depth + 1).resolve(value, at)

    def follow(self, reference: str, path: tuple[str, ...]) -> tuple[Node, tuple[str, ...]] | None:
        """Return the value at a path, and the whole path."""
        steps = tuple(re.findall(r"[^.\[\]]+", reference))
        up = len(reference) - len(reference.lstrip("."))
        whole = (*path[: len(path) - up], *steps) if up else steps
        node = self.root
        for step in whole:
            if isinstance(node, Pairs) and step in node.values:
                node = node.values[step]
            elif isinstance(node, Items) and step.isdigit() and int(step) < len(node.items):
                node = node.items[int(step)]
            else:
                return None
        return node, whole

    def call(self, resolver: str, argument: str, node: Scalar) -> Scalar:
        if resolver in ("oc.env", "env"):
            name, comma, otherwise = argument.partition(",")
            value = os.environ.get(name.strip(), otherwise.strip() if comma else None)
            if value is not None:
                return Scalar(value, True, node.place)
            self.mistakes.add(
                node.place,
                f"the environment variable {name.strip()} is not set; set it, or write ${{oc.env:{name.strip()},otherwise}}.",
            )
        elif resolver == "d.processes" and argument.strip().isdigit():
            return Scalar(str(max(1, (os.cpu_count() or 1) - int(argument))), True, node.place)
        else:
            self.mistakes.add(
                node.place,
                f"${{{resolver}:...}} is not known here; expected a path, oc.env:NAME or d.processes:N.",
            )
        return Scalar("", False, node.place)
