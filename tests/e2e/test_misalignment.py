"""Every way in which attributes can fail to belong to their documents, and every verb that reads them side by side.

Each pair of both must end in the right error, in words that say what was found, where, and what to do, with exit status 1, and without
a file at the place of the shard's output.
"""

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_world import ORDINARY, run_here, store

import dolma_dask as dk
from dolma_dask import errors
from dolma_dask.frames.dataframe import read_bag, read_dataframe
from dolma_dask.rules.thresholds import Thresholds
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.testing.verb_laws import leftovers, tree
from dolma_dask.verbs.dedupe.verb import dedupe
from dolma_dask.verbs.filter.verb import filter
from dolma_dask.verbs.quantiles.verb import quantiles
from dolma_dask.verbs.validate.verb import validate

pytestmark = pytest.mark.e2e

ROWS = 20
SET = "char_length_v1"
KEY = f"{SET}__{SET}__length"
RULE = f"{KEY} >= 10"
SHARD = "x/b"
DOCUMENTS = f"documents/{SHARD}.jsonl.gz"
ATTRIBUTES = f"attributes/{SET}/{SHARD}.jsonl.gz"
ADVICE = f"Re-run: dolma-dask tag ... --only {SHARD}"


def make_dataset(root: Path) -> None:
    for name in ("a", "x/b", "y"):
        lines = [
            json.dumps({"id": f"{name}-{row}", "text": "some words " * (row % 5), "source": "s"}).encode()
            + b"\n"
            for row in range(ROWS)
        ]
        store(root / f"documents/{name}.jsonl.gz", lines)
    dk.tag(str(root), [SET], scheduler="synchronous", progress=False)


