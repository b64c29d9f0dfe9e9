"""A mix of files selected by patterns, as the Dolma toolkit's mixer takes it: a stream is a list of document files, of one dataset or several.

Attributes lie where the layout says: ``documents`` in a path is replaced by ``attributes/<name>``. Folders that hold new documents hold nothing
else, since other tools take all that is there: the journal, bad records and staging files lie beside them.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import run_job
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.patterns import matches, split, without_files
from dolma_dask.io.records import merge_rules, sum_counts
from dolma_dask.options.base import without_empty
from dolma_dask.options.groups import NO_SHARD, ShardOptions
from dolma_dask.options.records import RecordOptions
from dolma_dask.outputs.cutting import FilePacking
from dolma_dask.outputs.documents import check_apart, documents_job
from dolma_dask.outputs.packed import Part
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.kept.recipe import RecipeOptions
from dolma_dask.reading.selection import Selection
from dolma_dask.results.parts import Fact, indented
from dolma_dask.sinks.documents import DocumentOutput
from dolma_dask.verbs.mix.call import MixSummary, summarize

_FOLDER = f"/{layout.DOCUMENTS}/"


class Stream(Struct, frozen=True):
    """One stream: its inputs, options and outputs."""

    name: str  # of the output files
    documents: tuple[str, ...]  # paths, URLs and patterns; ``**`` stands for any folders
    attributes: tuple[str, ...]  # attribute sets, of which later ones win
    path: str  # output folder
    options: RecipeOptions  # what is done to the documents
    packing: FilePacking | None
    """Cut of output files, with the name as their prefix; None: there is one for each input file."""
    input_format: FileFormat | None = None  # None: that of each input file
    output_format: FileFormat | None = None  # None: the same, and for files that are cut by size jsonl.gz
    ids_as_text: bool = False  # see `dolma_dask.dataset.Dataset`

    def params(self) -> dict[str, Any]:
        """Return the options for the journal."""
        return without_empty(
            {
                "name": self.name,
                "documents": list(self.documents),
                "attributes": list(self.attributes),
                "max_size": self.packing and self.packing.max_bytes,
                "format": self.output_format,
                "shuffle": self.packing and self.packing.seed,
                "ids_as_text": self.ids_as_text or None,
                **self.options.recipe_params(),
            }
        )


def mix_stream(stream: Stream, full: Set[str], options: RecordOptions) -> MixSummary:
    """Run a stream, or the shards of it that ``only``, ``share`` and ``prune`` leave; `full` holds all `folders_of` the call."""
    parts, notes, is_narrowed = _parts(stream, options)
    root, prefix = output_folder(stream.path, full)
    above = f"/{prefix}".partition(_FOLDER)[0].strip("/")
    output = DocumentOutput(root, stream.output_format, prefix, f"mix/{above}".rstrip("/"))
    packing = stream.packing
    if packing is not None:
        packing = replace(packing, prefix=prefix + packing.prefix)
    target = files.join(root, above)
    if not parts:
        return MixSummary("mix", target, notes=(*notes, NO_SHARD))
    job = documents_job(output, packing, parts, options.policy, stream.params(), notes, is_narrowed)
    return summarize(replace(run_job(job, options), target=target))


def folders_of(streams: Iterable[Stream]) -> set[str]:
    """Return the folders that streams fill with their files, those apart that keep the folders of their inputs."""
    return {files.resolved(files.normalize(stream.path)) for stream in streams if stream.packing is not None}


def _parts(stream: Stream, options: ShardOptions) -> tuple[list[Part], tuple[str, ...], bool]:
    """Return the shards of a stream in order that options leave, with what is done to them; notes; and whether some were left out."""
    matching = _matching(stream)
    every = Dataset(f"stream {stream.name!r}", tuple(shard for _, shard in matching), source="")
    kept = set(map(id, options.selected(every).shards))
    shards = [(root, shard) for root, shard in matching if id(shard) in kept]
    datasets: dict[str, list[Shard]] = {}
    for root, shard in shards:
        datasets.setdefault(root, []).append(shard)
    mixtures, notes = {}, list[str]()
    for root, own in datasets.items():
        check_apart(root, stream.path)
        dataset = Dataset(root, tuple(own), source="", ids_as_text=stream.ids_as_text)
        dataset = dataset.with_current_attributes()
        mixtures[root] = make_mixture(
            Selection(dataset, None, None), stream.options, stream.attributes, in_order=True
        ).for_targets(stream.path)
        notes += mixtures[root].notes
    numbers = {root: number for number, root in enumerate(datasets)}
    parts = [
        Part(mixtures[root], shard, shard.path if len(datasets) == 1 else f"{numbers[root]:03d}/{shard.path}")
        for root, shard in shards
    ]
    return parts, tuple(dict.fromkeys(notes)), len(shards) < len(matching)


def _matching(stream: Stream) -> list[tuple[str, Shard]]:
    """Return the files that match, each once; refuse patterns that match none."""
    shards: dict[tuple[str, str], Shard] = {}
    alone = []
    for pattern in stream.documents:
        urls = list(matches(pattern))
        alone += [] if urls else [pattern]
        for url, info in urls:
            root, path = split(url, layout.DOCUMENTS)
            _check_format(url, stream.input_format)
            shards.setdefault((root, path), Shard(path, info.bytes, info.stamp, stream.ids_as_text))
    if alone or not shards:
        raise UsageError(f"stream {stream.name!r}: {without_files(alone, layout.DOCUMENTS)}")
    return [(root, shard) for (root, _), shard in shards.items()]


def _check_format(url: str, expected: FileFormat | None) -> None:
    if layout.suffix_of(url) is None:
        raise UsageError(f"{url} is no document file; expected {layout.SUFFIXES_SHOWN}.")
    if expected is not None and layout.format_of(url) != expected:
        raise UsageError(
            f"{url} is said to be {expected} (compression.input); expected a name that says so too, since readers go by names. Leave "
            "compression.input out."
        )


def output_folder(path: str, full: Set[str]) -> tuple[str, str]:
    """Return the root of what is written to a folder, where the journal lies, and the path of the folder in it.

    The root never lies in ``documents`` or in one of the folders `full`, unless there is nothing above: the top of a bucket.
    """
    url = _folder(path)
    root, folder, inside = f"{url}/".rpartition(_FOLDER)
    root, prefix = (root, f"{layout.DOCUMENTS}/{inside}") if folder else (url, "")
    while any(f"{files.resolved(root)}/".startswith(f"{each}/") for each in full) and (
        above := files.parent(root)
    ):
        root, prefix = above, f"{root.rpartition('/')[2]}/{prefix}"
    return root, prefix


def _folder(path: str) -> str:
    """Return the URL of an output folder; a link is followed, so that what lies beside it does not depend on the name that was used."""
    url = files.normalize(path)
    is_link = files.is_local(url) and (".." in url.split("/") or files.local_path(url).is_symlink())
    return files.resolved(url) if is_link else url


class StreamsSummary(MixSummary, frozen=True):
    """The outcome of several streams; ``streams`` holds that of each by its name."""

    streams: tuple[tuple[str, MixSummary], ...] = ()

    def facts(self) -> list[Fact]:
        """Return the facts of each stream below its name."""
        each = ((Fact("stream", name), *indented(summary.facts())) for name, summary in self.streams)
        return [fact for facts in each for fact in facts]

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "streams": {name: summary.to_json() for name, summary in self.streams}}


def sum_streams(summaries: Sequence[tuple[str, MixSummary]]) -> StreamsSummary:
    """Return the summary of several streams, with their names."""
    every = [summary for _, summary in summaries]
    return StreamsSummary(
        verb="mix",
        rules=merge_rules(summary.rules for _, summary in summaries),
        target=", ".join(dict.fromkeys(item.target for item in every)),
        done=sum(item.done for item in every),
        skipped=sum(item.skipped for item in every),
        seconds=sum(item.seconds for item in every),
        counts=sum_counts(item.counts for item in every),
        notes=tuple(f"{name}: {note}" for name, item in summaries for note in item.notes),
        planned=tuple(f"{name}: {shard}" for name, item in summaries for shard in item.planned),
        streams=tuple(summaries),
    )
