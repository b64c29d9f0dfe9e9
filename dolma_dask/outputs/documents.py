"""New documents of a mix: a file for each input file, or files that are cut by size or shuffled."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from dolma_dask.dataset import Shard
from dolma_dask.engine import Job, LazyTasks, MapJob, Task, Unit
from dolma_dask.engine.documents import DocumentStage, document_plan
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import work_key
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.outputs.cutting import FilePacking
from dolma_dask.outputs.packed import PackedDocuments, Part
from dolma_dask.reading.kept import transform
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.documents import DocumentOutput

DocumentFormat = Annotated[
    FileFormat | None,
    Opt("Format of the new documents; by default that of each input file.", group=OUTPUT),
]
"""Format of the new documents that a command writes."""


def documents_job(
    output: DocumentOutput,
    packing: FilePacking | None,
    parts: Sequence[Part],
    policy: RecordPolicy,
    params: Mapping[str, Any],
    notes: tuple[str, ...],
    is_narrowed: bool,
    *,
    all_shards: Sequence[Shard] = (),
) -> Job[Summary]:
    """Return the job that writes documents.

    `is_narrowed` tells whether options leave shards out; `all_shards` are those of the dataset if the folder is for its documents alone.
    """
    if packing is not None:
        return PackedDocuments(
            root=output.root,
            parts=tuple(parts),
            packing=packing,
            policy=policy,
            params=params,
            notes=notes,
            is_narrowed=is_narrowed,
            owns_folder=bool(all_shards),
            quarantine=output.verb,
        )
    every = [output.path(shard) for shard in all_shards]
    layout.check_no_collision(every or [output.path(part.shard) for part in parts])
    stage = DocumentStage((output,), policy, "mix")
    mixtures = {id(part.mixture): part.mixture for part in parts}
    keys = {number: mixture.key(policy) for number, mixture in mixtures.items()}

    def unit(part: Part) -> Unit:
        return Unit(output.path(part.shard), keys[id(part.mixture)])

    def task(part: Part) -> Task:
        return stage.task(part.mixture.source(part.shard), unit(part))

    def outline(part: Part) -> Task:
        return Task(part.shard.path, (unit(part),), part.mixture.inputs(part.shard))

    tasks = LazyTasks(parts, task, outline)
    key = work_key("mix", transform.VERSION, {"streams": sorted(set(keys.values()))})
    origin = parts[0].mixture.dataset.root
    folder = f"{output.prefix}{layout.DOCUMENTS}/"
    plan = document_plan(stage, tasks, every, params, key=key, origin=origin, notes=notes, folder=folder)
    return MapJob(plan)


def check_apart(root: str, target: str, verb: str = "mix") -> None:
    """Refuse a target that is the input, or lies among its documents, or holds it among the new ones."""
    ours, theirs = (
        files.resolved(files.join(layout.dataset_root(url), layout.DOCUMENTS)) for url in (root, target)
    )
    if f"{ours}/".startswith(f"{theirs}/") or f"{theirs}/".startswith(f"{ours}/"):
        raise UsageError(
            f"{verb} to {target} would write over its own input {root}; expected another folder or URL in --to."
        )
