"""Array jobs: a verb in tasks that know nothing of each other, as configs/slurm/array.sbatch runs them."""

import shutil
from pathlib import Path

from private_slurm import wait_for
from small_world import make_documents, run_here

from dolma_dask import cli
from dolma_dask.testing.commands import held_at
from dolma_dask.testing.disturbance import mark_of
from dolma_dask.testing.verb_laws import NOWHERE, leftovers, tree

SCRIPT = str(Path(__file__).resolve().parents[2] / "configs/slurm/array.sbatch")
TAGGERS = ("--taggers", "gopher_v2", "char_length_v1")


def tag(folder: Path, *more: str) -> list[str]:
    return ["tag", f"{folder}/v0", *TAGGERS, *more]


def array(slurm, folder: Path, *options: str) -> int:
    """Submit the script that tags the dataset of a folder; return its number."""
    return slurm.submit(*options, "--mem=1G", "-o", f"{folder}/%j.log", SCRIPT, *tag(folder))


def output(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.log")))


def test_an_array_makes_the_bytes_of_one_run(slurm, tmp_path, monkeypatch):
    """Two tasks are in the middle of their files at once, and die; the job after all of them makes what they have left, and the journal knows every shard."""
    one, many, marks = tmp_path / "one", tmp_path / "many", tmp_path / "marks"
    marks.mkdir()
    make_documents(one / "v0", 8)
    shutil.copytree(one, many)
    assert run_here(tag(one)) == 0
    places = [many / "v0/attributes/gopher_v2/2019-00", many / "v0/attributes/gopher_v2/2019-01"]
    for name, value in held_at(1, marks, *places).items():
        monkeypatch.setenv(name, value)
    first = array(slurm, many, "--array=1-4")
    for place in places:
        wait_for(
            lambda place=place: mark_of(marks, str(place)).exists(), lambda: f"both to write {output(many)}"
        )
    last = array(slurm, many, f"--dependency=afterany:{first}")
    for task in (1, 2):
        slurm.cancel(f"{first}_{task}", "-s", "KILL", "-f")
    slurm.wait_for_end()
    assert slurm.end_states()[last] == "COMPLETED", output(many)
    assert tree(many, ["v0"]) == tree(one, ["v0"])
    assert leftovers(many) == []
    assert cli.main(tag(many, "--scheduler", NOWHERE)) == 0, "the journal knows all of it: nothing is started"
