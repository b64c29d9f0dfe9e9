"""Token files by size and in a random order, as the Dolma toolkit's tokens makes them, and their joining: nothing is lost, limits hold, the seed alone decides."""

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_readers import read_all
from tokenizers import Tokenizer, models

import dolma_dask as dk
from dolma_dask.errors import DolmaDaskError, InterruptedStageError, StageError, UsageError
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.outputs.packed_tokens import TokenJoinStage
from dolma_dask.outputs.ragged import RaggedOutput
from dolma_dask.testing.tokenizer import END_OF_TEXT
from dolma_dask.tokens.toolkit import encode_by_lines, strip

from .conftest import failing, write_lines

HERE: dict[str, Any] = {"progress": False, "scheduler": "synchronous"}
STREAMS = sorted(name for name, files in FORMATS.items() if files.is_stream)
WILD = [
    "one two\n\nthree\n",
    "  \u3000\x1c ",
    "",
    "\n\nnaïve café\r\n\n\n日本語",
    f"ends {END_OF_TEXT}\n",
    f"{END_OF_TEXT} begins",
    END_OF_TEXT,
    "👩\u200d👧 \u200b",
    "word " * 400,
]


@pytest.fixture
def wild(tmp_path: Path) -> Path:
    """Four shards of texts, one of them empty, and ids that need quotes."""
    for shard in range(4):
        texts = [WILD[(row + shard) % len(WILD)] for row in range(0 if shard == 1 else 23)]
        lines = [
            json.dumps(
                {"id": f'{shard}\n"{row}"', "source": "s", "text": text, "metadata": {"n": f"{shard}/{row}"}}
            )
            for row, text in enumerate(texts)
        ]
        write_lines(tmp_path / f"v0/documents/{shard}.jsonl.gz", lines)
    return tmp_path / "v0"


def rows_of(folder: Path) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """Return id, file, line and tokens of each document, in order."""
    found = []
    for table in sorted(folder.glob("*.csv.gz")):
        ids = np.fromfile(str(table).removesuffix(".csv.gz") + ".npy", "<u2")
        with gzip.open(table, "rt", newline="") as lines:
            found += [(*row[2:], tuple(ids[int(row[0]) : int(row[1])].tolist())) for row in csv.reader(lines)]
    return found


def sizes_of(folder: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(folder.glob("*.npy"))]


@pytest.mark.parametrize("more", [{}, {"shuffle": True}])
@pytest.mark.parametrize("max_size", [60, 2000, None])
def test_all_documents_whole_in_files_that_are_not_too_large(
    wild: Path, tmp_path: Path, tokenizer: str, max_size: int | None, more: dict[str, Any]
) -> None:
    if max_size is None and not more:
        pytest.skip("a file per shard")
    options = {"tokenizer": tokenizer, "format": "dolma", **HERE}
    dk.ragged(wild, tmp_path / "a", **options)
    made = dk.ragged(wild, tmp_path / "b", max_size=max_size, **more, **options)
    expected, found = rows_of(tmp_path / "a"), rows_of(tmp_path / "b")
    assert sorted(found) == sorted(expected)
    assert made.counts["tokens"] == sum(len(row[-1]) for row in expected)
    assert (found == expected) == (not more)
    sizes, most = sizes_of(tmp_path / "b"), max(2 * len(row[-1]) for row in expected)
    limit = max_size or sum(sizes)
    assert all(size <= limit or size <= most for size in sizes)
    large = [2 * len(row[-1]) for row in expected if 2 * len(row[-1]) > limit]
    assert Counter(size for size in sizes if size > limit) == Counter(large)
    # two files in a row could not have been one, but for a sixteenth at the end and the documents there
    assert all(one + other > limit * 15 / 16 - most for one, other in pairwise(sizes))
    names = sorted(path.name for path in (tmp_path / "b").iterdir() if path.suffix == ".npy")
    assert names == [f"part-0-{number:05d}.npy" for number in range(len(sizes))]


