"""A pipeline on a SLURM of several nodes, each with its own host name, its own /tmp and its own scratch: the same bytes as in one process."""

import json
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from nodes import LATE_SECONDS, Node
from private_slurm import Slurm, wait_for
from small_pipeline import Pipeline, logs_of_jobs, store_profile
from small_world import ORDINARY, WILD, make_documents

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.testing.commands import DEADLINE_S, Command, held_at
from dolma_dask.testing.disturbance import RELEASED, mark_of
from dolma_dask.testing.tokenizer import train_tokenizer

ALLOCATION = Path(__file__).resolve().parents[2] / "configs/slurm/allocation.sbatch"
NAMES = {"n1", "n2", "n3"}

A_NODE_EACH = {"jobs": 3, "cores": 3, "local_directory": "/tmp"}
"""Changes of a profile whose jobs do not fit on a node together."""


def store_allocation(place: Path) -> Path:
    """Write a profile of workers on all nodes of a job."""
    path = place / "profile.yaml"
    path.write_text("base: allocation\njobqueue: {interface: lo}\n")
    return path


def test_jobs_land_on_all_nodes(nodes: Slurm, pipeline: Pipeline, tmp_path, monkeypatch):
    def look(dask_worker) -> tuple[str, str]:
        """Return the host of a worker and its scratch."""
        return socket.gethostname(), dask_worker.local_directory

    def sees(paths: list[str]) -> set[str]:
        """Return the folders that a worker sees."""
        return {path for path in paths if Path(path).exists()}

    monkeypatch.setenv("XDG_CACHE_HOME", "/tmp/cache")  # of each node
    with dk.cluster(str(store_profile(tmp_path, **A_NODE_EACH))) as client:
        client.wait_for_workers(3, timeout=DEADLINE_S)
        of_workers = client.run(look)
        hosts, scratches = map(set, zip(*of_workers.values(), strict=True))
        seen = client.run(sees, sorted(scratches))
        assert not any(Path(scratch).exists() for scratch in scratches)
        assert cli.main(pipeline.words()) == 0, logs_of_jobs(tmp_path)
    assert hosts == NAMES
    assert all(scratch.startswith("/tmp/") for scratch in scratches)
    assert seen == {worker: {scratch} for worker, (_, scratch) in of_workers.items()}, (
        "nobody sees that of another"
    )
    pipeline.check()
    nodes.wait_for_end()
    assert set(nodes.nodes_of_jobs().values()) == NAMES


@pytest.fixture
def private() -> Iterator[Path]:
    """A folder that no node sees."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


ONLY_HERE = """
from dolma_dask import tagger

@tagger(name="twice_v1", types="share")
def twice(text: str) -> float:
    return 2.0 * len(text)
"""


def test_what_no_node_sees_is_sent_or_named(nodes: Slurm, tmp_path, private, capsys):
    """Functions are sent; data has to lie where all nodes see it: nothing ends well whose outputs are on the disk of some node."""
    make_documents(tmp_path / "v0", 8)
    shutil.copytree(tmp_path / "v0", private / "v0")
    (private / "mine.py").write_text(ONLY_HERE)
    train_tokenizer(ORDINARY + WILD, private / "tokenizer.json", 300)
    named = {
        f"mix {tmp_path}/v0 --to {private}/v1": "is not here",
        f"tag {private}/v0 --taggers char_length_v1": "see this folder, as all machines must?",
        f"ragged {tmp_path}/v0 {tmp_path}/tokens --tokenizer {private}/tokenizer.json": "Where workers cannot see the path",
    }
    with dk.cluster(str(store_profile(tmp_path, **A_NODE_EACH))):
        assert cli.main(f"tag {tmp_path}/v0 --taggers {private}/mine.py:twice".split()) == 0
        for words, said in named.items():
            assert cli.main(words.split()) == 1, words
            assert said in "".join(capsys.readouterr()), words


IN_ALLOCATION = """
import json, socket, sys
import dolma_dask as dk
from dolma_dask import cli

if __name__ == "__main__":
    with dk.cluster(sys.argv[1]) as client:
        client.wait_for_workers(int(sys.argv[2]))
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


