"""Decisions about jobs: the dead ones, new submissions, and giving up; no clock and no SLURM takes part."""

import asyncio
import os
import time
from types import SimpleNamespace

import pytest

from dolma_dask.clusters import slurm
from dolma_dask.clusters.allocation import Allocation, nodes_left
from dolma_dask.clusters.jobs import (
    ENDED,
    LOST_SECONDS,
    MAX_PAUSE_SECONDS,
    UNSEEN_SECONDS,
    Refusal,
    SlurmJobs,
    job_of,
    without_job_of_ours,
)
from dolma_dask.clusters.profiles import read_profile
from dolma_dask.clusters.refill import PATIENCE_SECONDS, Refill
from dolma_dask.clusters.workers import PREEMPTIONS, Deaths, deaths_of, note_lost_writers, of_client
from dolma_dask.errors import ClusterError, UsageError
from dolma_dask.io import publish

RUNNING = {"11": "RUNNING", "12": "RUNNING"}


def held() -> SlurmJobs:
    return SlurmJobs(ids={"j-1": "11", "j-12": "12"})


def test_jobs_that_wait_or_run_are_alive_and_a_silent_squeue_says_nothing():
    jobs = held()
    assert jobs.dead({"11": "PENDING (Resources)", "12": "COMPLETING"}, 0) == []
    assert jobs.dead({"11": "CONFIGURING", "12": "SUSPENDED"}, 0) == []
    assert jobs.dead(None, 1e9) == []
    assert (jobs.stillborn, jobs.pause()) == (0, 0)


@pytest.mark.parametrize("state", sorted(ENDED))
def test_jobs_that_have_ended_are_forgotten(state):
    jobs = held()
    jobs.connect({"j-12-0", "j-12-1"}, 0)
    assert jobs.arrived == {"j-12"}, "a name that begins like another is another"
    assert jobs.dead({**RUNNING, "12": state}, 0) == ["j-12"]
    assert jobs.ids == {"j-1": "11"}
    assert jobs.stillborn == 0, "it has worked"
    assert jobs.dead({}, 0) == ["j-1"], "one that squeue does not know has ended too"
    assert (jobs.stillborn, jobs.last) == (1, "11")


def test_a_job_without_workers_is_dead_in_the_end_whatever_squeue_says():
    jobs = held()
    jobs.connect({"j-1"}, 0)
    jobs.connect(set(), 10)
    assert jobs.at_work == 0
    assert jobs.dead(None, 10 + LOST_SECONDS) == []
    jobs.connect({"j-1"}, 20)
    assert jobs.at_work == 1, "it came back"
    jobs.connect(set(), 30)
    assert jobs.dead(None, 31 + LOST_SECONDS) == ["j-1"]
    assert jobs.dead(RUNNING, 1e9) == [], "one that never had any is waited for as long as squeue knows it"


def test_jobs_that_end_at_once_are_counted_in_a_row_and_paused():
    jobs, pauses = SlurmJobs(), []
    for number in range(3):
        jobs.ids = {f"j-{number}": "1", f"k-{number}": "2"}
        assert len(jobs.dead({"1": "FAILED", "2": "FAILED"}, 0)) == 2
        assert jobs.stillborn == number + 1, "those of one look are one round"
        pauses.append(jobs.pause())
    assert pauses == sorted(set(pauses))
    jobs.stillborn = 100
    assert jobs.pause() == MAX_PAUSE_SECONDS
    jobs.ids = {"j-9": "9"}
    jobs.connect({"j-9"}, 0)
    assert (jobs.stillborn, jobs.pause()) == (0, 0), "a worker ends the row"
    jobs.ids = {"r": ""}
    assert jobs.dead({}, 0) == ["r"]
    assert jobs.stillborn == 0, "one that was never submitted has not ended at once"


def test_a_squeue_that_does_not_know_a_job_yet_kills_none():
    """Many sites hold its answers back, and a call may begin before the job was there."""
    jobs = held()
    assert jobs.dead({}, 0) == jobs.dead({}, UNSEEN_SECONDS) == []
    jobs.connect({"j-1"}, 1)
    assert jobs.dead({}, 1 + UNSEEN_SECONDS) == ["j-12"]
    assert jobs.dead({"11": "RUNNING"}, 200) == jobs.dead({}, 300) == [], "its worker is there"
    jobs.connect(set(), 301)
    assert jobs.dead({}, 302) == ["j-1"], "squeue has known it, and its worker is gone"


TRANSIENT = Refusal.of("sbatch: error: Socket timed out on send/recv operation")
WRONG = Refusal.of("sbatch: error: Invalid account")


def refill(monkeypatch, now: list[float]) -> Refill:
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    profile = read_profile("slurm", {"jobs": 8})
    return Refill(profile, job_of(profile, {}))


def test_refusals_end_a_run_only_when_no_job_is_left(monkeypatch):
    now = [1000.0]
    jobs = refill(monkeypatch, now)
    for number in range(20):
        jobs.refused(f"j-{number}", TRANSIENT)
    jobs.check()
    now[0] += PATIENCE_SECONDS
    jobs.submitted("j-20", "20")
    jobs.refused("j-21", WRONG)
    jobs.check()  # a limit of the site: one job does the work of all
    jobs = refill(monkeypatch, now)
    jobs.refused("j-1", TRANSIENT)
    now[0] += PATIENCE_SECONDS
    jobs.refused("j-1", TRANSIENT)
    with pytest.raises(ClusterError, match="sbatch has taken no job for 10 minutes"):
        jobs.check()
    jobs = refill(monkeypatch, now)
    jobs.refused("j-1", WRONG)
    with pytest.raises(UsageError, match="Invalid account"):
        jobs.check()


