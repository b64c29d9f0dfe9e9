"""Document files under all names that people give to JSON lines, through the verbs."""

import bz2
import gzip
import json
import lzma
import tarfile
from pathlib import Path

import pytest
import zstandard

import dolma_dask as dk

PACK = {
    "a.jsonl.gz": gzip.compress,
    "b.gz": gzip.compress,
    "c.jsonl.bz2": bz2.compress,
    "d.json": bytes,
    "e.jsonl.gzip": gzip.compress,
    "x/f.xz": lzma.compress,
}
WRITTEN = ["a.jsonl.gz", "b.gz", "c.jsonl.gz", "d.json", "e.jsonl.gzip", "x/f.jsonl.gz"]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    for name, pack in PACK.items():
        path = tmp_path / "v0/documents" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pack(b"".join(_line(f"{name}-{i}") for i in range(3))))
    (tmp_path / "v0/documents/_SUCCESS").touch()
    return tmp_path / "v0"


def _line(name: str) -> bytes:
    return json.dumps({"id": name, "text": f"text of {name}", "source": "s"}).encode() + b"\n"


def _below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_json_lines_are_read_whatever_their_file_is_called(
    dataset: Path, tmp_path: Path, tokenizer: str
) -> None:
    root, new = str(dataset), str(tmp_path / "v1")
    assert dk.tag(root, ["char_length_v1"], progress=False).counts["documents_in"] == 18
    assert _below(dataset / "attributes/char_length_v1") == WRITTEN
    assert dk.dedupe(root, how="exact", name="copies", progress=False).counts["documents_in"] == 18
    mixed = dk.mix(root, where="char_length_v1__char_length_v1__length > 5", to=new, progress=False)
    assert mixed.counts["documents_out"] == 18
    assert _below(Path(new, "documents")) == WRITTEN
    tokens = dk.ragged(
        new, str(tmp_path / "arrays"), tokenizer=tokenizer, eos="<|endoftext|>", progress=False
    )
    assert tokens.counts["documents_out"] == 18
    for each in (root, new):
        assert sorted(dk.read_dataframe(each, ["id"])["id"].compute()) == sorted(
            f"{name}-{i}" for name in PACK for i in range(3)
        )
    assert not dk.validate(root, progress=False).problems


@pytest.mark.parametrize(
    "data, advice",
    [
        (b'[{"id": "1"}, {"id": "2"}]', "looks like one array"),
        (b"[\n" + _line("1")[:-1] + b"\n]", "looks like one array"),
        (json.dumps({"id": "1", "text": "x"}, indent=1).encode(), "looks like objects over several lines"),
        (b"\n" * 0 + b"a.txt".ljust(257, b"\0") + b"ustar\n", "is a tar archive"),
    ],
)
def test_other_json_is_named_with_what_makes_documents_of_it(
    tmp_path: Path, data: bytes, advice: str
) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/a.json").write_bytes(data)
    with pytest.raises(dk.errors.DolmaDaskError, match=rf"a\.json, row 0.*{advice}.*dolma-dask convert"):
        dk.read_dataframe(str(tmp_path), ["id"]).compute(scheduler="synchronous")


def test_zstd_with_a_long_window_is_read_with_a_note(tmp_path: Path) -> None:
    """As dumps of Reddit are stored: raw files, members of archives and documents."""
    parameters = zstandard.ZstdCompressionParameters(window_log=31, compression_level=1)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = packer.compress(_line("1") + _line("2")) + packer.flush()
    for path in ("raw/a.jsonl.zst", "v0/documents/a.jsonl.zst"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(data)
    with tarfile.open(tmp_path / "raw/b.jsonl.zst.tar", "w") as archive:
        archive.add(tmp_path / "raw/a.jsonl.zst", "c.jsonl.zst")
    converted = dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v1"), source="s", progress=False)
    tagged = dk.tag(str(tmp_path / "v0"), ["char_length_v1"], progress=False)
    assert (converted.counts["documents_out"], tagged.counts["documents_in"]) == (4, 2)
    for notes in converted.notes, tagged.notes:
        assert any(
            note.startswith("1 zstd file with a long window") and "2.15 GB more memory" in note
            for note in notes
        )


def test_numbers_as_ids_are_text_after_convert(tmp_path: Path) -> None:
    (tmp_path / "v0/documents").mkdir(parents=True)
    (tmp_path / "v0/documents/a.jsonl").write_text('{"id": 17, "text": "x", "source": "s"}\n')
    root, new = str(tmp_path / "v0"), str(tmp_path / "v1")
    advice = r"found a number \(`--ids-as-text` reads whole numbers as text, `dolma-dask convert` makes a dataset with the numbers as text\)"
    with pytest.raises(dk.errors.DolmaDaskError, match=advice):
        dk.read_dataframe(root, ["id"]).compute(scheduler="synchronous")
    with pytest.raises(dk.errors.DolmaDaskError, match=advice):
        dk.tag(root, ["char_length_v1"], progress=False)
    assert "convert" in str(dk.validate(root, progress=False))
    dk.convert(f"{root}/documents", to=new, progress=False)
    assert dk.read_dataframe(new, ["id"])["id"].compute(scheduler="synchronous").tolist() == ["17"]
