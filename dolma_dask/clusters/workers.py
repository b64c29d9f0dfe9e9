"""What every worker of a cluster gets, wherever it runs: memory thresholds, and the state of the process that started it.

Stages only return small records, so nothing is worth spilling: the thresholds leave the memory to the kernels, and a worker that outgrows its
limit is restarted.
"""

import os
from typing import Any

from dolma_dask.processes import WORKER_ENVIRONMENT, Setting

SILENT = 50
"""Level of what Dask logs."""

CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.85,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.worker-saturation": 1.0,  # a task that waits on a worker is blamed when another kills it
    "distributed.comm.timeouts.connect": "60s",
}


def taking_over(setting: Setting) -> Any:
    """Return a plugin of workers, also of those that are started again, with which they take over the setting of this process."""
    from distributed import WorkerPlugin

    class TakingOver(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            setting.take_over()

    return TakingOver()


def setting_of_user() -> Setting:
    """Return what workers on other machines take over: they have an environment of their own, which the batch system made."""
    here = Setting.here()
    own = {name: os.environ[name] for name in WORKER_ENVIRONMENT if name in os.environ}
    return Setting(own, (), here.umask, here.stores)
