"""Formats of outputs: what killed and finished runs have made in another one never stays beside the files of a shard."""

import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.journal import Journal

from .conftest import document, write_lines

HERE = {"scheduler": "synchronous", "progress": False}


def _convert(root, **options):
    raw = root.parent / "raw"
    write_lines(raw / "x/a.jsonl", [document(number) for number in range(3)])
    return dk.convert(str(raw), to=str(root), **options)


VERBS = {
    "tag": lambda root, **options: dk.tag(str(root), ["char_length_v1"], **options),
    "dedupe": lambda root, **options: dk.dedupe(str(root), name="same", **options),
    "block": lambda root, **options: dk.block(str(root), str(root.parent / "list.txt"), **options),
    "mix": lambda root, **options: dk.mix(str(root), to=str(root.parent / "new"), **options),
    "convert": _convert,
}


@pytest.fixture(params=VERBS)
def verb(request, dataset):
    """A verb on a dataset, the root of its outputs, and its journal."""
    (dataset.parent / "list.txt").write_text("d1\n")
    name = request.param
    if name == "convert":
        dataset = dataset.parent / "converted"
    root = dataset.parent / "new" if name == "mix" else dataset
    return lambda **options: VERBS[name](dataset, **HERE, **options), str(root), name


def outputs(root, name):
    folder = "attributes" if name in ("tag", "dedupe", "block") else "documents"
    return sorted(f"{folder}/{info.path}" for info in files.list_files(files.join(root, folder)))


def kill_at_the_end(root, name):
    """Leave what a run leaves that is killed before it writes its first records: the announcement, and files."""
    journal = Journal(root, name)
    (run,) = journal.runs
    for info in files.list_files(journal.folder):
        files.remove(files.join(journal.folder, info.path))
    Journal(root, name).start(run.params, run.writes, run.version, run.origin)


def test_what_a_killed_run_left_in_another_format_goes(verb):
    call, root, name = verb
    first, then = "jsonl.zst", "jsonl.gz"
    call(format=then)
    expected = outputs(root, name)
    for path in expected:
        files.remove(f"{root}/{path}")
    files.remove_tree(f"{root}/_journal")
    call(format=first)
    left = outputs(root, name)
    kill_at_the_end(root, name)
    summary = call(format=then)
    assert outputs(root, name) == expected
    assert not set(left) & set(expected)
    assert "in another format, removed" in " ".join(summary.notes)
    assert call(format=then).done == 0


def test_finished_files_of_another_format_are_replaced_only_on_demand(verb):
    call, root, name = verb
    call(format="jsonl.zst")
    before = outputs(root, name)
    with pytest.raises(UsageError, match=r"--overwrite"):
        call(format="jsonl")
    assert outputs(root, name) == before
    call(format="jsonl", overwrite=True)
    assert [path.replace(".jsonl", ".jsonl.zst") for path in outputs(root, name)] == before


def test_another_format_is_refused_while_a_run_works(dataset):
    calls, refused = [], []

    @dk.tagger(name="nested", version=1, types={"length": float})
    def nested(text):
        calls.append(text)
        if len(calls) == 1:
            with pytest.raises(UsageError, match="another tag with other options works in") as caught:
                dk.tag(str(dataset), nested, format="jsonl", **HERE)
            refused.append(caught)
        return len(text)

    assert dk.tag(str(dataset), nested, format="jsonl.gz", **HERE).done == 2
    assert refused


def test_files_of_other_tools_stay(verb):
    call, root, _ = verb
    call(format="jsonl")
    files.remove_tree(f"{root}/_journal")
    with pytest.raises(UsageError, match=r"expected"):
        call(format="jsonl.gz")
    with pytest.raises(UsageError, match=r"no \w+ has made"):
        call(format="jsonl.gz", overwrite=True)
