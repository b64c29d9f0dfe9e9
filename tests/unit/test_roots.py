"""The walk of datasets and token folders below a root."""

from dolma_dask.reading.roots import datasets_below, roots_below, token_folders_below


def make(root, *paths):
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")


def test_finds_datasets_and_token_folders_wherever_they_lie(tmp_path):
    make(
        tmp_path,
        "sources/wiki/v0/documents/a.jsonl.gz",
        "sources/wiki/v0/attributes/documents/documents/a.jsonl.gz",
        "sources/wiki/v0/tokens/_journal/ragged/1.jsonl",
        "sources/wiki/v0/tokens/en/a.data.npy",
        "sources/wiki/v0/_work/documents/a.jsonl.gz",
        "sources/wiki/raw/a.jsonl.gz",
        "out/rows/_journal/hdf5/1.jsonl",
        "out/copied/_segments/a.bin.parquet",
        "foreign/a.ds",
        "foreign/v1/documents/b.jsonl",
        "tables/a.parquet",
        "index/segments/000000-0123456789abcdef/documents/x",
        "out/dropped/_journal/dropped/1.jsonl",
    )
    found = roots_below(tmp_path)
    assert found.datasets == ("foreign/v1", "sources/wiki/v0")
    assert found.tokens == ("foreign", "out/copied", "out/rows", "sources/wiki/v0/tokens")
    assert found.dropped == ("out/dropped",)
    assert found.indexes == ("index",)
    assert datasets_below(tmp_path) == [f"{tmp_path}/{path}" for path in found.datasets]
    assert token_folders_below(tmp_path)[0] == f"{tmp_path}/foreign"


def test_a_root_may_be_both(tmp_path):
    make(tmp_path, "documents/a.jsonl", "_journal/ragged/1.jsonl")
    found = roots_below(tmp_path)
    assert found.datasets == found.tokens == ("",)
    assert found.url("") == str(tmp_path)


def test_nothing_is_below_what_is_not_there(tmp_path):
    assert roots_below(tmp_path / "nothing") == roots_below(f"{tmp_path}/nothing")
    assert roots_below(tmp_path / "nothing").datasets == ()
