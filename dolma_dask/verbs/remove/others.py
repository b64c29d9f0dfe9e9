"""Files below a root that nobody takes apart: pages, reports, raw files. Their bytes are searched for ids; those that hold one, or cannot be read, are named."""

from collections.abc import Callable, Iterator
from contextlib import closing

from msgspec import Struct

from dolma_dask.engine import Task
from dolma_dask.errors import DataError
from dolma_dask.io.stream import Compression, StoredFile, compression_of, read_pieces
from dolma_dask.verbs.remove.identities import Wanted, find_rows
from dolma_dask.verbs.remove.rewriting import is_table
from dolma_dask.verbs.remove.shards import Outcome, input_of

_OVERLAP = 1 << 12
"""Bytes that are looked at again with the next piece: longer ids across a border are missed."""


class SearchStage(Struct, frozen=True):
    """Searches files for ids; see `dolma_dask.engine.Stage`."""

    root: str
    wanted: Wanted
    verb: str = "remove"

    def run_shard(self, task: Task) -> Outcome:
        """Tell whether a file holds an id."""
        before = input_of(task)
        url, unread = task.inputs[0].url, ""
        compression = compression_of(url.lower())
        try:
            found = self._holds(url, compression)
        except DataError as error:  # damaged, or no file of the kind that its name says
            found = self._is_in(url, lambda stored: iter(stored.read, b""))
            is_packed = before.bytes > 0 and (compression is not None or is_table(url))
            unread = str(error) if is_packed and not found else ""
        return Outcome(task.shard, inputs=(before,), is_left=found or unread != "", unread=unread)

    def _holds(self, url: str, compression: Compression | None) -> bool:
        if is_table(url):
            return bool(find_rows(url, self.wanted).rows)
        return self._is_in(url, lambda stored: read_pieces(stored, compression))

    def _is_in(self, url: str, read: Callable[[StoredFile], Iterator[bytes]]) -> bool:
        """Tell whether an id stands in a file, in pieces that overlap."""
        with closing(StoredFile(url)) as stored:
            before = b""
            for piece in read(stored):
                if self.wanted.is_field_in(before + piece):
                    return True
                before = piece[-_OVERLAP:]
        return False
