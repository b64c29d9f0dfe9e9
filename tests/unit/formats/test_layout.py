"""Names of files and their shards."""

import pytest

from dolma_dask.errors import UsageError
from dolma_dask.formats import layout


@pytest.mark.parametrize(
    "path, suffix, stem, file_format",
    [
        ("a.jsonl.gz", ".jsonl.gz", "a", "jsonl.gz"),
        ("x/a.json.gz", ".json.gz", "x/a", "jsonl.gz"),
        ("a.jsonl.zst", ".jsonl.zst", "a", "jsonl.zst"),
        ("a.json.zst", ".json.zst", "a", "jsonl.zst"),
        ("a.b.jsonl", ".jsonl", "a.b", "jsonl"),
        ("c4-train.00000-of-01024.parquet", ".parquet", "c4-train.00000-of-01024", "parquet"),
        ("a.txt", None, "a.txt", "jsonl"),
        ("README", None, "README", "jsonl"),
        ("a.jsonl.bz2", ".jsonl.bz2", "a", "jsonl.gz"),
        ("x.y/a.gz", ".gz", "x.y/a", "jsonl.gz"),
        ("a.2019.xz", ".xz", "a.2019", "jsonl.gz"),
        ("a.jsonl.gzip", ".jsonl.gzip", "a", "jsonl.gz"),
        ("a.ndjson.zstd", ".ndjson.zstd", "a", "jsonl.zst"),
        ("a.json", ".json", "a", "jsonl"),
        ("a.tar.gz", None, "a.tar.gz", "jsonl.gz"),
        ("a.csv.bz2", None, "a.csv.bz2", "jsonl.gz"),
    ],
)
def test_suffixes(path: str, suffix: str | None, stem: str, file_format: str) -> None:
    assert layout.suffix_of(path) == suffix
    assert layout.stem_of(path) == stem
    assert layout.format_of(path) == file_format


@pytest.mark.parametrize(
    "path, file_format, expected",
    [
        ("x/a.json.gz", None, "x/a.json.gz"),
        ("x/a.json.gz", "jsonl.gz", "x/a.json.gz"),
        ("x/a.json.gz", "parquet", "x/a.parquet"),
        ("x/a.parquet", "jsonl.gz", "x/a.jsonl.gz"),
        ("a.jsonl", "jsonl.zst", "a.jsonl.zst"),
        ("a.json", None, "a.json"),
        ("a.gz", None, "a.gz"),
        ("a.jsonl.bz2", None, "a.jsonl.gz"),
        ("a.xz", "jsonl.gz", "a.jsonl.gz"),
        ("a.txt", "jsonl.gz", "a.txt.jsonl.gz"),
    ],
)
def test_another_format_changes_only_the_suffix(
    path: str, file_format: layout.FileFormat, expected: str
) -> None:
    assert layout.with_format(path, file_format) == expected
    assert layout.attribute_path("x", path, file_format) == f"attributes/x/{expected}"


def test_the_same_file_in_another_format() -> None:
    others = layout.other_formats(["x/a.json"], ["x/a.json", "x/b.json"])
    paths = ("x/a.jsonl.gz", "x/a.gz", "x/a.parquet", "x/a.json", "x/b.json", "a.gz", "x/a")
    assert [path for path in paths if path in others] == ["x/a.jsonl.gz", "x/a.gz", "x/a.parquet"]
    assert "a.txt" not in layout.other_formats(["a.jsonl"])


@pytest.mark.parametrize(
    "path, patterns, is_it",
    [
        ("x/a.csv", ("*.csv",), True),
        ("x/a.csv", ("a.csv",), True),
        ("x/a.csv", ("x/a.csv",), True),
        ("x/a.csv", ("x/*",), True),
        ("x/a.csv", ("x/",), True),
        ("x/y/a.csv", ("y",), True),
        ("x/a.csv", ("a", "y"), False),
        ("x/a.csv", (), False),
    ],
)
def test_files_are_named_by_path_name_folder_or_pattern(
    path: str, patterns: tuple[str, ...], is_it: bool
) -> None:
    assert layout.is_named(path, patterns) is is_it


def test_the_folder_is_kept_always() -> None:
    assert layout.document_path("x/y/f.jsonl.gz") == "documents/x/y/f.jsonl.gz"
    assert layout.attribute_path("e", "x/y/f.jsonl.gz") == "attributes/e/x/y/f.jsonl.gz"


def test_parts_belong_to_their_unit() -> None:
    for path in ("documents/x/a.jsonl.gz", "a.parquet", "a.jsonl", "documents/a.json.zst"):
        part = layout.part_path(path, 3)
        assert part == f"{layout.stem_of(path)}-part-00003{layout.suffix_of(path)}"
        assert layout.unit_of(part) == path
        assert layout.unit_of(path) == path
    assert layout.unit_of("a-part-1.jsonl") == "a-part-1.jsonl"
    assert layout.unit_of("a-part-00001/b.jsonl") == "a-part-00001/b.jsonl"


def test_attributes_may_have_another_format() -> None:
    assert layout.attribute_candidates("x/a.json.gz") == [
        "x/a.json.gz",
        "x/a.jsonl.zst",
        "x/a.jsonl",
        "x/a.parquet",
    ]
    assert layout.attribute_candidates("a.parquet") == ["a.parquet", "a.jsonl.gz", "a.jsonl.zst", "a.jsonl"]


@pytest.mark.parametrize(
    "url, root",
    [
        ("/data/wiki", "/data/wiki"),
        ("/data/wiki/", "/data/wiki"),
        ("/data/wiki/documents", "/data/wiki"),
        ("s3://b/wiki/documents/", "s3://b/wiki"),
        ("/data/mydocuments", "/data/mydocuments"),
    ],
)
def test_a_dataset_or_its_documents_folder(url: str, root: str) -> None:
    assert layout.dataset_root(url) == root


def test_versions_of_a_source() -> None:
    assert layout.version_roots("s3://ai2-llm/pretraining-data/", "wikipedia", "v0") == (
        "s3://ai2-llm/pretraining-data/sources/wikipedia/v0",
        "s3://ai2-llm/pretraining-data/wikipedia/v0",
    )


@pytest.mark.parametrize("name", ["a", "gopher_v2", "2019-09", "é.1", "x--y"])
def test_names_of_sets(name: str) -> None:
    assert layout.check_name(name, "experiment") == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "_x", ".x", "-x", "a b", "a*", "a\n", "a\\b", "~"])
def test_names_that_are_no_folders(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        layout.check_name(name, "experiment")
    assert str(caught.value).startswith(
        f"experiment {name!r} cannot be used as a folder name; expected letters"
    )


def test_two_inputs_for_one_output() -> None:
    layout.check_no_collision(["a.jsonl", "b.jsonl"])
    with pytest.raises(
        UsageError, match=r"^2 output paths would be written by more than one input, first 'a'"
    ):
        layout.check_no_collision(["b", "a", "c", "b", "a", "a"])
