"""Tasks that a cluster gives back to the engine: those that outlive all workers, and nothing that is held on to."""

import gc
import threading
import time

import pytest

from dolma_dask.clusters import Placement
from dolma_dask.clusters.refill import _forget
from dolma_dask.clusters.workers import own_tasks
from dolma_dask.engine.execution import execute
from dolma_dask.engine.plan import Task

LIFETIME = 0.2
FREED = threading.Event()
NO_DASHBOARD = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
"""Without an address a scheduler takes port 8787, and warns where another process has it."""


class Slow:
    """A stage that ends when it may; in this process."""

    verb = "slow"

    def run_shard(self, task):
        if task.shard == "large":
            FREED.wait(60)
        return task.shard


class Unreadable(Slow):
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise ValueError("cannot be read")


@pytest.fixture
def cluster():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=16, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        FREED.clear()
        yield cluster, client
        FREED.set()


@pytest.mark.slow
def test_a_shard_that_outlives_its_workers_fails_by_its_name(cluster):
    """It is alone in the end, its neighbours are made, and the advice is that of who started the workers."""
    cluster, client = cluster
    client.register_plugin(own_tasks(LIFETIME, "raise `walltime`"), name="own-tasks")
    lost = []

    def leave():
        while not FREED.wait(LIFETIME * 1.5):
            if len(lost) > 12:
                FREED.set()  # it fails instead of waiting for a worker
            for address, state in list(cluster.scheduler.workers.items()):
                if state.processing:
                    lost.append(address)
                    cluster.sync(
                        cluster.scheduler.remove_worker,
                        address,
                        stimulus_id="leaves",
                        expected=True,
                        close=False,
                    )

    threading.Thread(target=leave, daemon=True).start()
    made = {}
    tasks = [Task(shard, (), ()) for shard in ("large", "small")]
    execute(Slow(), tasks, Placement(client), lambda task, outcome: made.update({task.shard: outcome}))
    assert made["small"] == "small"
    assert made["large"].error == "WalltimeTooShort"
    assert made["large"].message == "raise `walltime`"
    assert lost  # as often as fits into three lifetimes on this machine


@pytest.mark.slow
def test_nothing_is_held_of_a_task_that_has_failed(cluster):
    """Whatever its error refers to: Dask would make again on another worker what it believes to be wanted."""
    _, client = cluster
    failures = []
    gc.disable()
    try:
        execute(
            Unreadable(),
            [Task("a", (), ())],
            Placement(client),
            lambda task, outcome: failures.append(outcome),
        )
        deadline = (
            time.monotonic() + 60
        )  # Dask lets go in its own thread, which may have to wait for a busy machine
        while client.futures and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not client.futures
    finally:
        gc.enable()
    assert failures[0].error == "RuntimeError"


@pytest.mark.slow
def test_a_dead_job_takes_workers_along_that_still_count_as_alive(cluster):
    """A node that lost power has closed no connection."""
    cluster, _ = cluster
    names = sorted(map(str, cluster.workers))
    cluster.sync(_forget, cluster, names[:3])
    assert sorted(str(state.name) for state in cluster.scheduler.workers.values()) == names[3:]
