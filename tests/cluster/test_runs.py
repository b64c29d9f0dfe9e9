"""A pipeline on jobs of a real SLURM: the same bytes as in one process, whatever happens to the jobs or to the command."""

import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from private_slurm import Slurm, job_of, kill_at_once, processes_of, wait_for
from small_pipeline import Pipeline, logs_of_jobs, send_all, store_profile

from dolma_dask.testing.commands import Command, held, held_at, is_alive
from dolma_dask.testing.disturbance import RELEASED


@contextmanager
def running(pipeline: Pipeline, place: Path, profile: Path, **environment: str):
    """Run the pipeline on a cluster as a process."""
    words = pipeline.words("--cluster", str(profile), "--no-progress")
    with Command(words, place / "log", **environment) as command:
        yield command


def end(command: Command, place: Path, status: int = 0) -> None:
    """Wait for a command and check its exit status."""
    assert command.wait() == status, command.output + logs_of_jobs(place)
    assert "Traceback" not in command.output, "what Dask says about lost workers is noise to the user"


def holding(place: Path, *texts: str, at: int = 1) -> tuple[Path, dict[str, str]]:
    """Return the environment in which one worker for each text waits before it writes a file whose path holds it."""
    marks = place / "marks"
    marks.mkdir()
    return marks, held_at(at, marks, *texts, workers=True)


def wait_for_both(slurm: Slurm) -> None:
    """Wait until both jobs run: the second may come after the first has done all the work."""
    wait_for(lambda: len(slurm.running()) == 2, lambda: f"two jobs to run: {slurm.call('squeue')}")


def test_the_same_bytes_on_two_jobs(slurm, pipeline, tmp_path):
    marks, environment = holding(tmp_path, pipeline.first)
    with running(pipeline, tmp_path, store_profile(tmp_path), **environment) as command:
        held(command, marks, pipeline.first)
        wait_for_both(slurm)
        (marks / RELEASED).mkdir()
        end(command, tmp_path)
    assert "ssh -L" in command.output, "the dashboard's tunnel is shown when the jobs start"
    pipeline.check()
    slurm.wait_for_end()
    assert len(slurm.end_states()) >= 2


@pytest.mark.parametrize("death", ["scancel", "SIGKILL"])
def test_a_job_dies_in_each_phase(slurm, pipeline, tmp_path, death):
    """Each is replaced: with two jobs a third death could not happen otherwise."""
    kill = {"scancel": slurm.cancel, "SIGKILL": kill_at_once}[death]
    phases = pipeline.phases()
    marks, environment = holding(tmp_path, *phases.values())
    lost = []
    with running(pipeline, tmp_path, store_profile(tmp_path), **environment) as command:
        for text in phases.values():
            lost.append(job_of(held(command, marks, text)))
            kill(lost[-1])
        end(command, tmp_path)
    assert len(set(lost)) == len(phases)
    pipeline.check()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_cancels_its_jobs(slurm, pipeline, tmp_path, number):
    text = pipeline.phases()["map"]
    marks, environment = holding(tmp_path, text)
    with running(pipeline, tmp_path, store_profile(tmp_path), **environment) as command:
        held(command, marks, text)
        wait_for_both(slurm)
        command.process.send_signal(number)
        status = command.wait()
        assert slurm.running() == [], "its jobs are cancelled when it ends"
    assert status == 130, command.output
    slurm.wait_for_end()
    with running(pipeline, tmp_path, store_profile(tmp_path)) as command:
        end(command, tmp_path)
    pipeline.check()


def test_jobs_of_a_killed_command_end_by_themselves(slurm, pipeline, tmp_path):
    """A worker that is in the middle of a file too; the next run goes on."""
    text = pipeline.phases()["map"]
    marks, environment = holding(tmp_path, text)
    profile = store_profile(tmp_path, death_timeout=30)
    with running(pipeline, tmp_path, profile, **environment) as command:
        held(command, marks, text)
        wait_for_both(slurm)
        jobs = slurm.jobs()
        command.kill(group=False)
        slurm.wait_for_end(*jobs)
    with running(pipeline, tmp_path, profile) as command:
        end(command, tmp_path)
    pipeline.check()


def test_a_worker_that_vanishes_and_returns_harms_nothing(slurm, pipeline, tmp_path):
    """It stops in the middle of a file, is given up, and goes on when others have made the file and the run is further."""
    first, later = pipeline.phases()["map"], pipeline.phases()["HDF5"]
    marks, environment = holding(tmp_path, first, later)
    environment["DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL"] = "20s"
    with running(pipeline, tmp_path, store_profile(tmp_path), **environment) as command:
        lost = held(command, marks, first)
        stopped = processes_of(job_of(lost))
        send_all(stopped, signal.SIGSTOP)
        other = held(command, marks, later)
        assert lost.pid != other.pid
        (marks / RELEASED).mkdir()  # both go on with what they were about to write
        send_all(stopped, signal.SIGCONT)
        end(command, tmp_path)
    wait_for(lambda: not is_alive(lost), "the lost worker to end")
    pipeline.check(ended=lost.pid)


