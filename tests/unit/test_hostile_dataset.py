"""A dataset from elsewhere: nothing outside of its root is replaced or removed, whatever its journals, links and listings say."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

import dolma_dask as dk
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.exchange.flag_rows import StagedShard, read_staged
from dolma_dask.io import files
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record

QUIET = {"scheduler": "synchronous", "progress": False}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "lake/v0"
    (root / "documents").mkdir(parents=True)
    lines = (json.dumps({"id": f"d{n}", "text": f"text {n % 3}", "source": "s"}) for n in range(6))
    (root / "documents/a.jsonl").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder outside of the dataset, with names that a run would replace or clear away."""
    folder = tmp_path / "home"
    for name in ("a.jsonl", "a.jsonl.jsonl", "notes/todo.txt", "empty.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("" if name.startswith("empty") else f"precious {name}")
    return folder


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "path",
    ["../x", "a/../../x", "/etc/x", "s3://other/x", "..", "%2e%2e/x", "a/%2E./x", "..%2fx", "a\\..\\..\\x"],
)
def test_no_path_leads_out_of_its_root(path: str) -> None:
    with pytest.raises(CorruptFileError, match="leads out of /data"):
        files.join("/data", path)


@pytest.mark.parametrize("path", ["a/b", "..a", "a..b/c", "50%25", "a b", "x%2fy", "...", ""])
def test_odd_names_stay_names(path: str) -> None:
    assert files.join("/data/", path) == f"/data/{path}".rstrip("/")


@pytest.mark.parametrize(
    "link",
    ["_journal/tag", "_quarantine/tag", "_work/attributes+char_length_v1/.leases", "_work", "attributes"],
)
def test_tag_changes_nothing_behind_links(root: Path, precious: Path, link: str) -> None:
    before = content(precious)
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(precious)
    if link == "attributes":  # the journal of another copy claims what is there
        (precious / "char_length_v1").mkdir()
        (precious / "a.jsonl").rename(precious / "char_length_v1/a.jsonl")
        before = content(precious)
        run = {"kind": "run", "run": "1", "verb": "tag", "params": {}, "started": 1.0, "finished": 1.0}
        (root / "_journal/tag").mkdir(parents=True)
        (root / "_journal/tag/1.jsonl").write_text(
            json.dumps({**run, "writes": ["attributes/"]}, separators=(",", ":")) + "\n"
        )
    with pytest.raises(UsageError, match="lies behind a link"):
        dk.tag(str(root), ["char_length_v1"], on_bad_record="quarantine", **QUIET)
    assert content(precious) == before


@pytest.mark.parametrize("link", ["_work/dedupe-copies", "_journal/dedupe"])
def test_jobs_clear_nothing_away_behind_links(root: Path, precious: Path, link: str) -> None:
    before = content(precious)
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(precious)
    with pytest.raises(UsageError, match="lies behind a link"):
        dk.dedupe(str(root), name="copies", **QUIET)
    assert content(precious) == before


def test_a_link_among_the_leftovers_of_a_job_is_removed_alone(root: Path, precious: Path) -> None:
    before = content(precious)
    (root / "_work/dedupe-copies").mkdir(parents=True)
    (root / "_work/dedupe-copies/0123").symlink_to(precious)
    dk.dedupe(str(root), name="copies", **QUIET)
    assert content(precious) == before
    assert not (root / "_work").exists()


def test_a_set_on_another_disk_is_filled_and_replaced_on_request(root: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (root / "attributes").symlink_to(tmp_path / "scratch")
    assert dk.tag(str(root), ["char_length_v1"], **QUIET).done == 1
    assert dk.tag(str(root), ["char_length_v1"], **QUIET).skipped == 1
    (root / "documents/a.jsonl").write_text('{"id": "1", "text": "another", "source": "s"}\n')
    with pytest.raises(UsageError, match="--overwrite replaces them there"):
        dk.tag(str(root), ["char_length_v1"], **QUIET)
    assert dk.tag(str(root), ["char_length_v1"], overwrite=True, **QUIET).done == 1
    assert (tmp_path / "scratch/char_length_v1/a.jsonl").is_file()


def test_staging_manifests_name_no_file_outside_of_their_folder(tmp_path: Path) -> None:
    precious = tmp_path / "precious.arrow"
    precious.write_text("precious")
    staging = FileRecord("../../precious.arrow", 8, "0" * 32)
    staged = StagedShard(0, Record("documents/a.jsonl", "a.jsonl", "key"), staging)
    with pytest.raises(CorruptFileError, match="leads out of"):
        next(read_staged(str(tmp_path / "_work/dedupe-copies"), staged))
    assert precious.read_text() == "precious"


def test_kinds_that_are_none_are_looked_up_in_the_file(root: Path) -> None:
    dk.tag(str(root), ["char_length_v1"], **QUIET)
    (segment,) = (root / "_journal/tag").glob("*.jsonl")
    lines = [json.loads(line) for line in segment.read_text().splitlines()]
    for line in (line for line in lines if "info" in line):
        line["info"]["kinds"] = [[]]
    segment.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    assert "char_length_v1" in dk.validate(str(root), **QUIET).scope["attributes"]
    frame = dk.read_dataframe(str(root), ["id"], attributes=["char_length_v1"])
    assert len(frame.compute(scheduler="sync")) == 6


@pytest.mark.parametrize("paths", [[], ["quantiles/quantiles.json"] * 2, ["a\x00b"]])
def test_records_of_odd_inputs_are_survived(root: Path, paths: list[str]) -> None:
    dk.tag(str(root), ["char_length_v1"], **QUIET)
    dk.quantiles(str(root), ["length"], level="regular", **QUIET)
    for segment in (root / "_journal/quantiles").glob("*.jsonl"):
        lines = [json.loads(line) for line in segment.read_text().splitlines()]
        for line in (line for line in lines if "inputs" in line):
            line["inputs"] = [{**line["inputs"][0], "path": path} for path in paths]
        segment.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    thresholds = str(root / "quantiles/quantiles.regular.json")
    with suppress(UsageError):  # they may have been made of other quantiles
        dk.mix(str(root), to=str(root.parent / "v1"), thresholds=thresholds, dry_run=True, **QUIET)
    assert "quantiles" in str(dk.status(str(root)))
    assert dk.quantiles(str(root), ["length"], level="regular", **QUIET).exit_status == 0
