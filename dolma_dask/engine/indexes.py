"""Indexes: files that name those of all units, which are there only while all that they name is."""

from collections.abc import Sequence

from dolma_dask.display import counted
from dolma_dask.engine import resume
from dolma_dask.engine.plan import Index, Plan
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.journal import Journal, Record


def write_index(plan: Plan, index: Index) -> str:
    """Write the file that names those of all units, or say that some are not there; empty if it is written."""
    url, made = files.join(plan.root, index.path), _indexed(plan, index)
    if len(made) < len(index.units) and files.stat(url):
        files.remove(url)
        made = _indexed(plan, index)  # if a run beside this one has written it meanwhile, all are there
    if len(made) < len(index.units):
        return f"{index.path} is written once all {counted(len(index.units), 'shard')} are there; now there are {len(made):,}"
    content = index.content(made)
    if files.stat(url) is None or files.read_bytes(url) != content:
        sweep(plan.root, index.path)  # of a run that was killed in this very act
        with publish(url) as out:
            out.write(content)
    return ""


def _indexed(plan: Plan, index: Index) -> list[Record]:
    """Return the records of the units that an index may name: made with these options, by whatever run, and there as they were written."""
    existing = {info.path: info.bytes for info in files.list_files(plan.root)}
    known = Journal(plan.root, plan.verb).records
    keys = {unit.key for task in plan.tasks for unit in task.units}
    records = [known[unit] for unit in index.units if unit in known]
    return [
        record
        for record in records
        if record.key in keys and not record.stale and resume.has_outputs(record, existing)
    ]


def remove_indexes(plan: Plan, journal: Journal, paths: Sequence[str]) -> None:
    """Remove the indexes of other formats that name files which go; one that no run of this verb has announced stays."""
    for path, suffix in plan.other_indexes.items():
        if any(name.endswith(suffix) for name in paths) and journal.may_write(path):
            files.remove(files.join(plan.root, path))
