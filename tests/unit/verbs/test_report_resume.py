"""report does nothing while no file has changed: what makes a page anew, what does not, and what a killed run leaves."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import dolma_dask as dk
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Journal
from dolma_dask.pages import content, page, record
from dolma_dask.pipelines.pipeline import run
from dolma_dask.testing.tokenizer import train_tokenizer

from .conftest import TEXTS, document, read_lines, write_as_tagged, write_lines
from .report_pages import LENGTH, ODD, QUIET, drawn

KEEP = {"on_bad_record": "quarantine"}


def mix(world: Path, where: str, **more) -> None:
    sets = {"attributes": ["char_length_v1"]}
    dk.mix(str(world / "v0"), to=str(world / "v1"), where=where, **sets, **ODD, **QUIET, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A dataset with all that a page shows: signals, checks, quantiles, marks, bad records, a new version, tokens."""
    root = tmp_path_factory.mktemp("made")
    write_lines(root / "v0/documents/x/a.jsonl.gz", [*map(document, range(6))])
    write_lines(root / "v0/documents/y/z/b.jsonl.gz", [*map(document, range(6, 10)), "{"])
    v0 = str(root / "v0")
    dk.tag(v0, ["char_length_v1", "whitespace_tokenizer_v1"], **KEEP, **QUIET)
    dk.quantiles(v0, [LENGTH], by="source", attributes=["char_length_v1"], **KEEP, **QUIET)
    mix(root, "length > 3")
    train_tokenizer(TEXTS, root / "tokenizer.json", 300)
    make_tokens(root)
    return root


def make_tokens(world: Path, **more) -> None:
    tokens, tokenizer = str(world / "tokens"), str(world / "tokenizer.json")
    dk.ragged(str(world / "v1"), tokens, tokenizer=tokenizer, **more, **QUIET)


@pytest.fixture
def world(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path / "w", copy_function=shutil.copy2)
    return tmp_path / "w"


def make(world: Path, to: str = "page.html", **more):
    asked = {"tokens": [str(world / "tokens")], **QUIET, **more}
    return dk.report(str(world / "v1"), to=str(world / to), **asked)


def files_of(world: Path) -> dict[str, tuple[int, bytes]]:
    found = (path for path in sorted(world.rglob("*")) if path.is_file())
    return {
        path.relative_to(world).as_posix(): (path.stat().st_mtime_ns, path.read_bytes()) for path in found
    }


def pages(world: Path, name: str = "page") -> tuple[bytes, bytes]:
    return (world / f"{name}.html").read_bytes(), (world / f"{name}.json").read_bytes()


def test_the_same_command_writes_nothing_and_says_so(world, plain, monkeypatch):
    first = make(world)
    assert (first.done, first.skipped) == (2, 0)
    before = files_of(world)
    monkeypatch.setattr(content, "fold", None)  # no document is opened, nothing is started
    monkeypatch.setattr(page, "render", None)
    again = make(world)
    assert files_of(world) == before
    assert (again.done, again.skipped, again.planned) == (0, 2, ())
    assert (again.counts, again.notes, again.target) == (first.counts, first.notes, first.target)
    assert "0 done, 2 done before" in str(again)


