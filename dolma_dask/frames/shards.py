"""A file for each partition: the outputs of the verbs (`dolma_dask.sinks.sink`) take the rows of a collection, a task of Dask each.

A task returns records alone. It is fused with what computes its partition (`publishing.last_task`), so that rows never travel.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dolma_dask.engine import Plan, Task, WorkDir
from dolma_dask.engine.documents import DocumentStage
from dolma_dask.engine.map import MapWork
from dolma_dask.frames.options import CollectionOptions
from dolma_dask.frames.partitions import Collection, PartitionDocuments
from dolma_dask.frames.publishing import StagedFiles, Writing, computed, last_task, work_folder
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.sink import DocumentRows, Output

if TYPE_CHECKING:
    from dask.delayed import Delayed


@dataclass(frozen=True)
class Rows:
    """Documents of a collection, and what happens to rows that are none."""

    collection: Collection
    policy: RecordPolicy
    source: str | None = None  # of rows that have none


@dataclass(frozen=True)
class PartitionWriter:
    """Writes the files of partitions; goes to workers with each."""

    output: Output[DocumentRows]  # of the verb
    policy: RecordPolicy
    source: str | None
    work: str  # URL of the work folder
    places: tuple[str, ...]  # fields of the output that say where it writes

    def write(self, part: Any, task: Task) -> StagedFiles:
        """Write what `task` asks for, into a folder that no other attempt has."""
        folder = files.join(self.work, uuid.uuid4().hex)
        output: Output[DocumentRows] = replace(self.output, **dict.fromkeys(self.places, folder))  # type: ignore[type-var]
        documents = PartitionDocuments(task.shard, part, self.source)
        stage = DocumentStage((output,), self.policy, output.verb)
        return StagedFiles(folder, tuple(stage.run_shard(replace(task, work=MapWork(documents)))))


def written(
    rows: Rows,
    tasks: Sequence[Task],
    output: Output[DocumentRows],
    work: WorkDir,
    places: tuple[str, ...] = ("root",),
) -> "list[Delayed]":
    """Return a task of Dask for each partition; its result is `StagedFiles`."""
    from dask import delayed

    writer = PartitionWriter(output, rows.policy, rows.source, work.url, places)
    named = f"{output.verb}-{{}}-{work.key}"
    return [
        delayed(partial(writer.write, task=task), pure=False)(part, dask_key_name=named.format(task.shard))
        for part, task in zip(rows.collection.delayed(), tasks, strict=True)
    ]


def write_each(
    rows: Rows, plan: Plan, output: Output[DocumentRows], options: CollectionOptions
) -> "Summary | Delayed":
    """Write the units of a plan, one for each partition."""
    writing = Writing(plan, work_folder(plan.root, plan.verb), options.overwrite)
    writing.check()
    last = last_task(plan.verb, writing.publish, written(rows, plan.tasks, output, writing.work))
    return computed(last, writing.work, plan.root, options)


def of_rows(policy: RecordPolicy) -> dict[str, Any]:
    """Return what of a policy decides bytes, for keys."""
    return {"max_record_bytes": policy.max_record_bytes, "on_bad_record": policy.on_bad_record}
