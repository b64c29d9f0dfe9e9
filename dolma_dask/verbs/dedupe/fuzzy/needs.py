"""The memory and disk that a call of `dedupe` by similarity takes, for a rehearsal."""

from collections.abc import Sequence

from dolma_dask.dataset import Dataset
from dolma_dask.display import byte_size
from dolma_dask.formats import layout
from dolma_dask.journal import journals
from dolma_dask.verbs.dedupe.fuzzy.comparison import Comparison
from dolma_dask.verbs.dedupe.fuzzy.edges import KEYS
from dolma_dask.verbs.dedupe.fuzzy.merging import memory_note

STORED_BYTES = 1_000
"""Stored bytes of a document, where nothing tells how many a file has."""


def needs_note(
    documents: int, guessed: int, comparison: Comparison, bands: int, merge_bytes: int | None
) -> str:
    """Say what a call takes with so many bands at a time, and where the number of documents comes from."""
    values, is_verified = comparison.minhash.num_perm, comparison.similarity_scale > 0
    memory = memory_note(documents, is_verified, merge_bytes)
    signatures = byte_size(documents * 4 * values)
    keys = byte_size(documents * KEYS.itemsize * bands)
    pairs = f", and {4 * values + 16:,} bytes for each pair that is compared" if is_verified else ""
    source = f", {guessed:,} of them guessed: {STORED_BYTES:,} stored bytes each" if guessed else ""
    return (
        f"{documents:,} documents{source}. They need {memory}; on disk {signatures} of signatures, "
        f"which stay (those that are there included), and meanwhile {keys} of keys of {bands} bands at a time{pairs}"
    )


def count_documents(datasets: Sequence[Dataset]) -> tuple[int, int]:
    """Return how many documents datasets have, and how many of these were guessed from stored bytes: in files that no journal knows as they are."""
    counted = guessed = 0
    for dataset in datasets:
        known = _known_rows(dataset.root)
        for shard in dataset.shards:
            rows = known.get((layout.document_path(shard.path), shard.bytes))
            counted += rows or 0
            guessed += 0 if rows is not None else -(-shard.bytes // STORED_BYTES)
    return counted + guessed, guessed


def _known_rows(root: str) -> dict[tuple[str, int], int]:
    """Return the rows of document files by path and stored bytes, as the records of those who wrote or read them say."""
    known: dict[tuple[str, int], int] = {}
    for journal in journals(root):
        for record in journal.records.values():
            read = [item for item in record.inputs if item.path.startswith(f"{layout.DOCUMENTS}/")]
            if len(read) == 1 and record.ids_digest:  # it has read all of the file
                known[read[0].path, read[0].bytes] = record.rows
            for file in record.files:
                if file.rows and file.path.startswith(f"{layout.DOCUMENTS}/"):
                    known[file.path, file.bytes] = file.rows
    return known
