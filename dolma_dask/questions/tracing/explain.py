"""explain: why one document is where it is: its signals among those of all, the rules that kept or dropped it, and the document it is a copy of.

Cost: that of `find`, and for signals whose quantiles are not known one pass over their attributes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.errors import DolmaDaskError, InterruptedStageError, UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.options.base import OWN, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, Documents
from dolma_dask.questions.tracing.index import IndexOptions
from dolma_dask.questions.tracing.mixes import MixOutcome, mixes_of
from dolma_dask.questions.tracing.places import DocumentPlace, FoundId, seen, tables_of
from dolma_dask.questions.tracing.search import Searched
from dolma_dask.questions.tracing.signals import SignalPlace, signals_of
from dolma_dask.reading.clusters import ClusterMember, open_clusters
from dolma_dask.reading.entry_points import EntryPoints
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Fact, Facts, Listing, Notes, Part
from dolma_dask.results.table import Column, Table
from dolma_dask.rules.signal_names import short_names

T = TypeVar("T")


class ExplainedCluster(Struct, frozen=True):
    """A cluster that a document is in."""

    name: str  # of the attribute set
    size: int
    members: tuple[ClusterMember, ...]  # the survivor and, if it is another, the document


class Explained(Answer, frozen=True):
    """All that is known of a document; prints as tables."""

    dataset: str
    document: DocumentPlace
    signals: tuple[SignalPlace, ...]
    mixes: tuple[MixOutcome, ...]
    clusters: tuple[ExplainedCluster, ...]
    places: FoundId
    roots: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def parts(self) -> Iterator[Part]:
        one = self.document
        where = [Fact("source", one.source), Fact("shard", one.path), Fact("row", one.row, "integer")]
        yield Facts(f"document {one.id} of {self.dataset}", where)
        names = short_names([signal.name for signal in self.signals])
        rows = [
            replace(signal, name=names[signal.name]) for signal in self.signals if signal.value is not None
        ]
        yield Table.of("signals", _SIGNALS, rows)
        yield Table.of("versions made of it", _mix_columns(self.roots), self.mixes)
        for cluster in self.clusters:
            for member in cluster.members:
                head = f"{cluster.name}, {counted(cluster.size, 'document')}: {member.head()}"
                yield Listing(head, "".join(piece.as_text() for piece in member.pieces).splitlines())
        yield from tables_of(self.places, self.roots, "where it is: ")
        yield Notes(self.notes)


_SIGNALS = (
    Column("signal", "name", "name"),
    Column("value", "real"),
    Column("quantile", "share"),
    Column("below"),
    Column("equal"),
    Column("documents"),
)


def _mix_columns(roots: Sequence[str]) -> tuple[Column, ...]:
    return (
        Column("version", "name", lambda one: seen(one.version, roots)),
        Column(
            "rule",
            "words",
            lambda one: (
                "keeps it"
                if not one.dropped_by and not one.note.startswith("the rule cannot")
                else ", ".join(one.dropped_by)
            ),
        ),
        Column("has it", "words", lambda one: "yes" if one.is_there else "no"),
        Column("note", "words"),
    )


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(DatasetOptions, IndexOptions):
    """Options of `explain`."""

    of_source: Annotated[
        str | None, Opt("Source of the document, where several sources have this id.", group=OWN)
    ] = None
    root: Annotated[
        str | None,
        Opt(
            "Where versions and token files are looked for; by default in the folder of the dataset and in those beside it.",
            group=OWN,
        ),
    ] = None
    exact: Annotated[
        bool,
        Opt(
            "Count the documents below each value, though quantiles.json tells about where it lies.",
            group=OWN,
            is_flag=True,
        ),
    ] = False


@command
def explain(
    id: Annotated[str, Opt("Id of a document.")],
    dataset: Documents,
    /,
    *,
    options: ExplainOptions,
) -> Explained:
    """Explain a document: its signals among those of all documents, the rules that kept or dropped it, its cluster, and every place where it is.

    Example: dolma-dask explain 7 corpus/wiki/v0

    What is not there, such as signals or clusters, is told in a note.

    Returns
    -------
    Explained

    Raises
    ------
    UsageError
        There is no such document, or several sources have the id.

    Examples
    --------
    >>> dk.explain("7", "corpus/v0").signals[0].quantile  # doctest: +SKIP
    """
    opened = options.open(dataset)
    searched = _searched(opened, options)
    (found,) = searched.find([id], options.of_source)
    document, notes = _document(found, opened, id)
    shard = next(one for one in opened.shards if layout.document_path(one.path) == document.path)
    points = EntryPoints(opened.root)
    signals = _told(
        notes,
        "no signals",
        (),
        lambda: signals_of(opened, shard, document.row, points, options, exact=options.exact),
    )
    versions = [url for one in searched.roots for url in map(one.url, one.datasets)]
    having = [one.dataset for one in found.documents]
    mixes = tuple(mixes_of(opened, shard, document.row, points, versions, having))
    clusters = tuple(_clusters(opened, document, notes))
    notes += (
        [] if mixes else ["no mix of this dataset below " + ", ".join(one.root for one in searched.roots)]
    )
    roots = tuple(one.root for one in searched.roots)
    return Explained(opened.root, document, tuple(signals), mixes, clusters, found, roots, tuple(notes))


def _searched(dataset: Dataset, options: ExplainOptions) -> Searched:
    """Return where other places of documents of a dataset are looked for."""
    if options.root is not None:
        return Searched.below([files.normalize(options.root), dataset.root], options)
    return Searched.below([files.parent(dataset.root) or dataset.root, dataset.root], options, depth=1)


def _document(found: FoundId, dataset: Dataset, id: str) -> tuple[DocumentPlace, list[str]]:
    """Return the document of an id in a dataset, and what should be known of it."""
    own = [one for one in found.documents if files.resolved(one.dataset) == files.resolved(dataset.root)]
    sources = sorted({str(one.source) for one in own})
    if not own:
        raise UsageError(
            f"there is no document with id {id!r} in {dataset.root}; expected the id of a document."
        )
    if len(sources) > 1:
        raise UsageError(
            f"id {id!r} is that of documents of {', '.join(sources)}; expected one. Name it with --of-source."
        )
    return own[0], [f"{counted(len(own), 'row')} have this id; the first is explained"] if len(
        own
    ) > 1 else []


def _told(notes: list[str], what: str, otherwise: Sequence[T], ask: Callable[[], Sequence[T]]) -> Sequence[T]:
    """Return an answer, or say why there is none."""
    try:
        return ask()
    except InterruptedStageError:
        raise
    except DolmaDaskError as error:
        notes.append(f"{what}: {error}")
        return otherwise


def _clusters(dataset: Dataset, document: DocumentPlace, notes: list[str]) -> Iterator[ExplainedCluster]:
    """Yield the clusters of similar documents that a document is in."""
    names = [
        info.path.removesuffix(".parquet")
        for info in files.list_files(dataset.url(layout.CLUSTERS))
        if info.path.endswith(".parquet")
    ]
    notes += (
        [] if names else [f"no clusters of similar documents: dolma-dask dedupe {dataset.root} --how fuzzy"]
    )
    shard = document.path.removeprefix(f"{layout.DOCUMENTS}/")
    for name in names:
        ask = partial(_cluster, dataset, name, shard, document)
        yield from _told(notes, f"no clusters of {name}", (), ask)


def _cluster(dataset: Dataset, name: str, shard: str, document: DocumentPlace) -> list[ExplainedCluster]:
    reader = open_clusters(dataset, name)
    own = reader.find(shard=shard, row=document.row)
    return [
        ExplainedCluster(
            name, reader.show(cluster, 0)[1], tuple(reader.beside_survivor(cluster, shard, document.row))
        )
        for cluster in own
    ]