def facts_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.mark.parametrize("more", [{}, {"shuffle": True}])
@pytest.mark.parametrize("name", STREAMS)
def test_records_beside_files_say_what_those_of_shards_say(
    wild: Path, tmp_path: Path, name: str, more: dict[str, Any]
) -> None:
    """Documents whose text is not what its tokens say are counted file by file."""
    letters = Tokenizer(models.BPE({letter: number for number, letter in enumerate("abdehinorstw ")}, []))
    letters.add_special_tokens([END_OF_TEXT])
    letters.save(str(tmp_path / "letters.json"))
    asked = {"tokenizer": str(tmp_path / "letters.json"), "format": name, "eos": END_OF_TEXT, **HERE}
    dk.ragged(wild, tmp_path / "a", **asked)
    dk.ragged(wild, tmp_path / "b", max_size=300, **more, **asked)
    plain, packed = facts_of(tmp_path / "a"), facts_of(tmp_path / "b")
    assert len(packed) > len(plain)
    for path in (("documents_with_lost_characters",), ("special_tokens", "documents")):
        counts = [[_inside(one, path) for one in facts] for facts in (plain, packed)]
        assert sum(counts[0]) == sum(counts[1]) > 0
        assert {*counts[1]} != {counts[1][0]}, "each file has its own"
    assert all(one["source"] == {"path": "documents", "digests": {}} for one in packed)


def _inside(facts: dict[str, Any], path: tuple[str, ...]) -> int:
    return _inside(facts.get(path[0], {}), path[1:]) if path[1:] else facts.get(path[0], 0)


@pytest.mark.parametrize("name", STREAMS)
def test_the_order_is_that_of_the_seed_in_every_format_and_place(
    name: str, wild: Path, tmp_path: Path, tokenizer: str
) -> None:
    options = {"tokenizer": tokenizer, "shuffle": True, "max_size": 900, "progress": False}
    for folder, more in {
        "a": {"scheduler": "synchronous"},
        "b": {"scheduler": "threads", "workers": 2},
        "c": {"scheduler": "synchronous", "seed": 1},
    }.items():
        dk.ragged(wild, tmp_path / folder, format=name, **options, **more)
    first, same, other = (read_all(tmp_path / folder, name) for folder in "abc")
    assert first == same
    assert first != other
    assert sorted(first) == sorted(other)


def test_a_killed_pass_is_gone_on_with_and_stale_files_go(wild: Path, tmp_path: Path, tokenizer: str) -> None:
    options: dict[str, Any] = {"tokenizer": tokenizer, "format": "dolma", "shuffle": True, **HERE}
    dk.ragged(wild, tmp_path / "a", max_size=300, **options)
    with pytest.raises(UsageError, match="max_size"):
        dk.ragged(wild, tmp_path / "a", max_size=3000, **options)
    dk.ragged(wild, tmp_path / "a", max_size=3000, overwrite=True, **options)
    dk.ragged(wild, tmp_path / "b", max_size=3000, **options)
    names = [sorted(path.name for path in (tmp_path / each).iterdir() if path.is_file()) for each in "ab"]
    assert names[0] == names[1]
    assert dk.ragged(wild, tmp_path / "b", max_size=3000, **options).done == 0


def test_files_that_are_whole_stay_when_the_last_pass_is_gone_on_with(
    wild: Path, tmp_path: Path, tokenizer: str
) -> None:
    options: dict[str, Any] = {"tokenizer": tokenizer, "format": "dolma", "max_size": 300, **HERE}
    with (
        failing(TokenJoinStage, OSError, lambda task: task.unit.name == "part-0-00002.npy"),
        pytest.raises(StageError, match="stopped here"),
    ):
        dk.ragged(wild, tmp_path / "a", **options)
    before = {path: path.stat().st_ino for path in (tmp_path / "a").rglob("*part-0-*")}
    assert len(before) > 20
    dk.ragged(wild, tmp_path / "a", **options)
    assert {path: path.stat().st_ino for path in before} == before
    dk.ragged(wild, tmp_path / "b", **options)
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"format": "numpy", "shuffle": True}, "stream of ids: dolma, megatron, datatrove"),
        ({"format": "dolma", "seed": 3}, "seed=3 without `shuffle`"),
        ({"format": "mds", "max_size": 9}, "stream of ids"),
        ({"format": "megatron", "id_key": "metadata.n"}, "no ids"),
        ({"format": "dolma", "id_key": "metadata.z"}, "metadata.z"),
        ({"format": "dolma", "max_size": 0}, "max_size"),
    ],
)
def test_what_cannot_be_is_refused(
    wild: Path, tmp_path: Path, tokenizer: str, more: dict[str, Any], match: str
) -> None:
    with pytest.raises(DolmaDaskError, match=match):
        dk.ragged(wild, tmp_path / "a", tokenizer=tokenizer, **more, **HERE)


