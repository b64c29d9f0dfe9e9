"""Definition of a dataset: its listing, here and in an object store."""

import pickle
from pathlib import Path

import pytest
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard, datasets_below, matches, open_dataset, shard_info
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.options.groups import as_dataset

PATHS = ("2019-09/a.jsonl.gz", "2019-09/b.json.gz", "B.parquet", "é/c.jsonl.zst", "z.jsonl")


def put(root: str, path: str, data: bytes = b"x") -> None:
    with publish(files.join(root, path)) as out:
        out.write(data)


@pytest.fixture
def dataset(root: str) -> Dataset:
    for path in PATHS:
        put(root, f"documents/{path}", path.encode())
    for path in ("documents/README.md", "documents/.hidden.jsonl", "_journal/tag/1.jsonl", "other/x.jsonl"):
        put(root, path)
    for path in (
        "attributes/b/x.jsonl",
        "attributes/a/x/y.jsonl",
        "attributes/.hidden/x",
        "attributes/README",
    ):
        put(root, path)
    return open_dataset(root)


def test_the_listing(root: str, dataset: Dataset) -> None:
    assert dataset.root == files.normalize(root)
    assert [shard.path for shard in dataset.shards] == sorted(PATHS, key=str.encode)
    assert [shard.bytes for shard in dataset.shards] == [
        len(path.encode()) for path in sorted(PATHS, key=str.encode)
    ]
    assert dataset.attributes == ("a", "b")
    assert dataset.ignored == ()
    assert dataset.source is None
    assert dataset.bytes == sum(len(path.encode()) for path in PATHS)
    assert dataset.url("documents/z.jsonl") == f"{files.normalize(root)}/documents/z.jsonl"
    assert repr(dataset) == f"<Dataset {dataset.root}: 5 shards, 0.0 MB stored, attributes: a, b>"


def test_it_travels(dataset: Dataset) -> None:
    assert pickle.loads(pickle.dumps(dataset)) == dataset
    many = Dataset("s3://b/d", tuple(Shard(f"x/{i:06d}.jsonl.gz", i, f"tag:{i}") for i in range(1000)))
    assert len(pickle.dumps(many)) < 70 * 1000


def test_the_documents_folder_will_do(root: str, dataset: Dataset) -> None:
    assert open_dataset(f"{root}/documents/") == dataset
    assert open_dataset(f"{root}/", source="s").source == "s"


def test_a_version_of_a_source(root: str) -> None:
    put(root, "sources/wiki/v0/documents/a.jsonl")
    found = open_dataset(root, source="wiki", version="v0")
    assert found.root == f"{files.normalize(root)}/sources/wiki/v0"
    assert found.source == "wiki"
    assert open_dataset(f"{root}/sources", source="wiki", version="v0").root == found.root
    with pytest.raises(UsageError, match="`version` was given without `source`; expected both"):
        open_dataset(root, version="v0")
    with pytest.raises(UsageError, match="sources/wiki/v9/documents holds no document files"):
        open_dataset(root, source="wiki", version="v9")


def test_datasets_below_a_root(root: str) -> None:
    for path in ("sources/wiki/v0", "sources/wiki/v1", "web", "sources/raw/dumps/2019/x", "_work/wiki"):
        put(root, f"lake/{path}/documents/a.jsonl")
    put(root, "lake/web/attributes/documents/a.jsonl")
    lake = f"{files.normalize(root)}/lake"
    assert datasets_below(lake) == ["sources/wiki/v0", "sources/wiki/v1", "web"]
    assert datasets_below(f"{lake}/web") == [""]
    assert datasets_below(f"{lake}/nowhere") == []


def test_a_root_of_datasets_is_none_itself(tmp_path: Path) -> None:
    put(str(tmp_path), "sources/wiki/v0/documents/a.jsonl")
    with pytest.raises(UsageError, match=r"1 dataset below .*: sources/wiki/v0\. Give the path of one"):
        open_dataset(str(tmp_path))


def test_no_documents(root: str) -> None:
    put(root, "documents/a.txt")
    with pytest.raises(UsageError) as caught:
        open_dataset(root)
    assert str(caught.value) == (
        f"{files.normalize(root)}/documents holds no document files; expected JSON lines (.jsonl, .json or .ndjson, also with .gz, .zst, "
        ".bz2 or .xz behind it) or .parquet below it. To make a dataset from other files: dolma-dask convert INPUT --to DATASET."
    )
    with pytest.raises(UsageError, match="holds no document files"):
        open_dataset(f"{root}/nowhere")


