"""show_cluster: the documents that are similar to one, the survivor first, with their differences to it.

Cost: the table of clusters is read twice in columns, and the shards of the members that are shown up to their rows.
"""

import html
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.display import counted, listed, near_or_all
from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.parquet import open_parquet
from dolma_dask.journal import Journal
from dolma_dask.minhash.schemes import MinHash, jaccard
from dolma_dask.questions.differences import Piece, beginning, differences
from dolma_dask.summary import Summary

MOST_SEARCHED = 1 << 30
"""Stored bytes of documents that are searched for an id that is in no cluster, to tell whether there is such a document."""

_NAMES = ["cluster_shard", "cluster_row"]


@dataclass(frozen=True)
class ClusterMember:
    """A document of a cluster.

    Attributes
    ----------
    id, source, shard : str
        Which document it is.
    row : int
        Its row in the shard.
    survivor : bool
        Whether it is the one that is kept.
    similarity : float or None
        Jaccard similarity of its n-grams with those of the survivor; None where neither has any.
    pieces : tuple of Piece
        Its text with what differs from the survivor; of the survivor the beginning.
    """

    id: str
    source: str
    shard: str
    row: int
    survivor: bool
    similarity: float | None = None
    pieces: tuple[Piece, ...] = ()

    def head(self) -> str:
        """Return the line above its text."""
        role = "survivor" if self.survivor else "copy"
        alike = "" if self.survivor or self.similarity is None else f", similarity {self.similarity:.3f}"
        return f"{role} {self.id} ({self.source}), {self.shard} row {self.row:,}{alike}"


