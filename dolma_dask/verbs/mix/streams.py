"""A mix of files chosen by patterns, as the Dolma toolkit's mixer takes it: a stream is a list of document files, of one dataset or several.

Attributes lie where the layout says: ``documents`` in a path is replaced by ``attributes/<name>``. The journal lies beside ``documents`` if the
output path has such a folder, else in the output path.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import Dataset, Shard, matches
from dolma_dask.engine import Plan, RunOptions, Unit, run_job
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.verbs.mix.call import check_apart, mix_key
from dolma_dask.verbs.mix.cutting import DEFAULT_SIZE, FilePacking
from dolma_dask.verbs.mix.outputs import DocumentOutput
from dolma_dask.verbs.mix.packed import Packed, Part
from dolma_dask.verbs.mix.planning import make_mixture
from dolma_dask.verbs.mix.recipe import MixOptions
from dolma_dask.verbs.mix.summary import MixSummary, summarize
from dolma_dask.verbs.options import RunArgs, budget, told
from dolma_dask.verbs.selection import Selection
from dolma_dask.verbs.sinks import DocumentStage

_MAGIC = re.compile(r"[*?\[]")
_FOLDER = f"/{layout.DOCUMENTS}/"


@dataclass(frozen=True)
class Stream:
    """One stream: its inputs, options and outputs."""

    name: str  # of the output files
    documents: tuple[str, ...]  # paths, URLs and patterns; ``**`` stands for any folders
    attributes: tuple[str, ...]  # attribute sets, of which later ones win
    path: str  # output folder
    options: MixOptions  # what is done to the documents
    max_bytes: int = DEFAULT_SIZE  # stored bytes of an output file at most
    input_format: FileFormat | None = None
    """None: that of each input file, and for files that are cut by size jsonl.gz."""
    output_format: FileFormat | None = None
    packed: bool = True  # whether files are cut by size; else there is one for each input file
    seed: int | None = None  # of a shuffle
    by_inputs: bool = False  # see `dolma_dask.verbs.mix.cutting.FilePacking`

    def params(self) -> dict[str, Any]:
        """Return the options for the journal."""
        return told(
            {
                "name": self.name,
                "documents": list(self.documents),
                "attributes": list(self.attributes),
                "max_size": self.max_bytes if self.packed else None,
                "format": self.output_format,
                "shuffle": self.seed,
                **self.options.params(),
            }
        )


def mix_stream(stream: Stream, policy: RecordPolicy, options: RunOptions, args: RunArgs) -> MixSummary:
    """Run a stream, or the shards of it that ``only`` and ``prune`` of `args` leave."""
    parts, notes = _parts(stream, args)
    if stream.packed:
        return summarize(run_job(_packed(stream, parts, policy, notes), options))
    return summarize(engine.run(_plan(stream, parts, policy, notes), options).summary)


def _parts(stream: Stream, args: RunArgs) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Return all shards of a stream in order, with what is done to them."""
    found, notes = _found(stream)
    found = _selected(found, args)
    datasets: dict[str, list[Shard]] = {}
    for root, shard in found:
        datasets.setdefault(root, []).append(shard)
    mixtures = {}
    for root, shards in datasets.items():
        check_apart(root, stream.path)
        dataset = Dataset(root, tuple(shards), source="").with_current_attributes()
        mixtures[root] = make_mixture(
            Selection(dataset, None, None), stream.options, stream.attributes, in_order=True
        )
        notes += mixtures[root].notes
    numbers = {root: number for number, root in enumerate(datasets)}
    parts = tuple(
        Part(mixtures[root], shard, shard.path if len(datasets) == 1 else f"{numbers[root]:03d}/{shard.path}")
        for root, shard in found
    )
    return parts, tuple(dict.fromkeys(notes))


def _selected(found: list[tuple[str, Shard]], args: RunArgs) -> list[tuple[str, Shard]]:
    """Return the shards that ``only`` and ``prune`` leave."""
    only = tuple(args.get("only", ()))
    left = [(root, shard) for root, shard in found if not only or matches(shard.path, only)]
    prune = args.get("prune")
    if prune is not None and prune < 1:
        raise UsageError(f"prune={prune} leaves no shard; expected 1 or more.")
    left = left[:prune]
    if not left:
        raise UsageError(f"no shard matches {' '.join(only)!r}; the first is {found[0][1].path!r}.")
    return left


