"""One engine for every verb that writes: map a stage over shards, with resume, progress, retries, failures and a journal.

A stage is a picklable object whose ``run_shard(task)`` reads files, runs kernels, publishes files and returns small records. Texts never
come back. The journal decides before any cluster is started which units are left (`resume`); Dask maps the rest (`execution`, `attempts`); a
failing shard never stops the others, and all failures are raised together at the end, each with its shard (`runs`).
"""

from dolma_dask.engine.plan import Input, Plan, RunOptions, Stage, Task, Unit, inputs_of
from dolma_dask.engine.runs import Ran, gather, run, run_together

__all__ = [
    "Input",
    "Plan",
    "Ran",
    "RunOptions",
    "Stage",
    "Task",
    "Unit",
    "gather",
    "inputs_of",
    "run",
    "run_together",
]