def test_jobs_that_scancel_does_not_cancel_are_named(monkeypatch, tmp_path, capsys):
    jobs = refill(monkeypatch, [0.0])
    jobs.submitted("j-1", "77")
    (tmp_path / "scancel").write_text("#!/bin/sh\necho away >&2\nexit 1\n")
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    jobs.cancel_jobs()
    assert "scancel has not cancelled jobs 77 (away)" in capsys.readouterr().err


def test_programs_of_slurm_that_hang_or_fail_are_told(monkeypatch):
    monkeypatch.setattr(slurm, "ANSWER_SECONDS", 0.2)
    assert asyncio.run(slurm._answer(["echo", "17"])) == "17\n"
    with pytest.raises(RuntimeError, match="sleep timed out") as caught:
        asyncio.run(slurm._answer(["sleep", "60"]))
    assert Refusal.of(str(caught.value)).may_pass
    with pytest.raises(RuntimeError, match="exit status 1"):
        asyncio.run(slurm._answer(["false"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "job_id"),
    [("Project 462 has 9 hours left\nSubmitted batch job 55 on cluster c1", "55"), ("56;c1\n", "56")],
)
def test_the_number_of_a_job_is_found_among_what_a_site_says(output, job_id):
    assert slurm._job_class()._job_id_from_submit_output(slurm._job_class(), output) == job_id


@pytest.mark.parametrize(
    ("message", "concerns", "may_pass"),
    [
        ("sbatch: error: invalid partition specified: x", ["queue"], False),
        (
            "Batch job submission failed: Invalid account or account/partition combination specified",
            ["queue", "account"],
            False,
        ),
        ("error: Memory specification can not be satisfied", ["memory"], False),
        ("Requested time limit is invalid (missing or exceeds some limit)", ["walltime"], False),
        ("sbatch: error: Invalid qos specification", ["job_extra_directives"], False),
        ("Unable to contact slurm controller (connect failure)", [], True),
        ("Socket timed out on send/recv operation", [], True),
        (
            "Job violates accounting/QOS policy (job submit limit, user's size)",
            ["account", "job_extra_directives"],
            True,
        ),
    ],
)
def test_refusals_name_what_they_are_about(message, concerns, may_pass):
    refusal = Refusal.of(
        f"Command exited with non-zero exit code.\nExit code: 1\nstdout:\n\nstderr:\n{message}\n"
    )
    assert refusal.message == message
    assert refusal.concerns() == concerns
    assert refusal.may_pass is may_pass


def test_variables_of_the_job_of_this_process_are_left_out():
    given = {
        "SLURM_MEM_PER_CPU": "1",
        "SLURM_JOB_ID": "7",
        "SLURM_CONF": "c",
        "SBATCH_ACCOUNT": "a",
        "PATH": "p",
    }
    assert without_job_of_ours(given) == {"SLURM_CONF": "c", "SBATCH_ACCOUNT": "a", "PATH": "p"}


def test_an_allocation_is_what_slurm_says_of_the_job():
    with pytest.raises(UsageError, match="runs in no SLURM job"):
        Allocation.of({}, None)
    given = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_CPUS_ON_NODE": "8"}
    assert Allocation.of(given, None) == Allocation(3, 8, None)
    assert Allocation.of({**given, "SLURM_MEM_PER_NODE": "32000"}, 4) == Allocation(3, 4, 32000)
    per_cpu = Allocation.of({**given, "SLURM_MEM_PER_CPU": "2000"}, None)
    assert per_cpu.memory_mib == 16000
    assert 1900 < int(per_cpu.worker_memory.removesuffix("MiB")) < 2000


@pytest.mark.parametrize(("said", "nodes"), [("echo 2", 2), ("echo", 3), ("exit 1", 3)])
def test_an_allocation_without_the_nodes_that_were_lost(said, nodes, tmp_path, monkeypatch):
    """srun would wait for these for ever; it is started on those that SLURM says are left."""
    squeue = tmp_path / "squeue"
    squeue.write_text(f"#!/bin/sh\n{said}\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert nodes_left("7", otherwise=3) == nodes


def test_workers_that_died_are_known_as_writers(monkeypatch):
    """With them what they have left half written goes; those that live, and those of this host, are asked for nothing."""
    monkeypatch.setattr(publish, "gone", set())
    client = Client()
    events = [(0.0, {"writer": f"n{node}_1-7", "worker": f"tcp://{node}"}) for node in (1, 2)]
    client.scheduler_info = lambda n_workers: {"workers": {"tcp://2": {}}}
    client.get_events = lambda topic: events
    note_lost_writers(client)
    assert publish.gone == set(), "of a cluster that no watcher belongs to"
    of_client[client] = SimpleNamespace()
    note_lost_writers(client)
    assert publish.gone == {"n1_1-7"}


def test_why_workers_died_decides_how_many_a_task_may_lose():
    client, killed = Client(), SimpleNamespace(allowed_failures=3, last_worker=None)
    assert deaths_of(client, killed, 3) == Deaths(4, 12), "nothing is known of a cluster of somebody else"
    of_client[client] = SimpleNamespace(died_of_memory=lambda worker: False)
    assert deaths_of(client, killed, 3) == Deaths(1, PREEMPTIONS)
    of_client[client] = SimpleNamespace(died_of_memory=lambda worker: True)
    assert deaths_of(client, killed, 3) == Deaths(1, 3, by_memory=True)


class Client:
    """Stands for the key by which a cluster is known."""
