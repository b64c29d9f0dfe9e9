"""Requests to object stores, from a table: trials run on a local disk, where there are none."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dolma_dask.io import files
from dolma_dask.io.stores import BLOCK_BYTES
from dolma_dask.pipelines.stages import StagePlan

PART_BYTES = 16 << 20
"""Bytes of a part of an upload, see `dolma_dask.io.publish`."""


class Cost(NamedTuple):
    """Requests of a verb whose input and output lie in a store."""

    fixed: float
    per_file: float  # of one block, that is read


REQUESTS = {
    "convert": Cost(33, 6),
    "validate": Cost(127, 8),
    "tag": Cost(47, 6),
    "quantiles": Cost(195, 8),
    "filter": Cost(130, 7),
    "dedupe": Cost(169, 12),
    "near": Cost(340, 42),
    "mix": Cost(85, 15),
    "ragged": Cost(43, 10),
    "hdf5": Cost(140, 7),
    "report": Cost(410, 20),
}
"""Of all kinds; `near` is `dedupe` of near duplicates. Measured on an S3 server with 10 and with 20 files: ``benchmarks/bench_estimate_requests.py``."""

OTHER = Cost(100, 10)
"""Taken for every other verb."""

MORE_FILES = 2
"""For each further file that `tag` writes beside a shard."""


def count_requests(
    stage: StagePlan,
    near: bool,
    sizes: Sequence[int],
    files_written: int,
    bytes_written: int,
    roots: Sequence[str],
) -> int:
    """Return the requests of a stage; 0 if it reads and writes on a local disk.

    Parameters
    ----------
    stage : StagePlan
        The stage.
    near : bool
        Whether it looks for near duplicates.
    sizes : sequence of int
        Stored bytes of each file that it reads.
    files_written, bytes_written : int
        What it writes.
    roots : sequence of str
        Where it writes.
    """
    if all(map(files.is_local, [*stage.reads, *roots])):
        return 0
    cost = REQUESTS.get("near" if near else stage.verb, OTHER)
    blocks = sum(math.ceil(size / BLOCK_BYTES) - 1 for size in sizes if size)
    more = MORE_FILES * max(files_written - len(sizes), 0) if stage.verb == "tag" else 0
    size = bytes_written / max(files_written, 1)
    parts = files_written * (1 + math.ceil(size / PART_BYTES)) if size > PART_BYTES else 0
    return round(cost.fixed + cost.per_file * len(sizes) + blocks + more + parts)