# texts as the toolkit encodes them


@pytest.mark.parametrize("bos", [None, END_OF_TEXT])
@pytest.mark.parametrize("by_lines", [False, True])
def test_documents_are_those_of_a_loop(
    wild: Path, tmp_path: Path, tokenizer: str, bos: str | None, by_lines: bool
) -> None:
    made = dk.ragged(
        wild, tmp_path / "a", tokenizer=tokenizer, format="dolma", compat="dolma-1.2", bos=bos, id_key="metadata.n",
        segment_before_tokenization=by_lines, shuffle=True, **HERE,
    )  # fmt: skip
    library, expected = Tokenizer.from_file(tokenizer), []
    end = library.token_to_id(END_OF_TEXT)
    for shard in (0, 2, 3):
        for row in range(23):
            text = WILD[(row + shard) % len(WILD)].strip()
            parts = re.findall(r"(?:^\n*|\n+)[^\n]*", text) if by_lines else [text]
            ids = [one for part in parts for one in library.encode(part, add_special_tokens=False).ids]
            if text:
                ids = [end, *ids] if bos and ids[0] != end else ids
                ids = [*ids, end] if ids[-1] != end else ids
                expected.append((f"{shard}/{row}", f"documents/{shard}.jsonl.gz", str(row + 1), tuple(ids)))
    assert sorted(rows_of(tmp_path / "a")) == sorted(expected)
    assert made.counts["documents_out"] == len(expected)
    assert made.counts["documents_without_text"] == 69 - len(expected)


@given(st.lists(st.text("a \n\r\u2028é", max_size=12), max_size=8), st.booleans())
def test_pieces_begin_with_line_ends(texts: list[str], has_prefix: bool) -> None:
    import pyarrow as pa

    from dolma_dask.tokens.encoding import Tokens

    def encode(parts: pa.Array) -> Tokens:
        """Give each character an id, and a piece one for its bounds."""
        known = [[0, *map(ord, part)] for part in parts.to_pylist()]
        return Tokens(
            np.array([one for ids in known for one in ids], np.int64), np.array([*map(len, known)], np.int32)
        )

    column = pa.array(["xyz\n", *texts], pa.large_string())[1:]
    found = encode_by_lines(encode, column, has_prefix=has_prefix)
    expected = []
    for text in texts:
        ids: list[int] = []
        for number, part in enumerate(re.findall(r"(?:^\n*|\n+)[^\n]*", text) or [""]):
            space = has_prefix and number > 0
            ids += [0, *map(ord, " " * space + part)][space:]
        expected.append(ids)
    assert [ids.tolist() for ids in np.split(found.ids, np.cumsum(found.lengths))[:-1]] == expected
    assert strip(column).to_pylist() == [text.strip() for text in texts]


# joined


def joined(tmp_path: Path, *sources: str, **more: Any) -> dk.Summary:
    return dk.reshard(tmp_path / "out", sources=sources, **more, **HERE)


@pytest.fixture
def parts(wild: Path, tmp_path: Path, tokenizer: str) -> Path:
    """Token files of four shards, one without documents."""
    dk.ragged(wild, tmp_path / "parts", tokenizer=tokenizer, format="dolma", **HERE)
    return tmp_path / "parts"