def _found(stream: Stream) -> tuple[list[tuple[str, Shard]], list[str]]:
    """Return the files that match, each once, and notes about patterns that match none."""
    found: dict[tuple[str, str], Shard] = {}
    notes = []
    for pattern in stream.documents:
        urls = list(_matches(pattern))
        notes += [] if urls else [f"no file matches {pattern}"]
        for url, info in urls:
            root, path = _split(url)
            _check_format(url, stream.input_format)
            found.setdefault((root, path), Shard(path, info.bytes, info.stamp))
    if not found:
        raise UsageError(
            f"stream {stream.name!r}: no file matches {', '.join(stream.documents) or 'its documents, of which there are none'}; expected "
            "paths or patterns such as corpus/documents/*.jsonl.gz."
        )
    return [(root, shard) for (root, _), shard in found.items()], notes


def _matches(pattern: str) -> Iterator[tuple[str, FileInfo]]:
    """Yield the files that a path or pattern stands for, sorted, with what the listing says of them."""
    url = files.normalize(pattern)
    magic = _MAGIC.search(url)
    if magic is None:
        info = files.stat(url)
        if info is not None:
            yield url, info
        return
    base = url[: magic.start()].rpartition("/")[0]
    wanted = re.compile(_regex(url[len(base) + 1 :]))
    for info in files.list_files(base):
        if wanted.fullmatch(info.path):
            yield f"{base}/{info.path}", info


def _regex(pattern: str) -> str:
    """Return a shell pattern as a regular expression; ``*`` stays in its folder, ``**`` does not."""
    parts = []
    for piece in re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|[^*?\[]+|\[", pattern):
        known = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece)
        if known is None:
            is_class = piece.startswith("[") and len(piece) > 1
            known = "[" + piece[1:].replace("!", "^", piece[1] == "!") if is_class else re.escape(piece)
        parts.append(known)
    return "".join(parts)


def _split(url: str) -> tuple[str, str]:
    """Return the root of the dataset that a document file lies in, and its path below ``documents``."""
    root, folder, path = url.rpartition(_FOLDER)
    if not folder:
        raise UsageError(
            f"{url} does not lie below a folder {layout.DOCUMENTS!r}; expected <dataset>/{layout.DOCUMENTS}/..., so that its attributes are found "
            f"in <dataset>/{layout.ATTRIBUTES}/<name>/... Move the files, or name others."
        )
    return root, path


def _check_format(url: str, wanted: FileFormat | None) -> None:
    if layout.suffix_of(url) is None:
        raise UsageError(f"{url} is no document file; expected one of {', '.join(layout.DOCUMENT_SUFFIXES)}.")
    if wanted is not None and layout.format_of(url) != wanted:
        raise UsageError(
            f"{url} is said to be {wanted} (compression.input); expected a name that says so too, since readers go by names. Leave "
            "compression.input out."
        )


def output_place(path: str) -> tuple[str, str]:
    """Return the root of what is written to a folder, and where the folder is in it: journals never lie below ``documents``."""
    url = files.normalize(path)
    root, folder, inside = f"{url}/".rpartition(_FOLDER)
    return (root, f"{layout.DOCUMENTS}/{inside}") if folder else (url, "")


def _packed(stream: Stream, parts: tuple[Part, ...], policy: RecordPolicy, notes: tuple[str, ...]) -> Packed:
    root, prefix = output_place(stream.path)
    name = layout.check_name(stream.name, "stream")
    packing = FilePacking(
        f"{prefix}{name}", stream.output_format or "jsonl.gz", stream.max_bytes, stream.seed, stream.by_inputs
    )
    keys = [
        mix_key(mixture, policy) for mixture in {id(part.mixture): part.mixture for part in parts}.values()
    ]
    return Packed(root, name, parts, packing, policy, ",".join(keys), stream.params(), notes)


def _plan(stream: Stream, parts: Sequence[Part], policy: RecordPolicy, notes: tuple[str, ...]) -> Plan:
    """Return the plan of a stream with one output file for each input file."""
    root, prefix = output_place(stream.path)
    output = DocumentOutput(root, stream.output_format, prefix)
    paths = [output.path(part.shard) for part in parts]
    layout.check_no_collision(paths)
    stage = DocumentStage((output,), policy, "mix")
    tasks = [
        stage.task(part.mixture.source(part.shard), Unit(path, mix_key(part.mixture, policy)))
        for part, path in zip(parts, paths, strict=True)
    ]
    return Plan(
        stage=stage,
        root=root,
        tasks=tasks,
        params=stream.params(),
        writes=(f"{prefix}{layout.DOCUMENTS}/",),
        version=dolma_dask.__version__,
        origin=parts[0].mixture.dataset.root,
        reads=layout.DOCUMENT_SUFFIXES,
        max_bad_fraction=budget(policy),
        notes=notes,
    )
