"""A pipeline on a SLURM of several nodes, each with its own host name, its own /tmp and its own scratch: the same bytes as in one process."""

import json
import socket
from pathlib import Path

from private_slurm import Slurm
from small_pipeline import Pipeline, logs_of_jobs, store_profile
from small_world import run_here

import dolma_dask as dk

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"n1", "n2", "n3"}

A_NODE_EACH = {"jobs": 3, "cores": 3, "local_directory": "/tmp"}
"""Changes of a profile whose jobs do not fit on a node together."""


def store_allocation(place: Path) -> Path:
    """Write a profile of workers on all nodes of a job."""
    path = place / "profile.yaml"
    path.write_text("base: allocation\njobqueue: {interface: lo}\n")
    return path


def test_jobs_land_on_all_nodes(nodes: Slurm, pipeline: Pipeline, tmp_path):
    def look(dask_worker) -> tuple[str, str, set[str]]:
        """Return the host of a worker, its scratch, and those that it sees."""
        scratch = Path(dask_worker.local_directory)
        return (
            socket.gethostname(),
            str(scratch),
            {str(path) for path in scratch.parent.glob("worker-????????")},
        )

    with dk.cluster(str(store_profile(tmp_path, **A_NODE_EACH))) as client:
        client.wait_for_workers(3, timeout=60)
        seen = list(client.run(look).values())
        assert not any(Path(scratch).exists() for _, scratch, _ in seen)
        assert run_here(pipeline.words()) == 0, logs_of_jobs(tmp_path)
    assert {host for host, _, _ in seen} == NAMES
    assert all(scratch.startswith("/tmp/") and {scratch} == found for _, scratch, found in seen), (
        "nobody sees that of another"
    )
    pipeline.check()
    nodes.wait_for_end()
    assert set(nodes.nodes_of_jobs().values()) == NAMES


IN_ALLOCATION = """
import json, socket, sys
import dolma_dask as dk
from dolma_dask import cli

if __name__ == "__main__":
    with dk.cluster(sys.argv[1]) as client:
        client.wait_for_workers(int(sys.argv[2]), timeout=60)
        print(json.dumps(list(client.run(socket.gethostname).values())))
        sys.exit(cli.main(sys.argv[3:]))
"""


def test_one_job_has_workers_on_all_of_its_nodes(nodes: Slurm, pipeline: Pipeline, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(IN_ALLOCATION)
    words = ["python", script, store_allocation(tmp_path), "6", *pipeline.words("--no-progress")]
    wrapped = " ".join(map(str, words))
    options = ["--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=2", "--mem=3G", "-o", f"{tmp_path}/log"]
    job = nodes.submit(*options, "--wrap", wrapped)
    nodes.wait_for_end()
    said = (tmp_path / "log").read_text()
    assert nodes.end_states()[job] == "COMPLETED", said
    hosts = json.loads(next(line for line in said.splitlines() if line.startswith("[")))
    assert sorted(hosts) == sorted([*NAMES, *NAMES])
    pipeline.check()