@pytest.mark.slow
def test_drawing_and_clusters_are_not_even_loaded(world, plain):
    make(world)
    script = (
        "import sys, dolma_dask as dk\n"
        f"summary = dk.report({str(world / 'v1')!r}, to={str(world / 'page.html')!r}, tokens={str(world / 'tokens')!r})\n"
        "assert summary.done == 0, summary\n"
        "assert not {'bokeh', 'jinja2', 'distributed', 'dask', 'dolma_dask.pages.content', 'dolma_dask.reading'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def rewrite(path: Path, old: str, new: str) -> None:
    write_lines(path, [line.replace(old, new) for line in read_lines(path)])


def change_document(world):
    rewrite(world / "v0/documents/x/a.jsonl.gz", "one two", "two one")
    shutil.rmtree(world / "v0/attributes/whitespace_tokenizer_v1")
    dk.tag(str(world / "v0"), ["char_length_v1"], **KEEP, **QUIET)


def change_quantiles(world):
    path = world / "v0/quantiles/quantiles.json"
    path.write_text(re.sub(r'"n": \d', '"n": 7', path.read_text()))


def change_quarantine(world):
    (path,) = (world / "v1/_quarantine/mix").rglob("*.jsonl")
    path.write_text(path.read_text().replace("invalid_json", "invalid_utf8"))


def change_page(world):
    path = world / "page.html"
    path.write_bytes(path.read_bytes().replace(b"dataset", b"DATASET"))


def run_later(world):
    folder = world / "v1/_journal/mix"
    run = next(line for path in folder.iterdir() for line in read_lines(path) if line.startswith('{"kind"'))
    later = {**json.loads(run), "run": "z", "started": 4e9}
    write_lines(folder / "z.jsonl", [json.dumps(later)])


def retag(world: Path, old: str, new: str) -> None:
    name = "attributes/char_length_v1/x/a.jsonl.gz"
    lines = [line.replace(old, new) for line in read_lines(world / "v0" / name)]
    write_as_tagged(world / "v0", name, lines)


CHANGES = {
    "a run that made nothing": run_later,
    "a document": change_document,
    "a file of the rule": lambda world: retag(world, '"attributes"', '  "attributes"'),
    "a file of another set": lambda world: rewrite(
        world / "v0/attributes/whitespace_tokenizer_v1/x/a.jsonl.gz", "4.0", "5.0"
    ),
    "a set that is gone": lambda world: shutil.rmtree(world / "v0/attributes/whitespace_tokenizer_v1"),
    "another set": lambda world: dk.tag(str(world / "v0"), ["gopher_v2"], **KEEP, **QUIET),
    "another rule": lambda world: mix(world, "length > 13", overwrite=True),
    "checks": lambda world: dk.validate(str(world / "v0"), **QUIET),
    "marks": lambda world: dk.dedupe(str(world / "v1"), **QUIET),
    "quantiles": change_quantiles,
    "quarantine": change_quarantine,
    "tokens": lambda world: make_tokens(world, overwrite=True),
    "tokens that are gone": lambda world: next((world / "tokens").glob("*.data.npy")).unlink(),
    "a new version that was touched": lambda world: rewrite(
        world / "v1/documents/x/a.jsonl.gz", '"id"', '  "id"'
    ),
    "the page": change_page,
    "no page": lambda world: (world / "page.html").unlink(),
    "no JSON": lambda world: (world / "page.json").unlink(),
    "another JSON": lambda world: (world / "page.json").write_text('{"format":"dolma_dask.report"'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_a_page_shows_makes_it_anew(change, world, plain):
    make(world)
    CHANGES[change](world)
    planned = make(world, dry_run=True)
    assert planned.planned == ("x/a.jsonl.gz", "y/z/b.jsonl.gz")
    assert planned.skipped == 0
    assert make(world).done == 2
    make(world, "fresh.html")
    assert pages(world) == pages(world, "fresh")
    before = files_of(world)
    assert make(world).done == 0
    assert make(world, dry_run=True).planned == ()
    assert files_of(world) == before


OPTIONS = [
    {"title": "Mine"},
    {"examples": 1},
    {"tokens": ()},
    {"only": ["x/"]},
    {"prune": 1},
    {"source": "other"},
    {"overwrite": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_other_options_make_it_anew(options, world, plain):
    make(world)
    assert make(world, **options).done > 0
    make(world, "fresh.html", **options)
    assert pages(world) == pages(world, "fresh")


def test_some_shards_of_an_open_dataset_make_it_anew(world, plain):
    make(world)
    some = dk.open_dataset(str(world / "v1")).select(["x/"])
    assert dk.report(some, to=str(world / "page.html"), tokens=[str(world / "tokens")], **QUIET).done == 1


def test_another_version_of_the_stage_makes_it_anew(world, plain, monkeypatch):
    make(world)
    monkeypatch.setattr(record, "VERSION", record.VERSION + 1)
    assert make(world).done == 2


def test_a_moved_page_is_known_again(world, tmp_path, plain):
    make(world)
    world.rename(tmp_path / "moved")
    before = files_of(tmp_path / "moved")
    assert make(tmp_path / "moved").done == 0
    assert files_of(tmp_path / "moved") == before


def test_a_copy_with_other_time_stamps_makes_its_page_again(world, tmp_path, plain):
    make(world)
    copy = tmp_path / "copy"
    shutil.copytree(world, copy, copy_function=shutil.copyfile)
    content = pages(copy)
    assert make(copy).done == 2
    assert pages(copy) == content
    assert make(copy).done == 0


def test_a_store_without_time_stamps_cannot_tell(monkeypatch):
    stamps = ["mtime:1", ""]
    monkeypatch.setattr(record.files, "list_files", lambda root: [FileInfo("a", 1, one) for one in stamps])
    assert record.page_key({}, ["v0"]) == ""
    stamps.pop()
    assert record.page_key({}, ["v0"])


def test_pages_and_other_files_inside_of_a_dataset_make_no_page_anew(world, plain):
    names = ("v1/one.html", "v1/pages/two.html")
    for name in names:
        make(world, name)
    (world / "v1/checks.json").write_text("{}")
    assert [make(world, name).done for name in names] == [0, 0]


def test_what_is_left_out_is_said_again_until_it_changes(world, plain):
    path = world / "v0/attributes/whitespace_tokenizer_v1/y/z/b.jsonl.gz"
    whole = path.read_bytes()
    write_lines(path, read_lines(path)[:-1])
    notes = make(world).notes
    assert any("whitespace_tokenizer_v1 is left out" in note for note in notes)
    again = make(world)
    assert (again.done, again.notes) == (0, notes)
    path.write_bytes(whole)
    assert make(world).done == 2


def test_a_disagreement_is_said_again(world, plain):
    retag(world, "13.0", "1.0")
    notes = make(world).notes
    assert any("run mix again" in note for note in notes)
    assert make(world).notes == notes


@pytest.mark.parametrize("moment", ["before the JSON", "before the page", "before the journal"])
def test_a_killed_run_is_done_again(moment, world, plain, monkeypatch):
    make(world)
    mix(world, "length > 13", overwrite=True)
    publish = record.publish

    def killed(*args):
        raise KeyboardInterrupt

    def publish_some(url):
        suffix = {"before the JSON": ".json", "before the page": ".html"}.get(moment, "none")
        return killed() if url.endswith(suffix) else publish(url)

    with monkeypatch.context() as patch:
        patch.setattr(record, "publish", publish_some)
        if moment == "before the journal":
            patch.setattr(record.PageFiles, "remember", killed)
        with pytest.raises(KeyboardInterrupt):
            make(world)
    make(world, "fresh.html")
    assert make(world).done == 2
    assert pages(world) == pages(world, "fresh")
    assert make(world).done == 0


def test_a_dataset_without_room_for_a_journal_has_a_page_too(world, plain):
    (world / "v1/_journal/report").write_text("no folder")
    for _ in range(2):
        summary = make(world)
        assert summary.done == 2
        assert any("cannot be recorded in" in note for note in summary.notes)


def test_two_pages_of_a_dataset_are_known_by_their_places(world, plain):
    make(world, "one.html")
    make(world, "two.html", title="Two")
    assert make(world, "one.html").done == make(world, "two.html", title="Two").done == 0
    records = Journal(str(world / "v1"), "report").records
    assert sorted(records) == ["../one.html", "../two.html"]


def test_a_page_does_not_tell_of_itself_and_status_tells_of_it(world, plain):
    make(world)
    make(world, "other.html")
    assert "report" not in {row["verb"] for row in json.loads((world / "other.json").read_text())["stages"]}
    assert pages(world) == pages(world, "other")
    row, _ = (row for row in dk.status(str(world / "v1")).rows if row.verb == "report")
    assert (row.writes, row.done, row.left, row.changed, row.is_open) == ("../page.html", 1, 0, 0, False)


def row_of(world):
    (row,) = (row for row in dk.status(str(world / "v1")).rows if row.verb == "report")
    return row.done, row.left, row.changed, row.bytes


def test_status_knows_the_state_of_a_page(world, plain):
    make(world)
    size = sum(map(len, pages(world)))
    assert row_of(world) == (1, 0, 0, size)
    mix(world, "length > 5", overwrite=True)
    assert row_of(world) == (0, 0, 1, size), "the page is of the version before"
    found = dk.status(str(world / "v1"))
    assert found.exit_status == 1
    assert any("../page.html: the page is older than what it shows" in note for note in found.notes)
    make(world)
    size = sum(map(len, pages(world)))
    assert row_of(world) == (1, 0, 0, size)
    (world / "page.html").write_text("edited")
    assert row_of(world)[:3] == (0, 0, 1)
    (world / "page.html").unlink()
    assert row_of(world)[:3] == (0, 0, 0)
    gone = dk.status(str(world / "v1"))
    assert gone.exit_status == 0, "pages are carried elsewhere"
    assert any("the page is not there any more" in note for note in gone.notes)


def test_a_pipeline_finds_its_page_done(world, plain, monkeypatch):
    monkeypatch.chdir(world)
    (world / "p.yaml").write_text(
        "stages:\n  - dedupe: {dataset: v0, on_bad_record: quarantine}\n  - mix: {dataset: v0, to: v2, where: exact is None, "
        "on_bad_record: quarantine, max_bad_fraction: 0.5, max_size: 100}\n"
        "report: {dataset: v2, to: out/page.html}\n"
    )

    def states(**more):
        return {stage.name: stage.state for stage in run("p.yaml", **QUIET, **more).stages}

    assert states(dry_run=True)["report"] == "waits"
    assert states()["report"] == "done"
    assert set(states().values()) == {"done before"}
    assert set(states(dry_run=True).values()) == {"nothing to do"}
    (world / "out/page.html").unlink()
    assert states(dry_run=True) == {"dedupe": "nothing to do", "mix": "nothing to do", "report": "would run"}
    assert states() == {"dedupe": "done before", "mix": "done before", "report": "done"}


GOLDEN = {20: "3a392afe6a8744eaa0a3f6855dbac62f"}
"""Digest of a page without plots and of its JSON, by `VERSION`: what a page says and looks like changes no more unnoticed than other outputs."""


def test_a_page_changes_only_with_its_version(world, monkeypatch):
    shown = []
    with monkeypatch.context() as patch:
        patch.setattr(page, "render", lambda data: shown.append(data) or drawn(data))
        make(world, tokens=())
    stages = [replace(row, seconds=1.0, cpu_seconds=1.0, bytes_out=1) for row in shown[0].stages]
    steady = replace(shown[0], created="", version="", stages=stages)
    monkeypatch.setattr(page.interactive, "library", list)  # Bokeh has versions of its own
    monkeypatch.setattr(page.interactive, "figure_items", lambda signals: [{} for _ in signals])
    digest = hashlib.sha256(page.write_json(steady) + page.render(steady).encode()).hexdigest()[:32]
    assert GOLDEN.get(record.VERSION) == digest, (
        "a page tells or looks otherwise than before: raise VERSION in pages/record.py, and write into GOLDEN "
        f"its new number and {digest!r}"
    )
