"""Speed of attribute rows and row digests, in MB per CPU-second of this process.

Run ``python benchmarks/bench_attributes.py``; it takes about ten seconds, most of them compiling if the cache is empty.
"""

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dolma_dask.formats.attributes import AttributeColumn, attribute_key, encode_rows
from dolma_dask.formats.digests import DocumentDigests

ROWS = 4000
SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))


def cpu_seconds(job: Callable[[], object], repeat: int = 20) -> float:
    """Best of `repeat` runs."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        job()
        best = min(best, time.process_time() - start)
    return best


def document_columns(rng: np.random.Generator, lengths: np.ndarray) -> list[AttributeColumn]:
    """24 columns as gopher_v2 has them: 4 counts, 20 ratios."""
    keys = [
        attribute_key(None, "gopher_v2", f"fraction_of_characters_in_duplicate_{k}grams") for k in range(24)
    ]
    values = [lengths.astype(float) if k % 6 == 0 else rng.random(ROWS) for k in range(24)]
    return [AttributeColumn(key, "document", pa.array(v)) for key, v in zip(keys, values, strict=True)]


def span_column(rng: np.random.Generator) -> AttributeColumn:
    """Forty lines per document."""
    starts = rng.integers(0, 5000, ROWS * 40)
    spans = pa.StructArray.from_arrays(
        [starts, starts + 80, rng.random(ROWS * 40)], names=["start", "end", "score"]
    )
    lists = pa.ListArray.from_arrays(np.arange(0, ROWS * 40 + 1, 40, dtype=np.int32), spans)
    return AttributeColumn("c4__c4__lines", "spans", lists)


def language_columns(rng: np.random.Generator) -> list[AttributeColumn]:
    """A dict of five languages, unrounded, and a string."""
    scores = pa.StructArray.from_arrays(
        [rng.random(ROWS) for _ in range(5)], names=["en", "de", "uk", "fi", "zh"]
    )
    names = pa.array(["en"] * ROWS, pa.large_string())
    return [AttributeColumn("lang", "dict", scores), AttributeColumn("top", "scalar", names)]


def bench_rows() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 20_000, ROWS)
    ids = pa.array([f"doc-{i:08d}-abcdef" for i in range(ROWS)], pa.large_string())
    sources = pa.array(["common-crawl"] * ROWS, pa.large_string())
    cases = {
        "24 document columns": document_columns(rng, lengths),
        "40 spans": [span_column(rng)],
        "dict of 5, string": language_columns(rng),
    }
    for name, columns in cases.items():
        start = time.perf_counter()
        rows = encode_rows(ids, sources, lengths, columns)
        first = time.perf_counter() - start
        seconds = cpu_seconds(lambda c=columns: encode_rows(ids, sources, lengths, c))
        size = rows.buffers()[2].size
        speed = f"{size / seconds / 1e6:7.0f} MB/s  {seconds / ROWS * 1e6:6.2f} us/row"
        print(f"rows    {name:20}  {speed}  {size / ROWS:6.0f} B/row  first call {first:.2f} s")


def bench_digests() -> None:
    rng = np.random.default_rng(0)
    for mean in (200, 3000, 100_000):
        count = 12_000_000 // mean
        texts = pa.array(["x" * int(n) for n in rng.integers(0, 2 * mean, count)], pa.large_string())
        ids = pa.array([f"doc-{i}" for i in range(count)], pa.large_string())
        sources = pa.array(["common-crawl"] * count, pa.large_string())
        batch = pa.record_batch([sources, ids, texts], ["source", "id", "text"])
        seconds = cpu_seconds(lambda b=batch: DocumentDigests().update(b))
        print(f"digest  texts of {mean:7} B  {texts.nbytes / seconds / 1e6:7.0f} MB/s")


if __name__ == "__main__":
    bench_rows()
    bench_digests()