def hold(place: Path, monkeypatch: pytest.MonkeyPatch, text: str, at: int) -> Path:
    """Let the first worker wait before its operation number `at` on files whose path holds a text; return the folder of marks."""
    marks = place / "marks"
    marks.mkdir()
    for name, value in held_at(at, marks, text, workers=True).items():
        monkeypatch.setenv(name, value)
    return marks


def node_of_held(nodes: Slurm, mark: Path) -> Node:
    """Return the node whose worker waits, once it does."""
    wait_for(lambda: mark.exists() and mark.read_text().endswith("\n"), "a worker to come to its file")
    worker = psutil.Process(int(mark.read_text()))
    (node,) = (node for node in nodes.nodes if worker in node.processes())
    return node


def test_a_node_that_loses_power_is_replaced(nodes: Slurm, pipeline: Pipeline, tmp_path, monkeypatch):
    """In the middle of a file, whose half it leaves on shared storage; its job, without which nobody works, is submitted again, to another node."""
    text = pipeline.phases()["map"]
    marks = hold(tmp_path, monkeypatch, text, at=2)  # before the file that it has written appears
    profile = store_profile(tmp_path, **{**A_NODE_EACH, "jobs": 1})
    with Command(pipeline.words("--cluster", str(profile), "--no-progress"), tmp_path / "log") as command:
        lost = node_of_held(nodes, mark_of(marks, text))
        lost.stop()
        nodes.down(lost)
        assert command.wait() == 0, command.output + logs_of_jobs(tmp_path)
    pipeline.check()
    nodes.wait_for_end()
    assert "NODE_FAIL" in nodes.end_states().values()
    assert len({*nodes.nodes_of_jobs().values()}) >= 2


def test_one_job_goes_on_without_a_node_that_loses_power(
    nodes: Slurm, pipeline: Pipeline, tmp_path, monkeypatch
):
    text = pipeline.phases()["exchange"]
    marks = hold(tmp_path, monkeypatch, text, at=2)
    monkeypatch.setenv("PROFILE", str(store_allocation(tmp_path)))
    options = ["--nodes=3", "--cpus-per-task=1", "--mem=2G", "-o", f"{tmp_path}/log"]
    job = nodes.submit(*options, str(ALLOCATION), *pipeline.words())
    lost = node_of_held(nodes, mark_of(marks, text))
    if lost is nodes.nodes[0]:  # the command runs there
        (marks / RELEASED).mkdir()
        lost = nodes.nodes[1]
    lost.stop()
    nodes.down(lost)
    nodes.wait_for_end()
    assert nodes.end_states()[job] == "COMPLETED", (tmp_path / "log").read_text()
    pipeline.check()


def test_a_node_that_freezes_is_given_up(nodes: Slurm, pipeline: Pipeline, tmp_path, monkeypatch):
    """By Dask, whose limit is shorter here than the five minutes that it has else, and by SLURM."""
    text = pipeline.phases()["map"]
    marks = hold(tmp_path, monkeypatch, text, at=2)
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", "20s")
    profile = store_profile(tmp_path, **{**A_NODE_EACH, "jobs": 2})
    with Command(pipeline.words("--cluster", str(profile), "--no-progress"), tmp_path / "log") as command:
        lost = node_of_held(nodes, mark_of(marks, text))
        lost.send(signal.SIGSTOP)
        assert command.wait() == 0, command.output + logs_of_jobs(tmp_path)
    pipeline.check()
    lost.stop()
    nodes.down(lost)


def test_the_same_bytes_where_nodes_see_files_late(nodes: Slurm, late: Path, before: Pipeline, monkeypatch):
    """Workers, and the process that leads them."""
    pipeline = before.copy(late)
    monkeypatch.setenv("PROFILE", str(store_allocation(late)))
    options = ["--nodes=3", "--cpus-per-task=1", "--mem=2G", "-o", f"{late}/log"]
    time.sleep(LATE_SECONDS)  # until all nodes see the pipeline itself
    job = nodes.submit(*options, str(ALLOCATION), *pipeline.words())
    nodes.wait_for_end()
    assert nodes.end_states()[job] == "COMPLETED", (late / "log").read_text()
    pipeline.check()
