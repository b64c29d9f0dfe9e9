"""Profiles: those that are shipped, files on top of them, values of a call, and mistakes with their place."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from dolma_dask import clusters
from dolma_dask.clusters.jobs import job_of
from dolma_dask.clusters.profiles import JOBQUEUE, read_profile, shipped
from dolma_dask.errors import UsageError
from dolma_dask.options.groups import RunOptions


def test_shipped_profiles_are_right_and_tell_what_they_are():
    kinds = {name: read_profile(name).kind for name in shipped()}
    assert kinds == {"allocation": "allocation", "laptop": "local", "lumi": "slurm", "slurm": "slurm"}
    for name in ("slurm", "lumi"):
        job = job_of(read_profile(name), {})
        assert job.processes == job.cores
        assert job.worker_mib > 1000


def test_a_file_changes_two_lines_and_a_call_some_more(tmp_path):
    (tmp_path / "group.yaml").write_text(
        "base: lumi\njobqueue: {account: project_1, local-directory: null}\n"
    )
    mine = tmp_path / "mine.yaml"
    mine.write_text('base: group.yaml\njobs: 9\njobqueue:\n  walltime: "2-00"\n')
    found = read_profile(str(mine), {"jobs": 3, "memory": "64GiB", "queue": None})
    assert (found.kind, found.jobs) == ("slurm", 3)
    assert found.place_of("walltime") == f"{mine}, line 4"
    assert found.place_of("account") == f"{tmp_path}/group.yaml, line 2"
    own = {"local_directory": "/scratch", "memory": "1TB", "queue": "standard", "interface": "ib0"}
    whole = found.over(own)
    options = whole.jobqueue
    assert (options["account"], options["memory"], options["walltime"]) == ("project_1", "64GiB", "2-00")
    assert (options["queue"], options["interface"]) == ("standard", "ib0"), (
        "the user's own jobqueue.yaml beats what is shipped"
    )
    assert options["local_directory"] == "/scratch", "nothing takes back what the base says"
    assert "local_directory" not in found.over({}).jobqueue
    assert options["cores"] == 32
    assert "configuration of Dask" in whole.place_of("queue")
    job = job_of(whole, {"shebang": "#!/bin/sh", "death_timeout": 60})
    assert job.memory == 64 << 30
    assert job.arguments()["shebang"] == "#!/bin/sh"
    assert job.arguments()["death_timeout"] == 300
    assert job.seconds == 2 * 86400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jobs: 2", "no `kind`; expected one of local, slurm, address, allocation"),
        ("kind: slrum", r"line 1, column 7: kind: 'slrum'; did you mean 'slurm'\?"),
        (
            "base: slurm\njobqueue:\n  memry: 4GB",
            r"line 3, column 3: jobqueue.memry: .*did you mean 'memory'\?",
        ),
        ("base: slurm\njobqueue:\n  memry:", r"line 3, column 3: jobqueue.memry"),
        ("base: slurm\njobs: 0", "line 2: jobs=0; expected a number from 1 on"),
        ("base: slurm\nworkers: 4", "line 2: workers=4 with `kind: slurm`"),
        ("kind: address\naddress: here", "line 2: 'here' is no address"),
        ("base: nosuch", "unknown cluster profile 'nosuch'; expected one of 'allocation', 'laptop'"),
        ("base: self.yaml", "is its own base"),
        ("", "the file is empty; expected a cluster profile"),
        ("[slurm]", "expected a map"),
    ],
)
def test_mistakes_have_a_place(text, said, tmp_path):
    (tmp_path / "self.yaml").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_profile(str(tmp_path / "self.yaml"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cores": None}, "no `jobqueue.cores`"),
        ({"memory": None}, "no `jobqueue.memory`; expected it, since a job without it takes"),
        ({"memory": "4"}, "memory: '4'; expected a number with a unit"),
        ({"memory": "300MB"}, "leaves 186 MiB for each of 1 workers"),
        ({"processes": 2}, "processes: 2 with cores: 1"),
        ({"walltime": "soon"}, r"walltime: \'soon\'; expected hours, minutes and seconds in quotes"),
        ({"walltime": 3600}, "walltime: 3600"),
        ({"walltime": "00:00:00"}, "expected a minute or more"),
        ({"job_script_prologue": "module load x"}, r"expected a list: \['module load x'\]"),
        ({"queue": "a\nb"}, "expected one line"),
    ],
)
def test_jobs_that_cannot_be_are_refused(options, said):
    profile = read_profile("slurm")
    changed = replace(profile, jobqueue=options)
    with pytest.raises(UsageError, match=said):
        job_of(changed, {})


@pytest.mark.parametrize(
    ("text", "memory"),
    [("4GB", 4 * 10**9), ("4G", 4 << 30), ("4GiB", 4 << 30), ("4096M", 4 << 30), ("1.5 TB", 1500 * 10**9)],
)
def test_memory_is_as_dask_and_slurm_read_it(text, memory):
    job = job_of(read_profile("slurm", {"memory": text}), {})
    assert job.memory == memory
    asked = job.arguments()["job_mem"]
    assert (int(asked[:-1]) - 1) << 20 < memory <= int(asked[:-1]) << 20, (
        "SLURM's M is MiB; never less than Dask uses"
    )
    assert job.worker_mib << 20 < memory, "the process that starts workers needs some too"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600),
        ("10:30", 630),
        ("01:00:00", 3600),
        ("1-0", 86400),
        ("1-2:30", 95400),
        ("1-02:30:01", 95401),
    ],
)
def test_walltimes_are_those_of_slurm(text, seconds):
    job = job_of(read_profile("slurm", {"walltime": text}), {})
    assert job.seconds == seconds
    words = job.arguments()["worker_extra_args"]
    lifetime, stagger = (int(words[words.index(f"--lifetime{more}") + 1][:-1]) for more in ("", "-stagger"))
    assert lifetime - stagger > 0
    assert lifetime + stagger <= seconds - 10, "all leave before the end"


def test_unknown_names_and_two_places_are_refused():
    for name in ("", "nosuch", "no/such.yaml"):
        with pytest.raises(UsageError, match="'laptop'"):
            read_profile(name)
    with pytest.raises(UsageError, match=r"did you mean 'walltime'\?"):
        read_profile("slurm", {"waltime": "1"})
    for more in ({"scheduler": "threads"}, {"workers": 2}):
        with pytest.raises(UsageError, match="were both given"):
            RunOptions(cluster="laptop", **more)
    with pytest.raises(UsageError, match="unknown cluster profile"):
        RunOptions(cluster="lapptop")
    with pytest.raises(UsageError, match="takes no argument"), clusters.cluster("laptop", jbos=2):
        pass
    assert read_profile("tcp://host:8786").kind == "address"
    assert "memory" in JOBQUEUE


def test_profiles_in_the_documents_are_right(tmp_path):
    root = Path(__file__).parents[3]
    found = [
        text
        for page in (root / "README.md", *(root / "docs").glob("*.md"))
        for text in re.findall(r"```yaml\n(?:#[^\n]*\n)?(base: .*?)```", page.read_text(), re.DOTALL)
    ]
    assert found
    for text in found:
        (tmp_path / "mine.yaml").write_text(text)
        assert job_of(read_profile(str(tmp_path / "mine.yaml")), {}).worker_mib > 1000
