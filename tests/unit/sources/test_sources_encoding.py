"""Encodings: what is UTF-8 stays so, what is not is decoded as it was named or found, and the documents say so."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.sources.encoding import guess, known_encoding

RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю."
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"


def line(number: int, text: str) -> str:
    return json.dumps({"id": str(number), "text": text, "source": "s"}, ensure_ascii=False) + "\n"


FILES = {  # name: bytes, text, encoding found
    "ascii.txt": (b"plain", "plain", None),
    "latin.txt": ("Björn and Åsa fixed it\r\n".encode("latin-1"), "Björn and Åsa fixed it\r\n", "cp1252"),
    "both.txt": (
        "names: Bjö\n".encode() + "and: café".encode("latin-1"),
        "names: Bjö\nand: café",
        "cp1252",
    ),
    "mark.txt": (b"\xef\xbb\xbfBj\xc3\xb6rn", "Björn", None),
    "wide.txt": ("Björn".encode("utf-16"), "Björn", "utf-16"),
    "wide32.txt": ("Björn".encode("utf-32"), "Björn", "utf-32"),
    "russian.txt": (RUSSIAN.encode("koi8-r"), RUSSIAN, "koi8-r"),
    "japanese.txt": (JAPANESE.encode("cp932"), JAPANESE, "cp932"),
    "lines.jsonl": (line(0, "Bjö").encode("latin-1"), "Bjö", "cp1252"),
    "lines16.jsonl": (line(1, "Bjö").encode("utf-16"), "Bjö", "utf-16"),
    "lines16le.jsonl": (line(2, "Bjö").encode("utf-16-le"), "Bjö", "utf-16-le"),
    "linesmark.jsonl": (b"\xef\xbb\xbf" + line(3, "Bjö").encode(), "Bjö", None),
}


def written(folder: Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(FILES[name][0])
    return str(folder)


def documents(root: Path) -> list[dict[str, Any]]:
    return [
        json.loads(row)
        for path in sorted((root / "documents").iterdir())
        for row in gzip.decompress(path.read_bytes()).splitlines()
    ]


def test_auto_finds_the_encoding_of_each_file(tmp_path):
    raw = written(tmp_path / "raw", *FILES)
    summary = dk.convert(raw, to=str(tmp_path / "v0"), source="s", encoding="auto", progress=False)
    found = [(row["text"], row.get("metadata", {}).get("encoding")) for row in documents(tmp_path / "v0")]
    assert sorted(found, key=str) == sorted(
        ((text, encoding) for _, text, encoding in FILES.values()), key=str
    )
    assert any(note.startswith("9 files not in UTF-8: cp1252 3, ") for note in summary.notes)


@pytest.mark.parametrize(
    "name, advice",
    [
        ("latin.txt", "--encoding auto"),
        ("wide.txt", "--encoding utf-16"),
        ("lines.jsonl", "--encoding auto"),
        ("lines16.jsonl", "mark of UTF-16"),
    ],
)
def test_utf_8_is_expected_and_the_error_says_what_to_do(tmp_path, name, advice):
    raw = written(tmp_path / "raw", name)
    with pytest.raises(StageError) as caught:
        dk.convert(raw, to=str(tmp_path / "v0"), source="s", progress=False)
    assert advice in caught.value.failures[0].message
    dk.convert(raw, to=str(tmp_path / "v0"), source="s", encoding="auto", progress=False)


def test_marks_of_utf_8_are_no_errors(tmp_path):
    raw = written(tmp_path / "raw", "mark.txt", "linesmark.jsonl")
    dk.convert(raw, to=str(tmp_path / "v0"), source="s", progress=False)
    assert [row["text"] for row in documents(tmp_path / "v0")] == ["Bjö", "Björn"]


def test_a_line_that_is_not_in_the_named_encoding_is_a_bad_record(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        line(0, "x").encode() + b'{"id":"1","text":"\x81"}\n' + line(2, "é").encode("cp1252")
    )
    summary = dk.convert(
        str(tmp_path / "a.jsonl"),
        to=str(tmp_path / "v0"),
        encoding="windows-1252",
        on_bad_record="quarantine",
        max_bad_fraction=0.5,
        progress=False,
    )
    assert summary.counts["bad_records"] == 1
    kept = json.loads((tmp_path / "v0/_quarantine/convert/a.jsonl.gz.jsonl").read_text())
    assert (kept["row"], kept["reason"]) == (1, "wrong_encoding")
    assert "0x81 at byte 18" in kept["expected"]


def test_names_of_encodings():
    assert known_encoding("UTF8") is known_encoding("utf-8-sig") is known_encoding(None) is None
    assert known_encoding("latin-1") == known_encoding("ISO-8859-1") == "iso8859-1"
    for wrong in ("latin-99", "rot13", "base64", ""):
        with pytest.raises(UsageError, match="is not known"):
            known_encoding(wrong)


def test_a_few_letters_among_ascii_are_western():
    assert guess("Added by Marc Léger".encode("latin-1")) == "cp1252"
    assert guess("pam_handlers: fix from Dag-Erling Smørgrav".encode("latin-1")) == "cp1252"


def test_another_encoding_asks_before_it_replaces(tmp_path):
    raw = written(tmp_path / "raw", "both.txt", "ascii.txt")
    to = str(tmp_path / "v0")
    dk.convert(raw, to=to, source="s", encoding="latin-1", progress=False)
    assert dk.convert(raw, to=to, source="s", encoding="ISO-8859-1", progress=False).done == 0
    with pytest.raises(UsageError, match="with other options"):
        dk.convert(raw, to=to, source="s", encoding="auto", progress=False)
    dk.convert(raw, to=to, source="s", encoding="auto", overwrite=True, progress=False)
    assert FILES["both.txt"][1] in [row["text"] for row in documents(tmp_path / "v0")]


def test_half_of_a_surrogate_pair_is_a_bad_record(tmp_path):
    """UTF-7 can spell one; UTF-8 cannot."""
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.txt").write_bytes(b"+2AA-")
    (raw / "b.txt").write_bytes(b"Bj+APY-rn")
    options = {"source": "s", "progress": False, "encoding": "utf-7"}
    dk.convert(str(raw), to=str(tmp_path / "v0"), on_bad_record="quarantine", max_bad_fraction=0.5, **options)
    assert [row["text"] for row in documents(tmp_path / "v0")] == ["Björn"]
    (raw / "c.csv").write_bytes(b"text\n+2AA-\n")
    with pytest.raises(StageError, match=r"c\.csv: not all of it is utf-7 \(surrogates not allowed\)"):
        dk.convert(str(raw / "c.csv"), to=str(tmp_path / "v1"), **options)
