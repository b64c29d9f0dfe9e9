"""The notebook about SLURM on a real one: its cells are those that run elsewhere on processes of this machine."""

import notebooks


def test_the_notebook_runs_in_jobs(slurm):
    book = notebooks.execute(notebooks.FOLDER / "05_on_slurm.ipynb")
    printed = "".join(output.get("text", "") for cell in book.cells for output in cell.get("outputs", ()))
    assert "2 workers: jobs of SLURM" in printed
    assert notebooks.complaints(book) == []
    slurm.wait_for_end()
    assert len(slurm.end_states()) == 2
    assert set(slurm.end_states().values()) <= {"CANCELLED", "COMPLETED"}
