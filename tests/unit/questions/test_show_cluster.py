"""show_cluster: the members of a cluster with their differences, whatever their texts hold."""

import json
import random
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import CorruptFileError, DataError, UsageError
from dolma_dask.text.differences import CONTEXT, MAX_TOKENS, differences

HERE = {"scheduler": "synchronous", "progress": False}
HOSTILE = "<script>alert(1)</script>&<img src=x onerror=alert(2)>'\""
ORIGINAL = " ".join(f"word{number}" for number in range(120))
COPY = ORIGINAL.replace("word60 ", f"{HOSTILE} ").replace("word7 ", "WORD7  ")


def ngrams(text):
    """Return the 5-grams of the words of a text."""
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[first : first + 5]) for first in range(len(words) - 4)}


def write(root, documents):
    """Write documents into two shards."""
    (root / "documents").mkdir(parents=True, exist_ok=True)
    for shard in range(2):
        lines = [json.dumps(one) + "\n" for one in documents[shard::2]]
        (root / f"documents/{shard}.jsonl").write_text("".join(lines))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Write a family of three, another one of whose ids is used by two sources, and a document of no family."""
    root = tmp_path_factory.mktemp("shown") / "v0"
    other = " ".join(f"other{number}" for number in range(50))
    texts = [("a", ORIGINAL), ("b", COPY), ("c", ORIGINAL), ("alone", "nobody is like me at all"), ("x", other), ("y", other)]  # fmt: skip
    documents = [{"id": identity, "source": "s", "text": text} for identity, text in texts]
    write(root, [*documents, {"id": "a", "source": "t", "text": other}])
    dk.dedupe(str(root), how="fuzzy", keep="longest", **HERE)
    dk.dedupe(str(root), **HERE)
    return root


def test_the_survivor_comes_first_and_the_others_with_their_differences(root):
    shown = dk.show_cluster(str(root), "c")
    assert [member.id for member in shown.members] == ["b", "a", "c"]  # the longest survives
    assert shown.size == 3
    survivor, *copies = shown.members
    for member in copies:
        assert {piece.text for piece in member.pieces if piece.kind == "added"} == {"word60 "}
        (removed,) = (piece.text for piece in member.pieces if piece.kind == "removed")
        assert removed == f"{HOSTILE} "
        assert member.similarity == len(ngrams(ORIGINAL) & ngrams(COPY)) / len(
            ngrams(ORIGINAL) | ngrams(COPY)
        )
    assert survivor.similarity == 1


def test_texts_are_escaped_and_marked(root):
    shown = dk.show_cluster(str(root), "b")
    page = shown._repr_html_()
    assert "<script" not in page
    assert "<img" not in page
    assert "<ins>word60 </ins>" in page
    assert f"[-{HOSTILE} -]{{+word60 +}}" in str(shown)
    json.dumps(shown.to_json())


def test_no_more_members_than_requested_are_shown(root):
    shown = dk.show_cluster(str(root), "c", most=2)
    assert [member.id for member in shown.members] == ["b", "a"]
    assert str(shown).endswith("and 1 more; --most sets how many are shown")
    with pytest.raises(UsageError, match="most='2'"):
        dk.show_cluster(str(root), "c", most="2")


def test_an_id_of_several_sources_needs_its_source(root):
    with pytest.raises(UsageError, match=r"in 2 clusters, of documents of s and t; .* --of-source"):
        dk.show_cluster(str(root), "a")
    assert dk.show_cluster(str(root), "a", of_source="t").size == 3


@pytest.mark.parametrize(
    ("identity", "options", "words"),
    [
        ("nobody", {}, "no document with id 'nobody'"),
        ("alone", {}, "'alone' is in no cluster of fuzzy: no other document is similar"),
        ("a", {"name": "fuzy"}, "did you mean 'fuzzy'"),
        ("a", {"name": "exact"}, "'exact' is no attribute set with clusters"),
        ("a", {"most": 0}, "most=0"),
        (17, {}, "id=17; expected a string, .*'17'"),
    ],
)
def test_what_cannot_be_shown_is_said(root, identity, options, words):
    with pytest.raises(UsageError, match=words):
        dk.show_cluster(str(root), identity, **options)


def test_long_records_are_shown_with_the_limit_of_dedupe(tmp_path):
    root, long = tmp_path / "v0", " ".join(f"w{number}" for number in range(9000))
    write(root, [{"id": f"d{n}", "source": "s", "text": f"{long} {n}"} for n in range(2)])
    dk.dedupe(str(root), how="fuzzy", **HERE)
    with pytest.raises(DataError, match="row 0"):
        dk.show_cluster(str(root), "d0", max_record_bytes=1000)
    assert dk.show_cluster(str(root), "d0", max_record_bytes=100_000).size == 2


def test_documents_that_were_written_again_are_not_shown(tmp_path):
    documents = [{"id": f"d{n}", "source": "s", "text": ORIGINAL} for n in range(4)]
    write(tmp_path, documents)
    dk.dedupe(str(tmp_path), how="fuzzy", **HERE)
    write(tmp_path, [{**one, "id": f"new{one['id']}"} for one in documents])
    with pytest.raises(DataError, match=r"stale: documents/0\.jsonl has changed since it was made"):
        dk.show_cluster(str(tmp_path), "d1")


def test_a_table_of_clusters_leads_to_no_other_file(root, tmp_path):
    shutil.copytree(root, tmp_path / "v0")
    secret = tmp_path / "secret.jsonl"
    secret.write_text((tmp_path / "v0/documents/0.jsonl").read_text())
    url = tmp_path / "v0/clusters/fuzzy.parquet"
    table = pq.read_table(url)
    column = table.schema.get_field_index("shard")
    pq.write_table(
        table.set_column(column, "shard", pa.array(["../../secret.jsonl"] * len(table), pa.large_string())),
        url,
    )
    with pytest.raises(DataError, match=r"no document file 'documents/../../secret.jsonl'"):
        dk.show_cluster(str(tmp_path / "v0"), "c")


def test_a_damaged_table_of_clusters_is_said(root, tmp_path):
    shutil.copytree(root, tmp_path / "v0")
    url = tmp_path / "v0/clusters/fuzzy.parquet"
    whole = url.read_bytes()
    url.write_bytes(whole[:99] + bytes(99) + whole[198:])
    with pytest.raises(
        CorruptFileError, match=r"fuzzy.parquet: not the table that dedupe wrote .* run dedupe again"
    ):
        dk.show_cluster(str(tmp_path / "v0"), "c")


def test_it_is_a_command(root, capsys):
    assert cli.main(["show-cluster", str(root), "c", "--most", "1"]) == 0
    assert capsys.readouterr().out.startswith("cluster of 3 documents in fuzzy")


def test_differences_give_both_texts_back():
    draw = random.Random(2)
    words = ["a", "B", "b", "Ω", "日本", "<b>", "\n", "wörd"]
    for _ in range(50):
        one, other = (" ".join(draw.choices(words, k=draw.randrange(12))) for _ in range(2))
        pieces = differences(one, other)
        assert "".join(piece.text for piece in pieces if piece.kind in ("same", "added")) == other
        first = "".join(piece.text for piece in pieces if piece.kind in ("same", "removed"))
        assert "".join(first.split()).casefold() == "".join(one.split()).casefold()


@pytest.mark.slow
def test_long_texts_are_cut_around_their_differences():
    text = " ".join(f"w{n}" for n in range(1000))
    pieces = differences(text, text.replace(" w500 ", " new "))
    assert [piece.kind for piece in pieces] == ["cut", "same", "removed", "added", "same", "cut"]
    assert len(pieces[1].text.split()) == CONTEXT
    assert pieces[2].text == "w500 "
    endless = "x " * (3 * MAX_TOKENS // 2)
    assert differences(endless, endless + "y")[-1].text.endswith("3,000 characters there, 3,001 here ...]")
    assert [piece.kind for piece in differences("同じ日本語の文", "同じ英語の文")] == ["same", "removed", "added", "same"]  # fmt: skip


def test_texts_without_a_difference_say_so():
    text = " ".join(f"w{n}" for n in range(1000))
    (piece,) = differences(text, text.upper())
    assert (piece.kind, piece.text) == ("cut", " [... 1,000 words and marks without a difference ...] ")
    assert [piece.kind for piece in differences("a few words", "A few  words")] == ["same"]