def lines_of(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


# ------------------------------------------------------------------------------------------------ what is done to the files


def missing(root: Path) -> None:
    (root / ATTRIBUTES).unlink()


def short(root: Path) -> None:
    store(root / ATTRIBUTES, lines_of(root / ATTRIBUTES)[:-3])


def long(root: Path) -> None:
    lines = lines_of(root / ATTRIBUTES)
    store(root / ATTRIBUTES, [*lines, lines[0]])


def swapped(root: Path) -> None:
    lines = lines_of(root / ATTRIBUTES)
    store(root / ATTRIBUTES, [*lines[:4], lines[5], lines[4], *lines[6:]])


def of_another_shard(root: Path) -> None:
    shutil.copyfile(root / f"attributes/{SET}/a.jsonl.gz", root / ATTRIBUTES)


def truncated(root: Path) -> None:
    path = root / ATTRIBUTES
    path.write_bytes(path.read_bytes()[:-20])


def stale(root: Path) -> None:
    lines = lines_of(root / DOCUMENTS)
    store(root / DOCUMENTS, [*lines[:7], lines[7].replace(b"words", b"wards", 1), *lines[8:]])


def more_documents(root: Path) -> None:
    lines = lines_of(root / DOCUMENTS)
    store(root / DOCUMENTS, [*lines, lines[0].replace(b"x/b-0", b"x/b-20")])


def wrong_source(root: Path) -> None:
    lines = lines_of(root / ATTRIBUTES)
    store(root / ATTRIBUTES, [*lines[:9], lines[9].replace(b'"source":"s"', b'"source":"t"'), *lines[10:]])


def two_files(root: Path) -> None:
    store(root / f"attributes/{SET}/{SHARD}.jsonl.zst", lines_of(root / ATTRIBUTES))


def unreadable_row(root: Path) -> None:
    lines = lines_of(root / ATTRIBUTES)
    store(root / ATTRIBUTES, [*lines[:11], b"{nonsense}\n", *lines[12:]])


@dataclass(frozen=True)
class Case:
    """A misalignment.

    Attributes
    ----------
    make : callable
        Does it to a dataset.
    error : type
        What it is called.
    words : tuple of str
        What must be said.
    kind : str
        What `validate` calls it.
    """

    make: Callable[[Path], None]
    error: type[errors.DataError]
    words: tuple[str, ...]
    kind: str


def difference(
    ours: int, theirs: int, row: int, found: str, overwrite: str = " --overwrite"
) -> tuple[str, ...]:
    where = (
        f"{ATTRIBUTES} has {theirs} rows, {DOCUMENTS} has {ours}; first difference at row {row} ({found}). "
    )
    return (f"{where}{ADVICE}{overwrite} (attribute set {SET})",)


CASES = (
    Case(
        missing,
        errors.MissingAttributesError,
        (f"{ATTRIBUTES} is missing; {DOCUMENTS} needs it. {ADVICE} (attribute set {SET})",),
        "missing_attributes",
    ),
    Case(
        short,
        errors.StaleAttributesError,
        difference(20, 17, 17, "no row, expected id 'x/b-17'"),
        "misaligned",
    ),
    Case(
        long,
        errors.StaleAttributesError,
        difference(20, 21, 20, "id 'x/b-0', expected the end"),
        "misaligned",
    ),
    Case(
        swapped,
        errors.StaleAttributesError,
        difference(20, 20, 4, "id 'x/b-5', expected 'x/b-4'"),
        "misaligned",
    ),
    Case(
        of_another_shard,
        errors.StaleAttributesError,
        difference(20, 20, 0, "id 'a-0', expected 'x/b-0'"),
        "misaligned",
    ),
    Case(truncated, errors.StaleAttributesError, (ATTRIBUTES, "truncated"), "unreadable_file"),
    Case(
        stale,
        errors.StaleAttributesError,
        (
            f"{ATTRIBUTES} is stale: {DOCUMENTS} has the same ids but other text than when `tag` made it",
            f"{ADVICE} (attribute set {SET})",
        ),
        "stale",
    ),
    Case(
        more_documents,
        errors.AlignmentError,
        difference(21, 20, 20, "no row, expected id 'x/b-20'", overwrite=""),
        "misaligned",
    ),
    Case(
        wrong_source,
        errors.StaleAttributesError,
        difference(20, 20, 9, "source 't', expected 's'"),
        "misaligned",
    ),
    Case(
        two_files,
        errors.AlignmentError,
        (f"{DOCUMENTS} has two attribute files", "Remove the one that is not wanted"),
        "two_attribute_files",
    ),
    Case(
        unreadable_row,
        errors.StaleAttributesError,
        (f"{ATTRIBUTES}, row 11, byte ", "invalid json", "Make the attributes again"),
        "bad_attribute_row",
    ),
)


# ------------------------------------------------------------------------------------------------ who reads them


@dataclass(frozen=True)
class Reader:
    """A command that reads documents and attributes side by side.

    Attributes
    ----------
    words : tuple of str
        The command, ``{}`` standing for the world; or the name of a Python function.
    outputs : tuple of str
        What it would write for the shard, below the world: names that may not be there afterwards.
    others : tuple of str
        What it writes for the other shards all the same, unless the files' names alone forbid it.
    """

    words: tuple[str, ...]
    outputs: tuple[str, ...]
    others: tuple[str, ...] = ()

    def run(self, world: Path) -> int:
        """Run it in this process and return its exit status; what it says goes where a command says it."""
        if self.words[0] not in CALLS:
            return run_here([word.replace("{}", str(world)) for word in self.words])
        try:
            CALLS[self.words[0]](f"{world}/v0")
        except errors.DolmaDaskError as error:
            failures = [
                f"FAILED {one.shard}: {one.error}: {one.message}" for one in getattr(error, "failures", ())
            ]
            print("\n".join([f"{type(error).__name__}: {error}", *failures]))
            return error.exit_status
        return 0


HERE = {"scheduler": "synchronous", "progress": False}
CALLS: dict[str, Callable[[str], object]] = {
    "read_dataframe": lambda root: read_dataframe(root, ["id", KEY], [SET]).compute(scheduler="synchronous"),
    "read_dataframe-attributes": lambda root: read_dataframe(root, [KEY], [SET]).compute(
        scheduler="synchronous"
    ),
    "read_bag": lambda root: read_bag(root, ["id", KEY], [SET]).compute(scheduler="synchronous"),
    "quantiles": lambda root: quantiles(root, [KEY], **HERE),
    "filter": lambda root: filter(
        root, Thresholds.from_json({"bounds": {KEY: {"all": {"lower": 1}}}}), **HERE
    ),
    "dedupe": lambda root: dedupe(root, by=KEY, **HERE),
    "dedupe-rank": lambda root: dedupe(root, by="text", keep="highest", rank=KEY, **HERE),
}
"""Readers that are called from Python; the lazy ones are computed."""

READERS = {
    "mix": Reader(
        ("mix", "{}/v0", "--to", "{}/mixed", "--where", RULE),
        (f"mixed/{DOCUMENTS}",),
        ("mixed/documents/a.jsonl.gz", "mixed/documents/y.jsonl.gz"),
    ),
    "ragged": Reader(
        (
            "ragged",
            "{}/v0",
            "{}/tokens",
            "--tokenizer",
            "{}/tokenizer.json",
            "--eos",
            "<|endoftext|>",
            "--where",
            RULE,
        ),
        tuple(f"tokens/v0.00001-of-00003.{ending}" for ending in ("data.npy", "len.npy", "json")),
        ("tokens/v0.00000-of-00003.data.npy", "tokens/v0.00002-of-00003.data.npy"),
    ),
    "convert": Reader(
        ("convert", "{}/v0", "--to", "{}/v0", "--attributes", SET, "--form", "flat", "--rename", "flat"),
        (f"v0/attributes/flat/{SHARD}.jsonl.gz",),
        ("v0/attributes/flat/a.jsonl.gz", "v0/attributes/flat/y.jsonl.gz"),
    ),
    "report": Reader(("report", "{}/v1", "--to", "{}/page.html"), ("page.html", "page.json")),
    "read_dataframe": Reader(("read_dataframe",), ()),
    "read_dataframe-attributes": Reader(("read_dataframe-attributes",), ()),
    "read_bag": Reader(("read_bag",), ()),
    "quantiles": Reader(("quantiles",), ("v0/quantiles",)),
    "filter": Reader(
        ("filter",),
        (f"v0/attributes/quality/{SHARD}.jsonl.gz",),
        ("v0/attributes/quality/a.jsonl.gz", "v0/attributes/quality/y.jsonl.gz"),
    ),
    "dedupe": Reader(("dedupe",), ("v0/attributes/exact",)),
    "dedupe-rank": Reader(("dedupe-rank",), ("v0/attributes/exact",)),
}
"""Each on a world where v0 is tagged, and v1 was mixed from it by a rule while all was well."""

AT_ONCE = ("missing", "two_files")
"""Cases that are found before any shard is read, by the names of files: nothing is written at all."""


@pytest.fixture(scope="module")
def good_world(tmp_path_factory) -> Path:
    world = tmp_path_factory.mktemp("good") / "world"
    make_dataset(world / "v0")
    train_tokenizer(ORDINARY, world / "tokenizer.json", 300)
    return world


@pytest.fixture
def world(good_world, tmp_path, request) -> Path:
    world = Path(shutil.copytree(good_world, tmp_path / "world"))
    reader = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if reader in (None, "report"):  # the others do not look at v1
        dk.mix(str(world / "v0"), to=str(world / "v1"), where=RULE, **HERE)
    return world


@pytest.mark.parametrize("name", READERS)
def test_every_reader_works_on_a_good_world(name, world):
    reader = READERS[name]
    assert reader.run(world) == 0
    assert all((world / path).exists() for path in (*reader.outputs, *reader.others))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)
