"""Tasks where they shall run: in this process, under Dask's own schedulers, or on a distributed cluster; big tasks first.

A result reaches the caller as soon as it is there, from Dask with those of its batch. A process that dies is replaced, and the tasks it worked on are tried alone, so that a
shard that kills its worker again and again fails by its own name and takes no neighbour along. However a run ends, nothing goes on behind it.
"""

import inspect
import io
import sys
from array import array
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from dolma_dask import clusters
from dolma_dask.clusters import Placement
from dolma_dask.engine.attempts import Take
from dolma_dask.engine.in_process import run_here
from dolma_dask.engine.plan import Stage, Task, chosen, outlines
from dolma_dask.errors import UsageError
from dolma_dask.functions.calls import is_imported
from dolma_dask.processes import keep_freed_memory


def execute(stage: Stage, tasks: Sequence[Task], place: Placement, take: Take) -> None:
    """Map `stage` over `tasks`, and hand each outcome to `take` in this thread as soon as it is known.

    Parameters
    ----------
    stage : Stage
        The work.
    tasks : sequence of Task
        In any order.
    place : Place
        Where to run.
    take : callable
        Gets each task once, with its records or its `Failure`.
    """
    sizes = array("q", (-task.bytes for task in outlines(tasks)))
    ordered = chosen(tasks, sorted(range(len(tasks)), key=sizes.__getitem__))
    if place.client is not None:
        from dolma_dask.engine.flight import Flight  # imports distributed

        Flight(place.client, stage, take).run(ordered)
        return
    if place.scheduler != "processes":
        keep_freed_memory()
    with clusters.shared_cluster():
        if place.scheduler in ("synchronous", "threads") and _is_unseen():
            run_here(stage, ordered, place.workers if place.scheduler == "threads" else 0, take)
        else:
            from dolma_dask.engine.local import Local  # imports Dask

            Local(place, stage, take).run(ordered)


def _is_unseen() -> bool:
    """Tell whether nobody looks on by a callback of Dask, without its schedulers, whose import takes 0.12 CPU-seconds."""
    module = sys.modules.get("dask.callbacks")
    return module is None or not module.Callback.active


def check_sendable(stage: Stage, task: Task, place: Placement) -> None:
    """Check that a stage can go where the work is done, with a task, whose source may hold a function.

    Raises `UsageError`: it would have to go to another process, and cannot.
    """
    if place.client is None and place.scheduler != "processes":
        return
    try:
        _dump((stage, task))
    except Exception as error:
        raise UsageError(
            f"the work of {stage.verb} cannot be sent to another process ({type(error).__name__}: {error}); expected objects that pickle. "
            "Make such objects inside of the function that uses them, or run in this process: scheduler='threads'."
        ) from error


def _dump(value: Any) -> None:
    """Pickle as workers get it; raises `TypeError` for structs of a script or a file, which arrive there without their fields."""
    import cloudpickle

    class Checking(cloudpickle.CloudPickler):
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, type) and issubclass(obj, Struct) and not is_imported(obj):
                own = inspect.get_annotations(obj)
                if any(name in own for name in obj.__struct_fields__):
                    raise TypeError(
                        f"{obj.__qualname__} is a msgspec struct that no module brings; make it a dataclass"
                    )
            return super().reducer_override(obj)

    Checking(io.BytesIO()).dump(value)
