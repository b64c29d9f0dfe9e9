"""Memory and disk that `dedupe` by similarity takes, for a rehearsal: from counts of documents alone."""

from collections.abc import Sequence

from dolma_dask.dataset import Dataset
from dolma_dask.display import byte_size
from dolma_dask.formats import layout
from dolma_dask.journal import journals
from dolma_dask.verbs.dedupe.bands import KEYS
from dolma_dask.verbs.dedupe.edges import bytes_needed
from dolma_dask.verbs.dedupe.fuzzy import FuzzyDeduplication, groups

STORED_BYTES = 1_000
"""Stored bytes of a document, where nothing tells how many a file has."""


def needs_note(job: FuzzyDeduplication) -> str:
    """Say what a call takes of memory and disk, and where the number of documents comes from."""
    documents, guessed = count_documents([part.dataset for part in job.parts])
    minhash, is_verified = job.minhash, job.comparison.similarity_scale > 0
    first, last = groups(job.comparison.bands.num_bands, documents, job.group_bytes(documents))[0]
    memory = byte_size(bytes_needed(documents, is_verified))
    signatures = byte_size(documents * 4 * minhash.num_perm)
    keys = byte_size(documents * KEYS.itemsize * (last - first))
    pairs = f", and {4 * minhash.num_perm + 16:,} bytes for each pair that is compared" if is_verified else ""
    source = f", {guessed:,} of them guessed: {STORED_BYTES:,} stored bytes each" if guessed else ""
    return (
        f"{documents:,} documents{source}. They need {memory} of memory in one worker beside what every worker needs; on disk {signatures} of signatures, "
        f"which stay (those that are there included), and meanwhile {keys} of keys of {last - first} bands at a time{pairs}"
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
