"""The SLURM of these tests is one: it runs jobs, replaces none by itself, and enforces memory."""

import os

import pytest
from private_slurm import processes_of, wait_for

from dolma_dask.testing.commands import DEADLINE_S, is_alive

PROBE = "import sys; block = bytearray(int(sys.argv[1])); import time; time.sleep(600)"


def test_workers_of_dask_jobqueue_come(slurm, tmp_path):
    """A failure here is one of the SLURM of the tests, not of dolma_dask."""
    from dask_jobqueue import SLURMCluster
    from distributed import Client

    options = {"scheduler_options": {"dashboard_address": ":0"}, "local_directory": str(tmp_path)}
    with (
        SLURMCluster(
            cores=1, memory="1GB", interface="lo", log_directory=str(tmp_path), **options
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout=DEADLINE_S)
        jobs = client.run(lambda: os.environ["SLURM_JOB_ID"])
        assert sorted(map(int, jobs.values())) == slurm.running()
    slurm.wait_for_end()


def test_a_job_over_its_memory_is_killed(slurm, tmp_path):
    words = ["-o", "/dev/null", "--mem=100M", "--wrap", f"python3 -c '{PROBE}' 400000000"]
    job = slurm.submit(*words)
    wait_for(lambda: slurm.end_states().get(job), "the job to be killed")
    assert slurm.end_states()[job] == "FAILED"


@pytest.mark.parametrize("how", [(), ("-s", "KILL", "-f")])
def test_scancel_leaves_no_process(slurm, how):
    job = slurm.submit("-o", "/dev/null", "--mem=100M", "--wrap", f"python3 -c '{PROBE}' 1")
    found = wait_for(lambda: slurm.running() and processes_of(job), "the job to run")
    slurm.cancel(job, *how)
    slurm.wait_for_end()
    assert wait_for(lambda: not any(map(is_alive, found)), "its processes to end")
