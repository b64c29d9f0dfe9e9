"""The job script, word by word, and what importing dask-jobqueue must not change."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dolma_dask import cli
from dolma_dask.clusters.slurm import tunnel

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


@pytest.mark.slow
def test_ctrl_c_stays_that_of_the_command_and_home_counts(tmp_path):
    """Importing dask-jobqueue makes Ctrl-C end a process with status 0."""
    (tmp_path / ".config/dask").mkdir(parents=True)
    (tmp_path / ".config/dask/jobqueue.yaml").write_text(
        "jobqueue: {slurm: {account: from_home, queue: from_home}}"
    )
    code = (
        "import signal\nfrom dolma_dask import cluster_script\nbefore = signal.getsignal(signal.SIGINT)\n"
        "from dolma_dask.clusters.profiles import read_profile\nfrom dolma_dask.clusters.slurm import job_script\n"
        "print(job_script(read_profile('slurm', {'queue': 'from_call'})))\nassert signal.getsignal(signal.SIGINT) is before"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "-A from_home" in done.stdout
    assert "-p from_call" in done.stdout
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_way_to_a_dashboard_is_a_line_to_copy():
    assert tunnel("http://10.1.2.3:41233/status").startswith("ssh -L 41233:10.1.2.3:41233 ")