@pytest.mark.parametrize("cut", [{"max_size": 2500}, {"max_size": 10**6}, {"shards": 3}, {"shards": 9}, {}])
def test_files_are_taken_as_often_as_rates_say(parts: Path, tmp_path: Path, cut: dict[str, Any]) -> None:
    known = rows_of(parts)
    joined(tmp_path, str(parts), rates=[2.5], **cut)
    found = rows_of(tmp_path / "out")
    times = Counter(found)
    assert times.keys() == set(known)
    of_files = [
        {count for row, count in times.items() if row[1].endswith(f"{shard}.jsonl.gz")} for shard in (0, 2, 3)
    ]
    assert all(len(counts) == 1 for counts in of_files)
    assert sorted(count for counts in of_files for count in counts) in ([2, 2, 3], [2, 3, 3])
    sizes, whole = sizes_of(tmp_path / "out"), max(sizes_of(parts))
    assert all(size <= max(cut.get("max_size", 10**9), whole) for size in sizes)
    assert len(sizes) <= cut.get("shards", 99)
    assert joined(tmp_path, str(parts), rates=[2.5], **cut).done == 0


@pytest.mark.parametrize("more", [{}, {"shuffle": True}])
def test_no_documents_are_a_file_too(
    wild: Path, tmp_path: Path, tokenizer: str, more: dict[str, Any]
) -> None:
    """An empty one that can be read, of which it is not told where its documents are from; and it is joined to another."""
    options = {"tokenizer": tokenizer, "format": "dolma", "only": ["1.jsonl"], **HERE}
    dk.ragged(wild, tmp_path / "b", max_size=100, **more, **options)
    joined(tmp_path, str(tmp_path / "b"))
    for folder in ("b", "out"):
        assert sizes_of(tmp_path / folder) == [0]
        assert rows_of(tmp_path / folder) == []
        (table,) = (tmp_path / folder).glob("*.csv.gz")
        assert gzip.decompress(table.read_bytes()) == b""
        assert table.stat().st_size
    assert [facts["source"] for facts in facts_of(tmp_path / "b")] == [None]


def test_a_part_of_few_files_is_one(parts: Path, tmp_path: Path) -> None:
    joined(tmp_path, str(parts), rates=[0.01])
    assert len(sizes_of(tmp_path / "out")) == 1


