"""`cluster check` and `cluster script` on a real SLURM: what is there is reported, and each fault that is planted is found by its name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_pipeline import store_profile

from dolma_dask.testing.commands import DEADLINE_S

HOLDS = "1600MB"
"""Memory of a job in which nothing is found to be too small."""


def ask(*words: str) -> tuple[int, str]:
    """Run ``dolma-dask cluster``; return its exit status and what it says."""
    done = subprocess.run(
        ["dolma-dask", "cluster", *words], capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    return done.returncode, done.stdout + done.stderr


def test_a_good_profile(slurm, tmp_path):
    profile = store_profile(tmp_path, memory=HOLDS)
    status, said = ask("check", str(profile), "--folder", str(tmp_path), "--json")
    assert status == 0, said
    report = json.loads(said[: said.rindex("}") + 1])
    worker = report["worker"]
    assert report["changes"] == []
    assert 0 < report["startup_seconds"] < DEADLINE_S
    assert worker["job_memory"] == 1526 << 20, "SLURM counts in MiB, and rounds up"
    assert 0.7 * worker["job_memory"] < worker["dask_memory"] < worker["job_memory"]
    assert worker["scratch"].startswith(str(tmp_path / "scratch"))
    assert worker["versions"]["python"] == sys.version.split()[0]
    assert slurm.running() == []
    assert list(tmp_path.glob(".dolma*")) == []


def blind_python(place: Path, folder: Path) -> Path:
    """Return a Python that sees an empty folder in the place of one, as on a node that does not mount it."""
    wrapper = place / "blind_python"
    hide = f'mount -t tmpfs none {folder} && exec {sys.executable} "$@"'
    wrapper.write_text(f"#!/bin/sh\nexec unshare --map-root-user --mount sh -c '{hide}' blind \"$@\"\n")
    wrapper.chmod(0o755)
    return wrapper


def test_a_folder_that_is_not_shared(slurm, tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    python = blind_python(tmp_path, folder)
    if subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody hide a folder from a process (unshare --mount)")
    status, said = ask(
        "check", str(store_profile(tmp_path, memory=HOLDS, python=str(python))), "--folder", str(folder)
    )
    assert status == 1, said
    assert f"{folder} is not the same folder on " in said


FAULTS = {
    "interface": ({"interface": "nope0"}, 2, ["nope0", "lo", "line"]),
    "queue": ({"queue": "nowhere"}, 2, ["nowhere", "invalid partition", "queue"]),
    "memory of no node": ({"memory": "900TB"}, 2, ["memory", "line", "configuration is not available"]),
    "memory of no worker": ({"memory": "800MB"}, 1, ["a worker has 0.", "jobqueue.memory"]),
    "memory without unit": ({"memory": "4"}, 2, ["memory", "line", "expected"]),
    "walltime": ({"walltime": "an hour"}, 2, ["walltime", "line", "an hour"]),
    "prologue": ({"job-script-prologue": ["echo no such module >&2; exit 3"]}, 1, ["no such module"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(slurm, tmp_path, fault):
    """And no job is left, whatever is wrong."""
    changes, expected, words = FAULTS[fault]
    status, said = ask(
        "check", str(store_profile(tmp_path, **{"memory": HOLDS, **changes})), "--folder", str(tmp_path)
    )
    assert [word for word in words if word not in said] == [], said
    assert status == expected, said
    assert "Traceback" not in said
    assert slurm.running() == []


def test_the_script_is_what_is_submitted(slurm, tmp_path):
    """SLURM keeps the script of a running job; it is the one that is shown, whose words a unit test holds."""
    import dolma_dask as dk

    profile = store_profile(tmp_path, jobs=1)
    shown = ask("script", str(profile))[1].splitlines()
    with dk.cluster(str(profile)):
        (job,) = slurm.running()
        submitted = slurm.call("scontrol", "write", "batch_script", str(job), "-").splitlines()
    different = [(a, b) for a, b in zip(shown, submitted, strict=True) if a != b]
    assert len(different) <= 2, different
    assert all("ADDRESS" in line or "JOB" in line for line, _ in different)
