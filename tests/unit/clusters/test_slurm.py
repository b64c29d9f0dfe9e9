"""The job script, word by word, and what importing dask-jobqueue must not change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dolma_dask import cli
from dolma_dask.clusters.workers import tunnel

PROFILE = """
base: slurm
jobqueue:
  cores: 4
  processes: 2
  memory: 8GB
  queue: standard
  account: project_1
  python: /shared/venv/bin/python
  interface: hsn0
  local-directory: /local/scratch
  log-directory: logs
  job-extra-directives: ["--qos=normal"]
  job-script-prologue: ["module load python"]
"""


@pytest.mark.slow
def test_the_job_script_is_the_one_that_was_looked_at(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(PROFILE)
    assert cli.main(["cluster", "script", "mine.yaml"]) == 0
    assert capsys.readouterr().out == Path(__file__).with_name("job_script.sh").read_text()
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.yaml"], "printing makes no folders"
    assert cli.main(["cluster", "script", "laptop"]) == 2
    assert "submits no jobs" in capsys.readouterr().err


CODE = """
import signal, sys, threading
from dolma_dask.clusters.profiles import read_profile
from dolma_dask.clusters.slurm import job_script
handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
call = lambda: print(job_script(read_profile("slurm", {"queue": "from_call"})))
if sys.argv[1:]:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
else:
    call()
assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
"""


@pytest.mark.slow
@pytest.mark.parametrize("thread", [[], ["thread"]])
def test_signals_stay_those_of_the_command_and_what_the_user_configured_counts(thread, tmp_path):
    """Importing dask-jobqueue makes Ctrl-C end a process with status 0, and fails in threads."""
    (tmp_path / "jobqueue.yaml").write_text(
        "jobqueue: {slurm: {account: own, queue: own, memory: 9GiB, death-timeout: 60}}"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "DASK_CONFIG": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *thread], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for words in ("-A own", "-p from_call", "--mem=9216M", "-t 01:00:00", "--death-timeout 300"):
        assert words in done.stdout


def test_the_way_to_a_dashboard_is_a_line_to_copy(monkeypatch):
    monkeypatch.setenv("SLURM_SUBMIT_HOST", "login1")
    line = tunnel("http://10.1.2.3:41233/status")
    assert line.startswith("ssh -L 41233:10.1.2.3:41233 ")
    assert line.endswith("@login1, then http://localhost:41233/status")
