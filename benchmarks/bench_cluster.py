"""Cost of Dask: tag on a LocalCluster with two workers beside the same in one process, on a job of twenty CPU-seconds."""

from typing import Any

import dolma_dask as dk
from benchmarks.bench_commands import call, ours
from benchmarks.bench_verbs import OPTIONS, TAGGERS, linked
from benchmarks.harness import Goal, Job, Result, benchmark, cpu_seconds, peak_megabytes

TIMES = 20
"""So many times the corpus: 2 GB of text, 160 shards."""

ON_THIS = {name: value for name, value in OPTIONS.items() if name != "scheduler"}
"""On the cluster that is active."""


def _dataset(job: Job) -> tuple[str, float]:
    times = 2 if job.quick else TIMES
    return linked(job, "all", times), times * job.corpus.text_mb


def _tag(dataset: str, options: dict[str, Any]) -> None:
    dk.tag(dataset, TAGGERS, **options)


@benchmark("serial")
def serial(job: Job) -> None:
    """tag 20 times the corpus in one process, past start-up."""
    dataset, megabytes = _dataset(job)
    _tag(linked(job, "warm"), OPTIONS)
    with job.measured(megabytes):
        _tag(dataset, OPTIONS)


@benchmark("cluster", goal=Goal("ratio", 1.15), beside="serial")
def cluster(job: Job) -> None:
    """The same on a LocalCluster with 2 workers, past start-up: CPU of scheduler, client and workers."""
    _cluster(job)


def _cluster(job: Job) -> None:
    dataset, megabytes = _dataset(job)
    with dk.cluster("laptop", workers=2) as client:
        for number, worker in enumerate(client.scheduler_info()["workers"]):
            client.run(_tag, linked(job, "warm", number + 1), OPTIONS, workers=[worker])
        before = sum(client.run(cpu_seconds).values())
        with job.measured(megabytes):
            _tag(dataset, ON_THIS)
        workers = sum(client.run(cpu_seconds).values()) - before
        peak = max(client.run(peak_megabytes).values())
    assert job.result
    note = f"of it {job.result.cpu:.2f} s in scheduler and client"
    job.result = Result(megabytes, job.result.cpu + workers, job.result.wall, peak, note)


@benchmark("serial-command")
def serial_command(job: Job) -> None:
    """dolma-dask tag of the same in one process, start-up included."""
    _command(job, "--scheduler", "synchronous")


@benchmark("cluster-command", goal=Goal("ratio", 1.15), beside="serial-command")
def cluster_command(job: Job) -> None:
    """dolma-dask tag of the same on a LocalCluster with 2 workers, start-up included."""
    _command(job, "--workers", "2")


def _command(job: Job, *options: str) -> None:
    dataset, megabytes = _dataset(job)
    words = ["--taggers", *TAGGERS, "--no-progress", *options]
    call(ours(), "tag", linked(job, "warm"), *words)
    with job.measured(megabytes):
        call(ours(), "tag", dataset, *words)