@dataclass(frozen=True, repr=False)
class ClusterView:
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
        return {"name": self.name, "size": self.size, "members": [asdict(member) for member in self.members]}

    def _head(self) -> str:
        return f"cluster of {counted(self.size, 'document')} in {self.name}"

    def _rest(self) -> list[str]:
        left = self.size - len(self.members)
        return [f"and {left:,} more"] if left else []

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
        shown = "".join(
            f"<p><b>{html.escape(member.head())}</b></p><div style='white-space:pre-wrap;overflow-wrap:anywhere' dir='auto'>"
            f"{''.join(piece.as_html() for piece in member.pieces)}</div>"
            for member in self.members
        )
        key = " ".join(
            piece.as_html()
            for piece in (Piece("removed", "only in the survivor"), Piece("added", "only here"))
        )
        rest = "".join(f"<p>{line}</p>" for line in self._rest())
        return f"<div><p>{html.escape(self._head())}: {key}</p>{shown}{rest}</div>"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def show_cluster(
    dataset: str | Dataset | Summary,
    id: str,
    /,
    *,
    name: str = "fuzzy",
    of_source: str | None = None,
    most: int = 8,
    source: str | None = None,
    version: str | None = None,
) -> ClusterView:
    """Show the documents that dedupe found to be similar to one: the survivor, and how the others differ from it.

    Example: dolma-dask show-cluster corpus/wiki/v0 7

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    id : str
        Of any document of the cluster.
    name : str
        Attribute set that dedupe wrote, with how="fuzzy".
    of_source : str, optional
        Source of the document, where several sources have this id.
    most : int
        Documents to show at most; the rest is counted.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

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
    if most < 1:
        raise UsageError(f"most={most}; expected how many documents to show, at least 1.")
    target = dataset.target if isinstance(dataset, Summary) else dataset
    found = open_dataset(target, source=source, version=version) if isinstance(target, str) else target
    minhash = _made_with(found.root, name)
    table = _Table(files.join(found.root, layout.clusters_path(name)))
    cluster = table.cluster_of(id, of_source, lambda: _in_no_cluster(found, id, name))
    members, size = table.members(cluster, most)
    texts = _texts(found, members)
    return ClusterView(name, size, tuple(_compared(members, texts, minhash)))


def _made_with(root: str, name: str) -> MinHash:
    """Return the parameters of the signatures behind a set."""
    known = [record for record in Journal(root, "dedupe").records.values() if "comparison" in record.info]
    names = {record.unit.split("/")[1]: record for record in known}
    if name not in names:
        ask = near_or_all(name, names) if names else "make one with dolma-dask dedupe --how fuzzy."
        raise UsageError(f"{root}: {name!r} is no attribute set with clusters of similar documents; {ask}")
    params = names[name].info["comparison"]
    return MinHash(**{key: params[key] for key in ("scheme", "ngram", "unit", "num_perm", "seed")})


@dataclass(frozen=True)
class _Table:
    """A table of clusters."""

    url: str

    def cluster_of(self, id: str, of_source: str | None, error: Any) -> tuple[str, int]:
        """Return the name of the cluster of a document; raise what `error` returns if it is in none."""
        found = [
            (row["source"], (row["cluster_shard"], row["cluster_row"]))
            for batch in self._batches([*_NAMES, "source", "id"])
            for row in batch.filter(pc.equal(batch.column("id"), id)).to_pylist()
            if of_source in (None, row["source"])
        ]
        clusters = {cluster for _, cluster in found}
        if not clusters:
            raise error()
        if len(clusters) > 1:
            sources = sorted({name for name, _ in found})
            raise UsageError(
                f"id {id!r} is in {counted(len(clusters), 'cluster')}, of documents of {listed(sources)}; expected one. Name the source of the document "
                "with --of-source."
            )
        return clusters.pop()

    def members(self, cluster: tuple[str, int], most: int) -> tuple[list[ClusterMember], int]:
        """Return the first `most` members of a cluster, the survivor first of all, and how many there are."""
        shown: list[ClusterMember] = []
        size = 0
        columns = ["source", "id", "shard", "row", "size", "survivor"]
        for batch in self._batches([*_NAMES, *columns]):
            is_member = pc.and_(
                pc.equal(batch.column(_NAMES[0]), cluster[0]), pc.equal(batch.column(_NAMES[1]), cluster[1])
            )
            for row in batch.filter(is_member).select(columns).to_pylist():
                size = row.pop("size")
                shown.append(ClusterMember(**row))
            shown = sorted(shown, key=lambda member: not member.survivor)[:most]
        return shown, size

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with open_parquet(self.url) as file:
            yield from file.iter_batches(columns=columns, use_threads=False)


def _in_no_cluster(dataset: Dataset, id: str, name: str) -> UsageError:
    """Return what is wrong with an id that is in no cluster."""
    if dataset.bytes > MOST_SEARCHED:
        return UsageError(
            f"id {id!r} is in no cluster of {name}: no document is similar to it, or there is none with this id in {dataset.root}."
        )
    blocks = (
        block
        for shard in dataset.shards
        for block in DocumentFile(
            dataset.url(f"{layout.DOCUMENTS}/{shard.path}"), ("id",), source=dataset.source
        )
    )
    if any(pc.any(pc.equal(block.batch.column(0), id)).as_py() for block in blocks):
        return UsageError(f"id {id!r} is in no cluster of {name}: no other document is similar to it.")
    return UsageError(
        f"there is no document with id {id!r} in {dataset.root}; expected the id of a document."
    )


def _texts(dataset: Dataset, members: Sequence[ClusterMember]) -> dict[tuple[str, int], str]:
    """Return the texts of documents by shard and row."""
    rows: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for member in members:
        rows[member.shard][member.row] = member.id
    return {
        (shard, row): text for shard, wanted in rows.items() for row, text in _read(dataset, shard, wanted)
    }


def _read(dataset: Dataset, shard: str, wanted: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Yield the texts of some rows of a shard, whose ids are known."""
    path = f"{layout.DOCUMENTS}/{shard}"
    left = sorted(wanted)
    if all(
        shard != known.path for known in dataset.shards
    ):  # nor is a path followed that leads out of the dataset
        raise DataError(
            f"{dataset.root}: there is no document file {path!r}, which the table of clusters names. Run dedupe again."
        )
    for block in DocumentFile(dataset.url(path), ("id", "text"), source=dataset.source):
        while left and left[0] < block.first_row + block.num_rows:
            row = left.pop(0)
            at = row - block.first_row
            found, text = (block.batch.column(name)[at].as_py() for name in ("id", "text"))
            if found != wanted[row]:
                raise _changed(path, row, found, wanted[row])
            yield row, text
        if not left:
            return
    raise _changed(path, left[0], None, wanted[left[0]])


def _changed(path: str, row: int, found: str | None, expected: str) -> DataError:
    return DataError(
        f"{path}: row {row:,} has the id {found!r}, expected {expected!r}: the documents were written again since they were deduplicated. Run dedupe again."
    )


def _compared(
    members: Iterable[ClusterMember], texts: Mapping[tuple[str, int], str], minhash: MinHash
) -> Iterator[ClusterMember]:
    """Yield the members with their similarities and texts; the survivor comes first."""
    first, *others = members
    original = texts[first.shard, first.row]
    yield replace(first, similarity=1.0, pieces=beginning(original))
    for member in others:
        text = texts[member.shard, member.row]
        bounds, shingles = minhash.shingles(pa.array([original, text], pa.large_string()))
        alike = jaccard(shingles[: bounds[1]], shingles[bounds[1] :])
        yield replace(member, similarity=alike, pieces=differences(original, text))
