"""Which segment of an index is that of a dataset: the one of its place; or, if it was moved, of its flags or of its bytes.

A dataset that is where the index says is the one of that segment, so that a copy of it beside is another dataset, and all of its documents are duplicates. If it is
not there any more, or is another one now, the copy stands for it: nothing is compared with itself.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.exchange.flagging import dataset_unit
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.journal import Journal
from dolma_dask.reading.indexes import indexed_datasets
from dolma_dask.verbs.dedupe.index.merges import IndexedShards
from dolma_dask.verbs.dedupe.index.segments import (
    SHARDS,
    Index,
    Segment,
    open_index,
    place_of,
)
from dolma_dask.verbs.dedupe.summary import DedupeSummary


def shards_of(index: Index, segment: Segment) -> IndexedShards:
    """Return the shards of the dataset of a segment."""
    (file,) = segment.named(SHARDS)
    return IndexedShards(
        segment.first_shard, segment.shards, segment.dataset, index.root, file, index.hint(segment)
    )


def index_for(url: str, dataset: Dataset, *, overwrite: bool = False) -> Index:
    """Return an index as a dataset sees it."""
    index = open_index(url)
    place = files.relative(files.resolved(index.root), files.resolved(dataset.root))
    own = next((one for one in index.segments if one.dataset == place), None)
    own = own or next(_moved(index, dataset), None)
    return replace(index, dataset=place, own=own, overwrite=overwrite)


def _moved(index: Index, dataset: Dataset) -> Iterator[Segment]:
    """Yield the segments of a dataset that was at another place, as its flags say, then as its bytes say."""
    records = Journal(dataset.root, "dedupe").records.values()
    known = {record.info.get("segment") for record in records}
    for one in index.segments:
        if one.id in known and not _is_elsewhere(index, one, dataset):
            yield one
    listing = [(shard.path, shard.bytes) for shard in dataset.shards]
    for one in index.segments:
        if one.shards != len(listing):
            continue
        shards = shards_of(index, one).listing()
        is_alike = [shard[:2] for shard in shards] == listing and not _is_elsewhere(index, one, dataset)
        if is_alike and all(_checksum(dataset.root, path) == of for path, _, of in shards):
            yield one


def _checksum(root: str, path: str) -> str:
    return files.checksum(files.join(root, layout.document_path(path)))


def _is_elsewhere(index: Index, segment: Segment, dataset: Dataset) -> bool:
    """Tell whether the dataset of a segment is still where the index says, and is not this one behind a link."""
    old, new = (
        files.join(root, layout.DOCUMENTS) for root in (place_of(index.root, segment.dataset), dataset.root)
    )
    if files.resolved(old) == files.resolved(new):
        return False
    found = {info.path: info.bytes for info in files.list_files(old)}
    return bool(found) and all(
        found.get(path) == size for path, size, _ in shards_of(index, segment).listing()
    )


def with_index(summary: DedupeSummary, url: str, dataset: Dataset, name: str) -> DedupeSummary:
    """Return the summary of a run with what the index holds now, and what people should know of it."""
    index = index_for(url, dataset)
    record = Journal(dataset.root, "dedupe").records.get(dataset_unit(name))
    notes = list(_notes(index))
    if not summary.planned and record is not None and "segment" not in record.info:
        notes.append(f"nothing was appended to the index {index.root}, since too many rows are bad")
    return replace(summary, index=indexed_datasets(index.root), notes=(*summary.notes, *notes))


def _notes(index: Index) -> Iterator[str]:
    """Yield that a dataset was at another place, or that nothing is left of it."""
    if (own := index.own) is None:
        return
    if own.dataset != index.dataset:
        yield (
            f"this is the dataset that the index has as {place_of(index.root, own.dataset)}, moved or behind a link: it is not compared with itself"
        )
    if own.known_in and own.known == own.documents:
        yield f"nothing is left of this dataset: all of its documents are known from {place_of(index.root, own.known_in)}. Is it a copy?"
