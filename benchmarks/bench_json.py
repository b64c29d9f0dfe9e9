"""Speed of the JSON kernels over blocks in memory, in MB of JSON per CPU-second: documents, attribute rows, and msgspec beside them.

Run ``python -m benchmarks.bench_json FILE.jsonl.gz ...``; it takes a few seconds.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from isal import igzip

from dolma_dask.formats.attributes import AttributeColumn, attribute_key, encode_rows
from dolma_dask.formats.json.attributes import scan_attributes
from dolma_dask.formats.json.exact import Field
from dolma_dask.formats.json.lines import scan_documents
from dolma_dask.formats.json.strings import line_starts
from dolma_dask.io.stream import BLOCK_BYTES
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.text.columns import code_point_lengths

COLUMNS = ("id", "text", "source")
FIELDS = [Field(name, required=True) for name in COLUMNS]
Block = tuple[np.ndarray, np.ndarray]


class Document(msgspec.Struct):
    id: str
    text: str
    source: str


def cut(data: bytes) -> list[Block]:
    """Return blocks of whole lines, of about the size that readers make."""
    blocks, start = [], 0
    while start < len(data):
        end = data.find(b"\n", min(start + BLOCK_BYTES, len(data) - 1)) + 1
        block = np.frombuffer(data[start:end], np.uint8)
        blocks.append((block, line_starts(block)))
        start = end
    return blocks


def measure(name: str, blocks: Sequence[Block], job: Callable[[np.ndarray, np.ndarray], object]) -> None:
    """Print the best of five runs over all blocks, after one over the first."""
    job(*blocks[0])
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for block in blocks:
            job(*block)
        best = min(best, time.process_time() - start)
    megabytes = sum(block.size for block, _ in blocks) / 1e6
    print(f"{name:40} {megabytes / best:7.0f} MB/CPU-s  ({megabytes:.1f} MB)")


def attribute_rows(blocks: Sequence[Block]) -> list[Block]:
    """Return gopher_v2's attribute rows of the documents."""
    tagger, rows = get_tagger("gopher_v2"), []
    for block, starts in blocks:
        batch, _ = scan_documents(block, starts, FIELDS)
        result = tagger(batch.select(["text"]))
        columns = [
            AttributeColumn(attribute_key(None, tagger.name, name), kind, result.column(name))
            for name, kind in tagger.types.items()
        ]
        lengths = code_point_lengths(batch.column("text"))
        rows += encode_rows(batch.column("id"), batch.column("source"), lengths, columns).to_pylist()
    return cut(b"".join(rows))


def main(paths: Sequence[str]) -> None:
    blocks = cut(b"".join(igzip.decompress(Path(path).read_bytes()) for path in paths))
    decode = msgspec.json.Decoder(Document).decode_lines

    def by_msgspec(block: np.ndarray, starts: np.ndarray) -> pa.RecordBatch:
        documents = decode(block.tobytes())
        columns = [
            pa.array([getattr(item, name) for item in documents], pa.large_string()) for name in COLUMNS
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))

    measure("line_starts", blocks, lambda block, starts: line_starts(block))
    measure("scan_documents, no field (checks only)", blocks, lambda *block: scan_documents(*block, []))
    measure("scan_documents, id text source", blocks, lambda *block: scan_documents(*block, FIELDS))
    measure("msgspec to Arrow, id text source", blocks, by_msgspec)
    rows = attribute_rows(blocks)
    for count in (1, len(get_tagger("gopher_v2").types)):
        names = list(get_tagger("gopher_v2").types)[-count:]
        kinds = {attribute_key(None, "gopher_v2", name): "document" for name in names}
        measure(
            f"scan_attributes, {len(kinds)} of gopher_v2's keys",
            rows,
            lambda *block, kinds=kinds: scan_attributes(*block, kinds),
        )


if __name__ == "__main__":
    main(sys.argv[1:])