def test_tables_are_in_members(parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a long table is never held; what they hold is the same."""
    joined(tmp_path, str(parts))
    monkeypatch.setattr("dolma_dask.verbs.reshard.MEMBER_BYTES", 100)
    dk.reshard(tmp_path / "small", sources=[str(parts)], **HERE)
    assert rows_of(tmp_path / "small") == rows_of(tmp_path / "out")
    data, sizes = (tmp_path / "small/000000.csv.gz").read_bytes(), []
    while data:
        member = zlib.decompressobj(31)
        sizes.append(len(member.decompress(data)))
        data = member.unused_data
    assert {*sizes[:-1]} == {100}
    assert len(sizes) > 2


def test_files_that_are_joined_are_joined_again(parts: Path, tmp_path: Path) -> None:
    many = dk.reshard(tmp_path / "one", sources=[str(parts)], shards=9, **HERE)
    assert "4 files in place of 9 (shards)" in many.notes[1]
    dk.reshard(
        tmp_path / "one", sources=[str(parts)], overwrite=True, **HERE
    )  # fewer files: those before are not missed
    joined(tmp_path, str(tmp_path / "one"), str(parts))
    assert sorted(rows_of(tmp_path / "out")) == sorted(2 * rows_of(parts))


def spoil(path: Path, how: str) -> None:
    rows = gzip.decompress(path.read_bytes())
    if how == "torn":
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "no table":
        path.write_bytes(gzip.compress(b"a,b\r\n"))
    elif how == "row gone":
        path.write_bytes(gzip.compress(b"\n".join(rows.split(b"\n")[2:])))
    elif how == "gap":
        table = [*csv.reader(io.StringIO(rows.decode(), newline=""))]
        table[5][0] = str(int(table[5][0]) + 1)
        text = io.StringIO(newline="")
        csv.writer(text).writerows(table)
        path.write_bytes(gzip.compress(text.getvalue().encode()))
    elif how == "no line":
        path.write_bytes(gzip.compress(rows[: rows.rindex(b",") + 1] + b"\r\n"))
    elif how == "other type":
        ids = path.with_name(path.name.replace(".csv.gz", ".npy"))
        np.fromfile(ids, "<u2").astype("<u4").tofile(ids)


@pytest.mark.parametrize("how", ["torn", "no table", "row gone", "gap", "no line", "other type"])
def test_pairs_that_do_not_belong_together_are_refused(parts: Path, tmp_path: Path, how: str) -> None:
    spoil(sorted(parts.glob("*.csv.gz"))[2], how)
    with pytest.raises(StageError, match=r"0000[23]-of-00004"):
        joined(tmp_path, str(parts), shards=1)
    assert not list((tmp_path / "out").glob("*.npy"))


def test_ids_that_are_cut_fail_alone(parts: Path, tmp_path: Path) -> None:
    """The first file says how many bytes an id has, unless it is not whole."""
    first = min(parts.glob("*.npy"))
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    with pytest.raises(StageError) as caught:
        joined(tmp_path, str(parts), shards=3)
    assert [first.name.removesuffix(".npy") in failure.message for failure in caught.value.failures] == [True]
    assert len(sizes_of(tmp_path / "out")) == 2


def test_files_of_a_number_are_of_about_the_same_size(parts: Path, tmp_path: Path) -> None:
    """Each copy, the largest first, goes to the smallest files, of these to that with fewer copies, of these to the first."""
    joined(tmp_path, str(parts), shards=5, rates=[3])
    sizes = [0] * 5
    for size in sorted(sizes_of(parts), reverse=True):
        for at in sorted(range(5), key=lambda one: (sizes[one], one))[:3]:
            sizes[at] += size
    assert sizes_of(tmp_path / "out") == sizes


def test_sources_that_cannot_be_are_refused(wild: Path, parts: Path, tmp_path: Path, tokenizer: str) -> None:
    for words, match, more in (
        ([str(parts)], "number above 0", {"rates": [0]}),
        ([str(parts)], "below 100,000", {"rates": [1e9]}),
        ([str(parts), f"{parts}/"], "given twice", {}),
        ([str(wild)], "has no .npy", {}),
        ([str(tmp_path)], "lie in one another", {}),
        ([str(parts)], "is taken 5 times", {"rates": [4.5], "shards": 4}),
        ([str(parts)], "a rate for each", {"rates": [1, 2]}),
        ([str(parts)], "expected one of them", {"shards": 4, "max_size": 9}),
        ([], "sources", {}),
    ):
        with pytest.raises(UsageError, match=match):
            joined(tmp_path, *words, **more)
    with (
        failing(RaggedOutput, at=lambda unit: "00002-of" in unit.name, method="open"),
        pytest.raises(InterruptedStageError),
    ):
        dk.ragged(wild, tmp_path / "half", tokenizer=tokenizer, format="dolma", **HERE)
    with pytest.raises(UsageError, match="not finished"):
        joined(tmp_path, str(tmp_path / "half"))
    dk.reshard(tmp_path / "one", sources=[str(parts)], shards=2, **HERE)
    for size in (300, 3000):  # what the second cut has no more is not missed
        cut = {"tokenizer": tokenizer, "format": "dolma", "shuffle": True, "max_size": size}
        dk.ragged(wild, tmp_path / "cut", overwrite=True, **cut, **HERE)
    joined(tmp_path, str(tmp_path / "cut"))
    sources = {tmp_path / "one": "000001", parts: "0002-of-00004", tmp_path / "cut": "part-0-00001"}
    for source, name in sources.items():
        for path in source.glob(f"*{name}*"):
            path.unlink()
        with pytest.raises(UsageError, match=rf"{source} lacks .*{name}"):
            joined(tmp_path, str(source))