@pytest.mark.parametrize("name", READERS)
def test_a_misalignment_is_the_right_error(name, case, world, capsys):
    reader = READERS[name]
    case.make(world / "v0")
    before = tree(world)
    assert reader.run(world) == 1
    captured = capsys.readouterr()
    shown = (captured.out + captured.err).replace(f"{world}/v0/", "")
    assert f"{case.error.__name__}: " in shown
    for words in case.words:
        assert words in shown
    assert "Traceback" not in shown
    assert not any((world / path).exists() for path in reader.outputs)
    assert not [path for path in leftovers(world) if "/." in path], (
        "a failed run keeps its work folder, no temporary files"
    )
    if case.make.__name__ in AT_ONCE:
        assert tree(world) == before
    else:
        assert all((world / path).exists() for path in reader.others), "one shard stops no other"
        assert f"FAILED {SHARD}.jsonl.gz: {case.error.__name__}: " in shown or not reader.others
    changed = tree(world)
    assert {path: changed[path] for path in before} == before


@pytest.mark.parametrize("name", READERS)
def test_what_the_message_advises_mends_it(name, world, capsys):
    """The documents were changed: tag makes their attributes again, and then the same command ends well."""
    reader = READERS[name]
    stale(world / "v0")
    assert reader.run(world) == 1
    assert run_here(["tag", f"{world}/v0", "--taggers", SET, "--only", SHARD]) == 0
    if name == "report":  # which compares with what mix has kept
        assert run_here(["mix", f"{world}/v0", "--to", f"{world}/v1", "--where", RULE]) == 0
    assert reader.run(world) == 0
    assert all((world / path).exists() for path in reader.outputs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)
def test_validate_finds_it(case, world):
    """It is a problem of its kind in this file alone, in the same words, and not a failure of the run."""
    case.make(world / "v0")
    summary = validate(f"{world}/v0", **HERE)
    assert summary.exit_status == 1
    assert summary.failed == 0
    about_bytes = (
        {"journal_mismatch"} if case.make not in (missing, stale, more_documents, two_files) else set()
    )
    assert set(summary.found) == {case.kind} | about_bytes
    assert [item.count for item in summary.found.values()] == [1] * len(summary.found)
    assert all(problem.file == ATTRIBUTES for item in summary.found.values() for problem in item.first)
    if case.make is not unreadable_row:
        assert all(words in str(summary) for words in case.words)


def test_validate_finds_nothing_in_a_good_world(world):
    for name in ("v0", "v1"):
        assert validate(f"{world}/{name}", **HERE).found == {}
