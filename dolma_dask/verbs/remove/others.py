"""Files below a root that nobody takes apart: pages, reports, raw files. Their bytes are searched for ids, and those that hold one are named."""

from collections.abc import Iterator

from msgspec import Struct

from dolma_dask.engine import Task
from dolma_dask.errors import DataError
from dolma_dask.io import files
from dolma_dask.io.stream import StoredFile, compression_of, read_pieces
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
        try:
            found = self._holds(task.inputs[0].url)
        except DataError:  # no file of the kind that its name says
            found = False
        return Outcome(task.shard, inputs=(before,), is_left=found)

    def _holds(self, url: str) -> bool:
        if is_table(url):
            return bool(find_rows(url, self.wanted).rows)
        return any(map(self.wanted.is_field_in, _pieces(url)))


def _pieces(url: str) -> Iterator[bytes]:
    """Yield the text of a file in pieces that overlap."""
    stored, before = StoredFile(url), b""
    try:
        for piece in read_pieces(stored, compression_of(url), files.READ_BYTES):
            yield before + bytes(piece)
            before = bytes(piece)[-_OVERLAP:]
    finally:
        stored.close()
