"""cluster check: what follows from two looks at machines, and the whole of it on a LocalCluster."""

import msgspec
import pytest

from dolma_dask import cli
from dolma_dask.clusters.profiles import read_profile
from dolma_dask.questions.cluster.findings import report_of
from dolma_dask.questions.cluster.probe import Side, kind_of, look

TOKENS = ("here", "there")
GOOD = Side(
    "node1", 8, 8 * 10**9, 9 * 10**9, "/local", 10**12, "ext4", "here", "", 1000.0, True, {"python": "3.11.7"}
)


def report(profile="slurm", seen="there", took=0.5, **facts):
    worker = msgspec.structs.replace(GOOD, **facts)
    before = msgspec.structs.replace(GOOD, host="login", dask_memory=None, job_memory=None)
    here = msgspec.structs.replace(before, folder_read=seen, clock=before.clock + took)
    return report_of(read_profile(profile), 4.2, (before, worker, here), "/shared", TOKENS)


def test_nothing_has_to_be_changed_where_all_agrees():
    found = report()
    assert (found.exit_status, found.changes, found.advice) == (0, (), ())
    assert "nothing has to be changed" in str(found)
    assert found.to_json()["worker"]["host"] == "node1"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"folder_wrote": "No such file"}, "cannot write to /shared (No such file)"),
        ({"folder_read": "other"}, "/shared is not the same folder on node1"),
        ({"seen": ""}, "/shared is not the same folder on node1"),
        ({"versions": {"python": "3.12.1"}}, "python is 3.11.7 here and 3.12.1 on the worker"),
        ({"dask_memory": 10**10}, "SLURM kills the job at 9.00 GB"),
        ({"dask_memory": 10**8}, "a worker has 0.10 GB"),
        ({"clock": 1008.0}, "the clocks differ by 7.5 s"),
        ({"clock": 992.5}, "the clocks differ by 7.5 s"),
        ({"profile": "lumi"}, "lumi.yaml, line 11: node1 has no folder /tmp"),
    ],
)
def test_what_has_to_be_changed(facts, said):
    found = report(**facts)
    assert found.exit_status == 1
    assert [change for change in found.changes if said in change], found.changes
    assert f"CHANGE: {found.changes[0]}" in str(found)


def test_a_worker_that_is_slow_to_answer_has_the_right_clock():
    assert report(took=60.0, clock=1010.0).changes == report(took=60.0, clock=1050.0).changes == ()


def test_what_could_be_better_is_no_failure():
    found = report(scratch_kind="tmpfs", scratch_free=10**6, compiled=False)
    assert found.exit_status == 0
    assert [text.split()[0] for text in found.advice] == ["scratch", "scratch", "kernels"]


def test_a_look_writes_and_reads(tmp_path, monkeypatch):
    (tmp_path / "theirs").write_text("there")
    side = look(str(tmp_path), "mine", "theirs", "here")
    assert (side.folder_read, side.folder_wrote, (tmp_path / "mine").read_text()) == ("there", "", "here")
    assert "No such file" in look(str(tmp_path / "no"), "mine", "theirs", "here").folder_wrote
    assert kind_of("/proc") == "proc"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not look(str(tmp_path), "mine", "", "").compiled
    (tmp_path / "text_1").mkdir()
    (tmp_path / "text_1/kernel.nbc").touch()
    assert look(str(tmp_path), "mine", "", "").compiled


@pytest.mark.slow
def test_a_check_of_this_machine_leaves_nothing_behind(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status = cli.main(["cluster", "check", "laptop", "--json"])
    shown = capsys.readouterr()
    assert status in (0, 1), shown.err
    assert '"verb": "cluster check"' in shown.out
    assert list(tmp_path.iterdir()) == []
    assert cli.main(["cluster", "check", "nosuch"]) == 2
