"""One engine for every verb that writes: stages mapped over shards, with resume, progress, retries, failures and a journal.

A stage is a picklable object whose ``run_shard(task)`` reads files, runs kernels, publishes files and returns small records; texts never come back.
`plan` says what a verb hands over, `resume` what is left of it, `runs` does it on Dask (`execution`, `attempts`) and writes the journal. A verb whose
result depends on all shards is a `job`: passes in a work folder (`workdir`) under one `lease`.
"""

from dolma_dask.engine.job import run_job, run_jobs, work_dir
from dolma_dask.engine.plan import LazyTasks, Plan, Stage, Task, attribute_plan, group_name
from dolma_dask.engine.runs import Ran, run, run_together
from dolma_dask.engine.steps import Announce, Free, Gather, Job, MapJob, Pass, Passes, Step
from dolma_dask.engine.workdir import WorkDir, remove_abandoned
from dolma_dask.io.files import Input, grouped, inputs_of
from dolma_dask.journal import Unit
from dolma_dask.options.groups import RunOptions

__all__ = [
    "Announce",
    "Free",
    "Gather",
    "Input",
    "Job",
    "LazyTasks",
    "MapJob",
    "Pass",
    "Passes",
    "Plan",
    "Ran",
    "RunOptions",
    "Stage",
    "Step",
    "Task",
    "Unit",
    "WorkDir",
    "attribute_plan",
    "group_name",
    "grouped",
    "inputs_of",
    "remove_abandoned",
    "run",
    "run_job",
    "run_jobs",
    "run_together",
    "work_dir",
]