def test_workers_leave_before_their_walltime(slurm, pipeline, tmp_path):
    """One that is idle, and one in a task that is longer than it lives, which the profile says here: it hands over, and a worker of a new job does it."""
    marks, environment = holding(tmp_path, pipeline.first)
    profile = store_profile(tmp_path, worker_extra_args=["--lifetime", "30s", "--lifetime-stagger", "1s"])
    with running(pipeline, tmp_path, profile, **environment) as command:
        busy = job_of(held(command, marks, pipeline.first))
        wait_for_both(slurm)
        (idle,) = set(slurm.running()) - {busy}
        end(command, tmp_path)
    states = slurm.end_states()
    assert states[idle] in ("COMPLETED", "CANCELLED"), (
        "cancelled where the busy one left first, and the run ended before it"
    )
    assert states[busy] in ("COMPLETED", "CANCELLED")
    assert "worker-lifetime-reached" in (tmp_path / f"jobs/dolma-dask-{busy}.log").read_text()
    pipeline.check()


def test_the_end_of_walltime_resumes(slurm, pipeline, tmp_path):
    """A job that hangs in the middle of a file cannot leave, and is killed at its walltime; another makes the file."""
    marks, environment = holding(tmp_path, pipeline.first)
    profile = store_profile(tmp_path, walltime="00:01:00")
    with running(pipeline, tmp_path, profile, **environment) as command:
        hung = job_of(held(command, marks, pipeline.first))
        send_all(processes_of(hung), signal.SIGSTOP)
        end(command, tmp_path)
    assert slurm.end_states()[hung] == "TIMEOUT"
    pipeline.check()


def test_inside_one_allocation(slurm, pipeline, tmp_path, monkeypatch):
    """The scheduler, the workers and the command share one job."""
    profile = tmp_path / "profile.yaml"
    profile.write_text("base: allocation\njobqueue: {interface: lo}\n")
    monkeypatch.setenv("PROFILE", str(profile))
    script = Path(__file__).resolve().parents[2] / "configs/slurm/allocation.sbatch"
    options = ["--nodes=1", "--cpus-per-task=2", "--mem=3G", "-o", f"{tmp_path}/log"]
    job = slurm.submit(*options, str(script), *pipeline.words())
    slurm.wait_for_end()
    assert slurm.end_states()[job] == "COMPLETED", (tmp_path / "log").read_text()
    pipeline.check()


ODD = {
    "SLURM_CPUS_PER_TASK": "64",
    "SLURM_MEM_PER_CPU": "900000",
    "SLURM_NTASKS": "70",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_CPU_BIND": "quiet,mask_cpu:0x40",
    "SLURM_TIMELIMIT": "0",
    "SBATCH_JOB_NAME": "odd",
}


def test_started_in_a_job_with_odd_variables(slurm, pipeline, tmp_path):
    """Jobs of workers do not ask for what SLURM has said to this job about itself."""
    odd = " ".join(f"{name}={value}" for name, value in ODD.items())
    words = " ".join(pipeline.words("--cluster", str(store_profile(tmp_path, jobs=1)), "--no-progress"))
    wrapped = f"env {odd} dolma-dask {words}"
    job = slurm.submit("--mem=2G", "-o", f"{tmp_path}/log", "--wrap", wrapped)
    wait_for(lambda: slurm.end_states().get(job), "the job of the command to end")
    assert slurm.end_states()[job] == "COMPLETED", (tmp_path / "log").read_text()
    pipeline.check()


GREEDY = """
import sys
import time
import dolma_dask as dk

@dk.tagger(name="greedy_v1", types="share")
def greedy(text: str) -> float:
    block = b""
    if text == "GREEDY":
        block = bytearray(3_000_000_000)
        time.sleep(3600)  # to be killed
    return float(len(block))

if __name__ == "__main__":
    with dk.cluster(sys.argv[2]):
        dk.tag(sys.argv[1], [greedy], progress=False)
"""


def test_a_job_over_its_memory_names_the_shard_and_the_setting(slurm, tmp_path):
    folder, script = tmp_path / "v0/documents", tmp_path / "greedy.py"
    folder.mkdir(parents=True)
    for name, text in {"small": "modest", "large": "GREEDY"}.items():
        (folder / f"{name}.jsonl").write_text(f'{{"id": "1", "source": "web", "text": "{text}"}}\n')
    script.write_text(GREEDY)
    profile = store_profile(tmp_path)
    with Command([str(script), str(tmp_path / "v0"), str(profile)], tmp_path / "log") as command:
        assert command.wait() == 1, command.output
    failure = next(line for line in command.output.splitlines() if "large.jsonl" in line)
    assert "memory" in failure
    assert str(profile) in command.output or "`memory`" in command.output, "the setting is named"
    assert len(list(tmp_path.glob("v0/attributes/greedy_v1/small.*"))) == 1, "its neighbour is made"
