"""A stage mapped over tasks where the options say, under a progress display; and what only reads, which needs no more than that."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from dolma_dask import clusters
from dolma_dask.engine.attempts import Outcome, Take
from dolma_dask.engine.outcome import stage_error
from dolma_dask.engine.plan import Stage, Task, outlines
from dolma_dask.errors import DiskFullError, Failure, InterruptedStageError, StoreUnreachableError
from dolma_dask.io import files
from dolma_dask.options.groups import PlaceOptions
from dolma_dask.progress import progress_of


def gather(
    stage: Any, tasks: Sequence[Task], options: PlaceOptions, add: Callable[[Any], None] | None = None
) -> list[Any]:
    """Map a stage that only reads over tasks, and return its results in the order of `tasks`; no journal.

    Raises `StageError`: some shards failed. Raises `InterruptedStageError`: ctrl-C.

    Parameters
    ----------
    stage : object with ``verb`` and ``run_shard(task)``
        Its results must be small and picklable.
    tasks : sequence of Task
        What to read; each with its own `Task.shard`.
    options : PlaceOptions
        How to run.
    add : callable, optional
        Takes each result as it arrives, in any order; then none is kept or returned.
    """
    results: dict[str, Any] = {}
    failures: list[Failure] = []

    def take(task: Task, result: Outcome) -> None:
        if isinstance(result, Failure):
            stop_without_store(result)
            failures.append(result)
        elif add is not None:
            add(result)
        else:
            results[task.shard] = result

    try:
        with mapping(stage, tasks, options) as go:
            go(take)
    except KeyboardInterrupt:
        raise InterruptedStageError(f"{stage.verb} was stopped. Run the same command again.") from None
    if failures:
        raise stage_error(stage.verb, failures, len(tasks))
    return [results[task.shard] for task in tasks if add is None]


def stop_without_store(failure: Failure) -> None:
    """Stop the run if a store is away or a disk full: each further shard would wait for it or be made in vain."""
    for error in StoreUnreachableError, DiskFullError:
        if failure.error == error.__name__:
            raise error(failure.message, shard=failure.shard)


@contextmanager
def mapping(
    stage: Stage,
    tasks: Sequence[Task],
    options: PlaceOptions,
    roots: Sequence[str] = (),
    isolate: bool = False,
) -> Iterator[Callable[[Take], None]]:
    """Yield what runs the tasks, where the options say and under a progress display; nothing is started for no tasks."""
    if not tasks:
        yield lambda take: None
        return
    from dolma_dask.engine.execution import check_sendable, execute

    sizes = [task.bytes for task in outlines(tasks)]
    inputs = (item.url for task in outlines(tasks) for item in task.inputs)
    with (
        progress_of(stage.verb, sum(sizes), len(tasks), options.progress) as progress,
        clusters.open_placement(
            options.scheduler,
            options.workers,
            sizes,
            verb=getattr(stage, "cost", stage.verb),
            in_memory=any(map(files.is_in_memory, chain(roots, getattr(stage, "urls", ()), inputs))),
            isolate=isolate,
            profile=options.cluster,
        ) as place,
    ):
        check_sendable(stage, tasks[0], place)

        def go(take: Take) -> None:
            def taken(task: Task, outcome: Outcome) -> None:
                take(task, outcome)
                progress.advance(task.bytes, 1)

            execute(stage, tasks, place, taken)

        yield go
