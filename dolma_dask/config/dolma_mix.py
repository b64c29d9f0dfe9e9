"""The Dolma toolkit's mixer configuration: the same file, in YAML or JSON, with the same keys.

What it means here, where the toolkit does something else than it says: ``max_size_in_bytes`` is the stored size of an output file, not the sum
of those of its inputs; all files are called ``<name>-0000.jsonl.gz``; ``shuffle: true``, which cuts files by size and shuffles nothing, cuts files
by size, and the key ``seed`` (not known to the toolkit) shuffles; numbers compare as numbers. ``compat="dolma-1.2"`` cuts and names files as the
toolkit does. Keys of our own: ``seed``, and ``sample_rate`` of a stream.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack

from dolma_dask import clusters
from dolma_dask.config.dolma_mix_file import called, read_config
from dolma_dask.errors import Failure, StageError, UsageError
from dolma_dask.formats.layout import FileFormat
from dolma_dask.stages.mixing.streams import Stream, mix_stream
from dolma_dask.stages.mixing.summary import MixSummary, sum_streams
from dolma_dask.stages.mixing.wishes import make_wishes
from dolma_dask.stages.options import ReadArgs, checked, record_policy, run_options
from dolma_dask.summary import Summary

COMPAT = "dolma-1.2"

_FORMATS: Mapping[str, FileFormat] = {"gz": "jsonl.gz", "zst": "jsonl.zst", "": "jsonl"}


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
        raise UsageError(f"{called(config)} has no streams; expected a list of one or more under `streams`.")
    run = run_options(options)
    workers = processes or read.get("processes")
    if workers is not None and run.workers is None:
        run = replace(run, workers=workers)
    if dryrun or read.get("dryrun"):
        run = replace(run, dry_run=True)
    policy = record_policy(options)
    with clusters.shared_cluster():
        return _together(
            [(stream, lambda stream=stream: mix_stream(stream, policy, run, options)) for stream in streams]
        )


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
    return (
        summaries[0][1]
        if len(summaries) == 1
        else sum_streams([(stream.name, item) for stream, item in summaries])
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
