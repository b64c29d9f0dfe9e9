"""Clusters of similar documents, from the table that dedupe wrote: their members with their texts, and how these differ from the survivor's.

Cost: a lookup reads the table in columns; texts cost the shards of the members up to their rows.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from msgspec import Struct

from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.display import near_or_all
from dolma_dask.errors import CorruptFileError, DataError, UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Journal
from dolma_dask.minhash.schemes import MinHash, jaccard
from dolma_dask.reading.catalog import Catalog
from dolma_dask.reading.together import OWN, datasets_in
from dolma_dask.text import compute as pc
from dolma_dask.text.differences import TextPiece, beginning, differences

_TABLE = pa.schema(
    [
        ("cluster_shard", pa.large_string()),
        ("cluster_row", pa.int64()),
        ("source", pa.large_string()),
        ("id", pa.large_string()),
        ("shard", pa.large_string()),
        ("row", pa.int64()),
        ("size", pa.int64()),
        ("survivor", pa.bool_()),
        ("similarity", pa.float64()),
    ]
)


_DATASETS = pa.schema([("cluster_dataset", pa.large_string()), ("dataset", pa.large_string())])
"""Further columns where there are several datasets: as seen from the one that has the table."""


def table_schema(datasets: int) -> pa.Schema:
    """Return the columns of the table of clusters of so many datasets."""
    return pa.schema([*_TABLE, *(_DATASETS if datasets > 1 else ())])


_NAME = ("cluster_shard", "cluster_row")
_MEMBER = ("source", "id", "shard", "row", "survivor")
ClusterName = tuple[str | int, ...]
"""Shard and row of the first document of a cluster and, where several datasets were deduplicated together, which of them it is in."""


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
    dataset : str
        Its dataset as seen from the one that was asked; "." for that one.
    similarity : float or None
        Jaccard similarity of its n-grams with those of the survivor; None where neither has any.
    pieces : tuple of TextPiece
        Its text with what differs from the survivor; of the survivor the beginning.
    """

    id: str
    source: str
    shard: str
    row: int
    survivor: bool
    dataset: str = OWN
    similarity: float | None = None
    pieces: tuple[TextPiece, ...] = ()

    def head(self) -> str:
        """Return the line above its text."""
        role = "survivor" if self.survivor else "copy"
        alike = "" if self.survivor or self.similarity is None else f", similarity {self.similarity:.3f}"
        shard = self.shard if self.dataset == OWN else f"{self.dataset}: {self.shard}"
        return f"{role} {self.id} ({self.source}), {shard} row {self.row:,}{alike}"


