"""What an index of `dedupe` holds, as its manifests say: a file for each dataset that was put into it, see `dolma_dask.verbs.dedupe.index.segments`."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import counted
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.results.table import Column, Table

Read = TypeVar("Read", bound=Struct)

FORMAT = 1
"""Raised when earlier releases cannot read what is written."""

MANIFEST = "segment.json"


def manifest_of(segment: bytes) -> bytes:
    """Return the manifest of a segment: what it is as JSON, with a digest of that."""
    return b'{"digest":"%s","segment":%s}\n' % (_digest(segment).encode(), segment)


def read_manifest(url: str, of: type[Read]) -> Read:
    """Return what a manifest says of a segment.

    Raises `CorruptFileError`: it is damaged. Raises `UsageError`: another release has written it.
    """
    try:
        stored = msgspec.json.decode(files.read_bytes(url), type=dict[str, msgspec.Raw])
        segment = bytes(stored["segment"])
        if bytes(stored["digest"]).decode().strip('"') != _digest(segment):
            raise LookupError("another digest")
        format_ = msgspec.json.decode(segment, type=dict[str, Any]).get("format")
        if format_ == FORMAT:
            return msgspec.json.decode(segment, type=of)
    except (LookupError, *NOT_JSON) as error:
        raise CorruptFileError(
            f"{url} is damaged: {error}; expected the file as dedupe wrote it. Put it back from a copy, or begin a new index.",
            url=url,
        ) from error
    raise UsageError(
        f"{url} has format {format_}; expected {FORMAT}. Use the release that wrote it, or begin a new index."
    )


def _digest(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


class IndexedDataset(Struct, frozen=True):
    """A dataset in an index.

    Attributes
    ----------
    dataset : str
        As seen from the index.
    documents, kept, known : int
        Its documents, those that were put into the index, and those that an earlier dataset of the index has.
    bytes : int
        Stored bytes of its segment.
    """

    dataset: str
    documents: int
    kept: int
    known: int
    bytes: int = 0

    def place(self, index: str) -> str:
        """Return where the dataset is, by the URL of its index."""
        is_whole = "://" in self.dataset or self.dataset.startswith("/")
        return self.dataset if is_whole else files.seen_from(index, self.dataset)


def indexed_datasets(url: str) -> tuple[IndexedDataset, ...]:
    """Return the datasets of an index, in the order in which they were put into it; none where there is no index."""
    folder = files.join(files.normalize(url), layout.SEGMENTS)
    sizes, written = Counter[str](), list[str]()
    for info in files.list_files(folder):
        name, _, path = info.path.partition("/")
        sizes[name] += info.bytes
        written += [name] if path == MANIFEST and layout.is_segment(name) else []
    read = (
        (name, read_manifest(files.join(folder, f"{name}/{MANIFEST}"), IndexedDataset)) for name in written
    )
    return tuple(replace(one, bytes=sizes[name]) for name, one in read)


_COLUMNS = (
    Column("dataset", "name"),
    Column("documents"),
    Column("in the index", of="kept"),
    Column("known before", of="known"),
    Column("size", "size", "bytes"),
)


def index_table(datasets: Sequence[IndexedDataset]) -> Table:
    """Return what an index holds as a table."""
    caption = f"{counted(len(datasets), 'dataset')} with {counted(sum(one.kept for one in datasets), 'document')} in the index."
    return Table.of("index", _COLUMNS, datasets, caption)
