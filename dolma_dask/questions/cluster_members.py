"""show_cluster: the documents that are similar to one, the survivor first, with their differences to it."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Struct

from dolma_dask.display import counted, listed
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.options.base import BAD, OUTPUT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, Documents
from dolma_dask.reading.clusters import ClusterMember, ClusterName, ClusterReader, open_clusters
from dolma_dask.results import notebook
from dolma_dask.results.answer import plain
from dolma_dask.results.summary import Summary
from dolma_dask.text import compute as pc
from dolma_dask.text.differences import TextPiece

MAX_SEARCHED = 1 << 30
"""Stored bytes of documents that are searched for an id that is in no cluster, to tell whether there is such a document."""


class ClusterView(Struct, frozen=True):
    """A cluster of documents; prints as their texts with differences marked, in notebooks in colours.

    Attributes
    ----------
    name : str
        Attribute set of duplicates.
    size : int
        Documents of the cluster.
    members : tuple of ClusterMember
        Those that are shown: the survivor first, the others in the order of the listing.
    """

    name: str
    size: int
    members: tuple[ClusterMember, ...]
    exit_status: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the cluster as JSON-able values."""
        return {"name": self.name, "size": self.size, "members": plain(self.members)}

    def _head(self) -> str:
        return f"cluster of {counted(self.size, 'document')} in {self.name}"

    def _rest(self) -> list[str]:
        left = self.size - len(self.members)
        return [f"and {left:,} more; --most sets how many are shown"] if left else []

    def __str__(self) -> str:
        shown = [
            f"{member.head()}\n{_indented(''.join(piece.as_text() for piece in member.pieces))}"
            for member in self.members
        ]
        return "\n\n".join(
            [f"{self._head()}: [-only in the survivor-] {{+only here+}}", *shown, *self._rest()]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        key = (TextPiece("removed", "only in the survivor"), TextPiece("added", "only here"))
        parts = [
            notebook.heading(self._head()),
            notebook.text(" or ".join(piece.as_html() for piece in key)),
        ]
        for member in self.members:
            parts += [notebook.heading(member.head())]
            parts += [notebook.text("".join(piece.as_html() for piece in member.pieces))]
        return notebook.fragment(*parts, notebook.notes(self._rest()))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _id(given: object) -> str:
    if not isinstance(given, str):
        raise UsageError(
            f"id={given!r}; expected a string, since ids of documents are strings: {str(given)!r}."
        )
    return given


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(DatasetOptions):
    """Options of `show_cluster`."""

    name: Annotated[str, Opt('Attribute set that dedupe wrote, with how="fuzzy".', group=OUTPUT)] = "fuzzy"
    of_source: Annotated[str | None, Opt("Source of the document, where several sources have this id.")] = (
        None
    )
    most: Annotated[
        int,
        Opt(
            "Documents to show at most; the rest is counted.",
            min=1,
            expected="how many documents to show, at least 1",
        ),
    ] = 8
    max_record_bytes: Annotated[
        int,
        Opt(
            "As dedupe was given it: longer lines are bad records.",
            min=1,
            expected="a whole number of bytes, 1 or more",
            group=BAD,
        ),
    ] = MAX_RECORD_BYTES


@command
def show_cluster(
    dataset: Documents,
    id: Annotated[
        str,
        Opt(
            "Id of any document of the cluster; the summary of dedupe and the report name survivors of the largest, clusters/<name>.parquet all members.",
            convert=_id,
        ),
    ],
    /,
    *,
    options: ClusterOptions,
) -> ClusterView:
    """Show the documents that dedupe found to be similar to one: the survivor, and how the others differ from it.

    Example: dolma-dask show-cluster corpus/wiki/v0 7

    Returns
    -------
    ClusterView

    Raises
    ------
    UsageError
        There is no such set or document, the document is in no cluster, or documents of several sources have the id.
    DataError
        The documents are not those that were deduplicated.
    """
    target = dataset.target if isinstance(dataset, Summary) else dataset
    found = options.open(target)
    reader = open_clusters(found, options.name, options.max_record_bytes)
    members, size = reader.show(_cluster_of(reader, id, options.of_source), options.most)
    return ClusterView(options.name, size, tuple(members))


def _cluster_of(reader: ClusterReader, id: str, of_source: str | None) -> ClusterName:
    """Return the cluster of a document."""
    found = reader.find(id=id, **({} if of_source is None else {"source": of_source}))
    if not found:
        raise _in_no_cluster(reader, id)
    if len(found) > 1:
        raise UsageError(
            f"id {id!r} is in {counted(len(found), 'cluster')}, of documents of {listed(sorted(found.values()))}; expected one. Name the source of the "
            "document with --of-source."
        )
    return next(iter(found))


def _in_no_cluster(reader: ClusterReader, id: str) -> UsageError:
    """Return what is wrong with an id that is in no cluster."""
    dataset, name, limit = reader.dataset, reader.name, reader.max_record_bytes
    if dataset.bytes > MAX_SEARCHED:
        return UsageError(
            f"id {id!r} is in no cluster of {name}: no document is similar to it, or there is none with this id in {dataset.root}."
        )
    blocks = (
        block
        for shard in dataset.shards
        for block in DocumentFile(
            dataset.url(f"{layout.DOCUMENTS}/{shard.path}"),
            ("id",),
            source=dataset.source,
            ids_as_text=dataset.ids_as_text,
            max_record_bytes=limit,
        )
    )
    if any(pc.any(pc.equal(block.batch.column(0), id)).as_py() for block in blocks):
        return UsageError(f"id {id!r} is in no cluster of {name}: no other document is similar to it.")
    return UsageError(
        f"there is no document with id {id!r} in {dataset.root}; expected the id of a document."
    )
