"""Reading and writing .jsonl.gz: the ceiling of every verb. MB are those of the JSON, not of the text."""

import gzip
import json
from functools import partial
from typing import Any

from benchmarks.harness import Goal, Job, benchmark

COLUMNS = ("id", "text", "source")


def _read(job: Job, **options: Any) -> None:
    from dolma_dask.io.documents import DocumentFile

    for _ in DocumentFile(job.corpus.files("warm")[0], COLUMNS):
        pass
    rows = 0
    with job.measured(job.corpus.json_mb):
        for path in job.corpus.files():
            rows += sum(block.num_rows for block in DocumentFile(path, COLUMNS, **options))
    assert rows == job.corpus.documents


@benchmark("read", goal=Goal("speed", 280), beside="read-stdlib", unit="JSON")
def read(job: Job) -> None:
    """.jsonl.gz to id, text and source; every line checked in full."""
    _read(job)


for mebibytes in (1, 4, 8):
    about = f"The same in blocks of {mebibytes} MiB in place of 2."
    benchmark(f"read-{mebibytes}MiB", beside="read", unit="JSON", about=about)(
        partial(_read, block_bytes=mebibytes << 20)
    )


@benchmark("read-stdlib", unit="JSON")
def read_stdlib(job: Job) -> None:
    """The same with gzip and json of the standard library."""
    rows = 0
    with job.measured(job.corpus.json_mb):
        for path in job.corpus.files():
            with gzip.open(path, "rb") as lines:
                for line in lines:
                    document = json.loads(line)
                    rows += bool(document["id"] and document["source"]) and "text" in document
    assert rows == job.corpus.documents


@benchmark("write", goal=Goal("speed", 200), unit="JSON")
def write(job: Job) -> None:
    """Document lines as they were read to .jsonl.gz, as mix does it."""
    from dolma_dask.io.documents import DocumentFile

    shards = [
        [block.batch.column(0) for block in DocumentFile(path, ("raw",))] for path in job.corpus.files()
    ]
    _write(job, shards)


@benchmark("write-encode", goal=Goal("speed", 200), unit="JSON")
def write_encode(job: Job) -> None:
    """Columns of documents (id to metadata) to JSON lines to .jsonl.gz, a row at a time, as from Parquet."""

    from dolma_dask.formats.documents import OURS, raw_lines
    from dolma_dask.io.documents import DocumentFile

    columns = ("id", "text", "source", "added", "created", "metadata")
    shards = [
        [block.batch.replace_schema_metadata(OURS) for block in DocumentFile(path, columns)]
        for path in job.corpus.files()
    ]
    _write(job, shards, raw_lines)


def _write(job: Job, shards: list[list[Any]], encode: Any = lambda rows: rows) -> None:
    """Write each shard; the documents in memory count into the peak, not into the time."""
    from dolma_dask.sinks.jsonl import JsonlWriter

    with JsonlWriter(str(job.scratch), "warm.jsonl.gz") as writer:
        writer.write(encode(shards[0][0]))
    with job.measured(job.corpus.json_mb):
        for index, shard in enumerate(shards):
            with JsonlWriter(str(job.scratch), f"part-{index}.jsonl.gz") as writer:
                for rows in shard:
                    writer.write(encode(rows))