class ClusterReader(Struct, frozen=True, dict=True):
    """Clusters of an attribute set of duplicates."""

    dataset: Dataset
    name: str  # of the attribute set
    minhash: MinHash  # parameters of its signatures
    datasets: tuple[str, ...] = ()  # deduplicated together, as seen from this one; the first has the table
    max_record_bytes: int = MAX_RECORD_BYTES

    def find(self, **known: Any) -> dict[ClusterName, str]:
        """Return the clusters of the documents of this dataset with these values (such as ``id="a"``), each with the source of one of them."""
        if self.datasets:
            known["dataset"] = self._named[OWN]
        return {
            tuple(row[column] for column in self._name): row["source"]
            for batch in self._batches([*{*self._name, "source", *known}])
            for row in batch.filter(_equal(batch, known)).to_pylist()
        }

    def show(self, cluster: ClusterName, max_members: int) -> tuple[list[ClusterMember], int]:
        """Return the first `max_members` of a cluster with their texts, the survivor first of all, and how many there are."""
        shown: list[ClusterMember] = []
        size = 0
        columns = [*_MEMBER, *(["dataset"] if self.datasets else [])]
        for batch in self._batches([*self._name, *columns]):
            rows = batch.filter(_equal(batch, dict(zip(self._name, cluster, strict=True)))).select(columns)
            size += rows.num_rows
            shown += [self._member(row) for row in rows.to_pylist()]
            shown = sorted(shown, key=lambda member: not member.survivor)[:max_members]
        return list(self._compared(shown)), size

    def beside_survivor(self, cluster: ClusterName, shard: str, row: int) -> list[ClusterMember]:
        """Return the survivor of a cluster and one of its documents of this dataset, with their differences; the survivor alone if it is that."""
        columns = [*_MEMBER, *(["dataset"] if self.datasets else [])]
        found: list[ClusterMember] = []
        for batch in self._batches([*self._name, *columns]):
            rows = batch.filter(_equal(batch, dict(zip(self._name, cluster, strict=True)))).select(columns)
            members = map(self._member, rows.to_pylist())
            own = (OWN, shard, row)
            found += [one for one in members if one.survivor or _place(one) == own]
        return list(self._compared(sorted(found, key=lambda one: not one.survivor)))

    @property
    def _name(self) -> list[str]:
        """Columns that name a cluster."""
        return [*_NAME, *(["cluster_dataset"] if self.datasets else [])]

    @cached_property
    def _roots(self) -> dict[str, str]:
        """Roots of the datasets, by how they are seen from this one."""
        return {place: files.seen_from(self.dataset.root, place) for place in self.datasets or (OWN,)}

    @cached_property
    def _named(self) -> dict[str, str]:
        """Names of the datasets in the table, by how they are seen from this one."""
        first = next(iter(self._roots.values()))
        return {place: files.relative(first, root) for place, root in self._roots.items()}

    def _member(self, row: Mapping[str, Any]) -> ClusterMember:
        if not self.datasets:
            return ClusterMember(**row)
        places = {name: place for place, name in self._named.items()}
        if row["dataset"] not in places:
            raise DataError(
                f"the table of clusters names the dataset {row['dataset']!r}, which is none of those that were deduplicated with {self.dataset.root}. "
                "Run dedupe again."
            )
        return ClusterMember(**{**row, "dataset": places[row["dataset"]]})

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        url = files.join(next(iter(self._roots.values())), layout.clusters_path(self.name))
        try:
            with open_parquet(url) as file:
                if not file.schema_arrow.equals(table_schema(len(self.datasets))):
                    raise pa.ArrowInvalid("other columns")
                for batch in file.iter_batches(columns=columns, use_threads=False):
                    if any(column.null_count for column in batch.columns):
                        raise pa.ArrowInvalid("a value is missing")
                    yield batch
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(
                f"{url}: not the table that dedupe wrote ({' '.join(str(error).split())}). Remove it and run dedupe again.",
                url=url,
            ) from error

    def _compared(self, members: Sequence[ClusterMember]) -> Iterator[ClusterMember]:
        """Yield the members with their similarities and texts; the survivor comes first."""
        texts = self._texts(members)
        if not members:
            return
        first, *others = members
        original = texts[_place(first)]
        yield dataclasses.replace(first, similarity=1.0, pieces=beginning(original))
        for member in others:
            text = texts[_place(member)]
            bounds, shingles = self.minhash.shingles(pa.array([original, text], pa.large_string()))
            alike = jaccard(shingles[: bounds[1]], shingles[bounds[1] :])
            yield dataclasses.replace(member, similarity=alike, pieces=differences(original, text))

    def _texts(self, members: Sequence[ClusterMember]) -> dict[tuple[str, str, int], str]:
        """Return the texts of documents by dataset, shard and row."""
        rows: defaultdict[tuple[str, str], dict[int, str]] = defaultdict(dict)
        for member in members:
            rows[member.dataset, member.shard][member.row] = member.id
        return {
            (place, shard, row): text
            for (place, shard), wanted in rows.items()
            for row, text in self._read(self._opened(place), shard, wanted)
        }

    def _opened(self, place: str) -> Dataset:
        if place == OWN:
            return self.dataset
        own = self.dataset
        return open_dataset(self._roots[place], source=own.source, skip=own.skip, ids_as_text=own.ids_as_text)

    def _read(self, dataset: Dataset, shard: str, wanted: Mapping[int, str]) -> Iterator[tuple[int, str]]:
        """Yield the texts of some rows of a shard, whose ids are known."""
        path, left = f"{layout.DOCUMENTS}/{shard}", sorted(wanted)
        if all(shard != known.path for known in dataset.shards):  # nor may a path lead out of the dataset
            raise DataError(
                f"{dataset.root}: there is no document file {path!r}, which the table of clusters names. Run dedupe again."
            )
        limit = self.max_record_bytes
        file = DocumentFile(
            dataset.url(path),
            ("id", "text"),
            source=dataset.source,
            ids_as_text=dataset.ids_as_text,
            max_record_bytes=limit,
        )
        for block in file:
            while left and left[0] < block.first_row + block.num_rows:
                row = left.pop(0)
                at = row - block.first_row
                found, text = (block.batch.column(name)[at].as_py() for name in ("id", "text"))
                for record in (bad for bad in block.bad if bad.row == row):
                    raise record.error("Read the documents as dedupe did.")
                if found != wanted[row]:
                    raise _changed(path, row, found, wanted[row])
                yield row, text
            if not left:
                return
        raise _changed(path, left[0], None, wanted[left[0]])


def open_clusters(dataset: Dataset, name: str, max_record_bytes: int = MAX_RECORD_BYTES) -> ClusterReader:
    """Return the reader of the clusters behind an attribute set.

    Raises `UsageError`: it is none of similar documents. Raises `DataError`: the documents are not those that were deduplicated.
    """
    root = dataset.root
    known = [record for record in Journal(root, "dedupe").records.values() if "comparison" in record.info]
    names = {record.unit.split("/")[1]: record for record in known}
    if name not in names:
        ask = near_or_all(name, names) if names else "make one with dolma-dask dedupe ... --how fuzzy."
        raise UsageError(f"{root}: {name!r} is no attribute set with clusters of similar documents; {ask}")
    Catalog(dataset).check_unchanged(name)
    info = names[name].info
    minhash = MinHash(
        **{key: info["comparison"][key] for key in ("scheme", "ngram", "unit", "num_perm", "seed")}
    )
    places = tuple(place for place, _ in datasets_in(names[name]))
    return ClusterReader(dataset, name, minhash, places, max_record_bytes)


def _place(member: ClusterMember) -> tuple[str, str, int]:
    return member.dataset, member.shard, member.row


def _equal(batch: pa.RecordBatch, known: Mapping[str, Any]) -> pa.BooleanArray:
    """Return which rows have these values."""
    return reduce(pc.and_, (pc.equal(batch.column(name), value) for name, value in known.items()))


def _changed(path: str, row: int, found: str | None, expected: str) -> DataError:
    return DataError(
        f"{path}: row {row:,} has the id {found!r}, expected {expected!r}: the documents were written again since they were deduplicated. Run dedupe again."
    )
