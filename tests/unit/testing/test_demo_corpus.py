"""The demo's corpus: large enough, the same every time, and convertible as its manifest says."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dolma_dask.io.files import list_files
from dolma_dask.sources import open_sources
from dolma_dask.testing import corpus, python_texts
from dolma_dask.testing.corpus import Manifest, collect_corpus, read_manifest
from dolma_dask.testing.python_texts import Text

pytestmark = pytest.mark.slow


@pytest.fixture
def manifest(collected: Path) -> Manifest:
    found = read_manifest(collected)
    assert found
    return found


def test_there_is_enough_text(manifest: Manifest) -> None:
    assert 2_500 <= manifest.documents <= 10_000
    assert 5_000_000 <= manifest.text_bytes <= 20_000_000
    assert all(item.documents for item in manifest.sets)


def test_the_manifest_converts_every_set_without_a_bad_record(collected: Path, manifest: Manifest) -> None:
    for item in manifest.sets:
        root = str(collected / "raw" / item.kind)
        ids: list[str] = []
        size = 0
        for source in open_sources(root, list_files(root), item.mapping):
            for block in source.read():
                assert not block.bad
                ids += block.batch.column("id").to_pylist()
                size += sum(len(text.encode()) for text in block.batch.column("text").to_pylist())
        assert (len(ids), size) == (item.documents, item.text_bytes)
        assert len(set(ids)) == len(ids)


def test_a_whole_corpus_is_not_collected_again(
    collected: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("collected again")

    monkeypatch.setattr(corpus, "_write", fail)
    assert collect_corpus(collected) == manifest
    assert read_manifest(collected) == manifest


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect only kinds that need no parsing of modules."""
    licences = [Text("text " * i, {"path": f"a/{i}/LICENCE"}) for i in range(5)]
    kinds = {kind.name: kind for kind in corpus._KINDS}
    few = (replace(kinds["licences"], source=lambda: licences), kinds["topics"])
    monkeypatch.setattr(corpus, "_KINDS", few)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.path: (folder / file.path).read_bytes() for file in list_files(str(folder))}


def test_the_same_installation_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    one, other = collect_corpus(tmp_path / "one"), collect_corpus(tmp_path / "other")
    assert one == other
    assert contents(tmp_path / "one") == contents(tmp_path / "other")
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("damage", ["file", "manifest", "packages", "version"])
def test_an_incomplete_or_older_corpus_is_collected_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    small(monkeypatch)
    before = collect_corpus(tmp_path)
    whole = contents(tmp_path)
    (tmp_path / "raw" / "licences" / "left-over.txt").write_text("x")
    if damage == "file":
        (tmp_path / "raw" / "topics" / "topics.jsonl.zst.tar").unlink()
    elif damage == "manifest":
        (tmp_path / "manifest.json").write_text("{")
    elif damage == "packages":
        monkeypatch.setattr(corpus, "_package_digest", lambda: "other")
    else:
        monkeypatch.setattr(corpus, "VERSION", 99)
    after = collect_corpus(tmp_path)
    assert after.sets == before.sets
    found = contents(tmp_path)
    del whole["manifest.json"], found["manifest.json"]
    assert found == whole


def test_a_failed_collection_leaves_the_older_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    collect_corpus(tmp_path)
    whole = contents(tmp_path)
    monkeypatch.setattr(corpus, "VERSION", 99)
    bad = replace(corpus._KINDS[0], name="bad", write=lambda *_: 1 / 0)
    monkeypatch.setattr(corpus, "_KINDS", (*corpus._KINDS, bad))
    with pytest.raises(ZeroDivisionError):
        collect_corpus(tmp_path)
    assert contents(tmp_path) == whole


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[![x](https://badge.example/v.svg)](http://a.example:80/p)", "[![x](https://example.org/v.svg)](http://example.org/p)"),
        ("see <https://a.example>, and a.example", "see <https://example.org>, and a.example"),
        ("http:// and ://x", "http:// and ://x"),
    ],
)  # fmt: skip
def test_links_lead_to_nobodys_site(text: str, shown: str) -> None:
    assert [item.text for item in python_texts.capped([Text(text, {})], 1_000)] == [shown]


def test_packed_bytes_hold_no_time() -> None:
    assert corpus._gzip(b"x")[4:8] == bytes(4)


def test_docstrings_are_found_where_they_stand(tmp_path: Path) -> None:
    text = "Word " * 100
    path = tmp_path / "module.py"
    path.write_text(
        f'"""{text}"""\n\nclass A:\n    if True:\n        def b(self):\n            """{text}"""\n\n'
        '            async def c():\n                """short"""\n\n'
        f'try:\n    pass\nexcept ValueError:\n    pass\nelse:\n    def d():\n        """{text}"""\n'
    )
    found = list(python_texts._docstrings("p", ("p", "module.py"), path))
    assert [(item.about["module"], item.about["name"], item.about["line"]) for item in found] == [
        ("p.module", "", 1),
        ("p.module", "A.b", 5),
        ("p.module", "d", 16),
    ]
    assert {item.text.strip() for item in found} == {text.strip()}


def test_the_limit_cuts_in_order() -> None:
    texts = [Text("x" * size, {"number": number}) for number, size in enumerate((5, 0, 400_000, 5, 5, 1))]
    assert [item.about["number"] for item in python_texts.capped(texts, 12)] == [0, 3]
