"""Clusters of similar documents, from the table that dedupe wrote: their members with their texts, and how these differ from the survivor's.

Cost: a lookup reads the table in columns; texts cost the shards of the members up to their rows.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.dataset import Dataset
from dolma_dask.errors import CorruptFileError, DataError
from dolma_dask.formats import layout
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.parquet import open_parquet
from dolma_dask.minhash.schemes import MinHash, jaccard
from dolma_dask.text.differences import Piece, beginning, differences

_NAME = ["cluster_shard", "cluster_row"]
_MEMBER = ["source", "id", "shard", "row", "survivor"]

ClusterName = tuple[str, int]
"""Shard and row of the first document of a cluster."""


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


@dataclass(frozen=True)
class ClusterReader:
    """Clusters of an attribute set of duplicates."""

    dataset: Dataset
    name: str  # of the attribute set
    minhash: MinHash  # parameters of its signatures

    def find(self, **known: Any) -> dict[ClusterName, str]:
        """Return the clusters of the documents with these values (such as ``id="a"``), each with the source of one of them."""
        return {
            (row["cluster_shard"], row["cluster_row"]): row["source"]
            for batch in self._batches(list({*_NAME, "source", *known}))
            for row in batch.filter(_equal(batch, known)).to_pylist()
        }

    def show(self, cluster: ClusterName, most: int) -> tuple[list[ClusterMember], int]:
        """Return the first `most` members of a cluster with their texts, the survivor first of all, and how many there are."""
        shown: list[ClusterMember] = []
        size = 0
        for batch in self._batches([*_NAME, *_MEMBER]):
            rows = batch.filter(_equal(batch, dict(zip(_NAME, cluster, strict=True)))).select(_MEMBER)
            size += rows.num_rows
            shown += [ClusterMember(**row) for row in rows.to_pylist()]
            shown = sorted(shown, key=lambda member: not member.survivor)[:most]
        return list(self._compared(shown)), size

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        url = self.dataset.url(layout.clusters_path(self.name))
        try:
            with open_parquet(url) as file:
                yield from file.iter_batches(columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(
                f"{url}: not the table that dedupe wrote ({' '.join(str(error).split())}). Remove it and run dedupe again.",
                url=url,
            ) from error

    def _compared(self, members: Sequence[ClusterMember]) -> Iterator[ClusterMember]:
        """Yield the members with their similarities and texts; the survivor comes first."""
        texts = self._texts(members)
        first, *others = members
        original = texts[first.shard, first.row]
        yield replace(first, similarity=1.0, pieces=beginning(original))
        for member in others:
            text = texts[member.shard, member.row]
            bounds, shingles = self.minhash.shingles(pa.array([original, text], pa.large_string()))
            alike = jaccard(shingles[: bounds[1]], shingles[bounds[1] :])
            yield replace(member, similarity=alike, pieces=differences(original, text))

    def _texts(self, members: Sequence[ClusterMember]) -> dict[tuple[str, int], str]:
        """Return the texts of documents by shard and row."""
        rows: defaultdict[str, dict[int, str]] = defaultdict(dict)
        for member in members:
            rows[member.shard][member.row] = member.id
        return {
            (shard, row): text for shard, wanted in rows.items() for row, text in self._read(shard, wanted)
        }

    def _read(self, shard: str, wanted: Mapping[int, str]) -> Iterator[tuple[int, str]]:
        """Yield the texts of some rows of a shard, whose ids are known."""
        path, left = f"{layout.DOCUMENTS}/{shard}", sorted(wanted)
        if all(
            shard != known.path for known in self.dataset.shards
        ):  # nor may a path lead out of the dataset
            raise DataError(
                f"{self.dataset.root}: there is no document file {path!r}, which the table of clusters names. Run dedupe again."
            )
        for block in DocumentFile(self.dataset.url(path), ("id", "text"), source=self.dataset.source):
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


def _equal(batch: pa.RecordBatch, known: Mapping[str, Any]) -> pa.BooleanArray:
    """Return which rows have these values."""
    return reduce(pc.and_, (pc.equal(batch.column(name), value) for name, value in known.items()))


def _changed(path: str, row: int, found: str | None, expected: str) -> DataError:
    return DataError(
        f"{path}: row {row:,} has the id {found!r}, expected {expected!r}: the documents were written again since they were deduplicated. Run dedupe again."
    )