def test_a_folder_of_documents_is_told_of_its_dataset(root: str, dataset: Dataset) -> None:
    with pytest.raises(UsageError, match=f"It lies inside of the dataset {dataset.root}: give that path"):
        open_dataset(f"{root}/documents/2019-09")
    put(root, "home/documents/corpus/a.jsonl")  # a folder of that name is no sign of a dataset
    with pytest.raises(UsageError, match="dolma-dask convert INPUT"):
        open_dataset(f"{root}/home/documents/corpus")


def test_files_that_nobody_reads_are_refused_unless_they_are_named(root: str, dataset: Dataset) -> None:
    for path in ("_SUCCESS", "x/_metadata", "x/README", ".part.crc", "part.crc"):
        put(root, f"documents/{path}")
    assert open_dataset(root) == replace(open_dataset(root), ignored=())
    for path in ("y/a.csv", "b.csv", "c.tar.gz", "part-0001"):
        put(root, f"documents/{path}", b"12345")
    found = open_dataset(root)
    with pytest.raises(UsageError) as caught:
        as_dataset(found)
    said = str(caught.value)
    assert (
        "documents holds 4 files that nobody would read (.csv: 2 files, 10 B, such as b.csv; .tar.gz: 1 file, 5 B, "
        in said
    )
    assert said.endswith("--skip '*.csv' '*.tar.gz' part-0001.")
    names = ("*.csv", "*.tar.gz", "part-0001")
    for opened in (
        as_dataset(root, skip=names),
        as_dataset(found, skip=names),
        as_dataset(open_dataset(root, skip=names)),
    ):
        assert (opened.shards, opened.ignored, opened.skip) == (found.shards, (), names)
    assert [shard.path for shard in as_dataset(root, skip=(*names, "B.parquet", "2019-09/*")).shards] == [
        "z.jsonl",
        "é/c.jsonl.zst",
    ]


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(str(tmp_path), "d/documents/a.jsonl")
    monkeypatch.chdir(tmp_path)
    assert open_dataset("d").root == str(tmp_path / "d")
    monkeypatch.chdir(tmp_path / "d")
    assert open_dataset("documents").root == str(tmp_path / "d")


def test_attribute_sets_that_are_made_later(root: str, dataset: Dataset) -> None:
    put(root, "attributes/new/x.jsonl")
    assert dataset.attributes == ("a", "b")
    assert dataset.with_current_attributes().attributes == ("a", "b", "new")
    assert dataset.with_current_attributes().shards == dataset.shards


@pytest.mark.parametrize(
    "only, prune, expected",
    [
        ((), None, 5),
        ((), 2, 2),
        (("2019-09",), None, 2),
        (("2019-09/*.jsonl.gz",), None, 1),
        (("*.jsonl", "B"), None, 2),
        (("2019",), 1, 1),
        ((), 99, 5),
    ],
)
def test_selecting(dataset: Dataset, only: tuple[str, ...], prune: int | None, expected: int) -> None:
    kept = dataset.select(only, prune)
    assert len(kept.shards) == expected
    assert kept.attributes == dataset.attributes
    assert [shard for shard in dataset.shards if shard in kept.shards] == list(kept.shards)


def test_selecting_nothing(dataset: Dataset) -> None:
    with pytest.raises(
        UsageError, match=r"no shard of .* matches '2020 x\*'; expected a part of a path .* '2019-09/a"
    ):
        dataset.select(("2020", "x*"))
    for prune in (0, -1):
        with pytest.raises(UsageError, match=rf"prune={prune} leaves no shard; expected 1 or more"):
            dataset.select((), prune)


def test_patterns() -> None:
    assert matches("2019-09/a.jsonl", ["b", "2019-*/a*"])
    assert matches("2019-09/a.jsonl", ["09/a"])
    assert not matches("2019-09/a.jsonl", ["A"])
    assert not matches("2019-09/a.jsonl", [])


def test_a_shard_as_a_file() -> None:
    info = shard_info(Shard("x/a.jsonl", 7, "mtime:1"))
    assert (info.path, info.bytes, info.stamp) == ("documents/x/a.jsonl", 7, "mtime:1")


def test_shares_are_all_of_it_once(dataset: Dataset) -> None:
    shares = [dataset.select(share=f"{number}/3").shards for number in (1, 2, 3)]
    assert [len(share) for share in shares] == [2, 2, 1]
    assert {shard for share in shares for shard in share} == set(dataset.shards)
    assert dataset.select(share="6/6").shards == ()
    assert dataset.select(["2019-09"], prune=1, share="1/9").shards == dataset.shards[:1]


@pytest.mark.parametrize("share", ["0/3", "4/3", "1/0", "3", "a/b", "1/", "-1/3", "1.0/3"])
def test_what_is_no_share_is_refused(dataset: Dataset, share: str) -> None:
    with pytest.raises(UsageError, match="counted from 1"):
        dataset.select(share=share)
