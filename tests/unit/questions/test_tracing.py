"""trace, find and explain: from rows of token files to documents and back, whatever the format, the ids and the place."""

import gzip
import json
import random
import shutil
from collections import Counter

import h5py
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import InterruptedStageError, UsageError
from dolma_dask.questions.tracing import index as indexing
from dolma_dask.testing.tokenizer import train_tokenizer

HERE = {"scheduler": "synchronous", "progress": False}
ODD = ["", "a b", "\"quoted'", "naïve/\U0001f600\n", "x" * 5000, "it's", "null", "../x", "1"]
WORDS = [
    "window",
    "harbour",
    "curious",
    "copper",
    "winter",
    "machine",
    "garden",
    "village",
    "measure",
    "promise",
    "seldom",
    "reading",
]
TOKEN_FORMATS = ("numpy", "parquet", "dolma", "megatron", "datatrove", "mds")


def documents(name, rows, draw):
    """Return documents of a shard: odd ids, an id twice, texts that are empty, short and long."""
    for row in range(rows):
        text = " ".join(draw.choices(WORDS, k=draw.choice((0, 3, 40, 400))))
        id = ODD[row] if name == "a" and row < len(ODD) else f"{name}-{row}"
        yield {"id": "twice" if row == 20 else id, "text": text, "source": draw.choice(("web", "wïki"))}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of indexes that no other test has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    indexing._folder.cache_clear()
    yield
    indexing._folder.cache_clear()


def make_corpus(folder):
    """Make a dataset in all formats, a mix with a list of what it drops, clusters, and token files of each format and order."""
    draw = random.Random(5)
    raw, v0 = folder / "raw", folder / "corpus/v0"
    (v0 / "documents/sub").mkdir(parents=True)
    raw.mkdir()
    lines = [json.dumps(one) for one in documents("a", 60, draw)]
    (raw / "a.jsonl").write_text(
        "\n".join([*lines, '{"id": "cut off", "text": "no end', '{"id": 8, "text": "x"}'])
    )
    dk.convert(
        str(raw), to=str(folder / "corpus/made"), on_bad_record="quarantine", max_bad_fraction=0.5, **HERE
    )
    data = "".join(line + "\n" for line in lines).encode()
    (v0 / "documents/a.jsonl.gz").write_bytes(gzip.compress(data[:5000]) + gzip.compress(data[5000:]))
    plain = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in documents("b", 50, draw))
    (v0 / "documents/sub/b.jsonl").write_text(plain)
    zst = "".join(json.dumps(one) + "\n" for one in documents("c", 30, draw)).encode()
    (v0 / "documents/sub/c.jsonl.zst").write_bytes(pa.Codec("zstd").compress(zst, asbytes=True))
    table = pa.Table.from_pylist(list(documents("d", 40, draw)))
    pq.write_table(table, v0 / "documents/d.parquet", row_group_size=7)
    copies = [
        {"id": f"copy-{n}", "source": "web", "text": " ".join(WORDS * 8) + " end" * n} for n in range(3)
    ]
    (v0 / "documents/e.jsonl").write_text("".join(json.dumps(one) + "\n" for one in copies))
    tokenizer = folder / "tokenizer.json"
    train_tokenizer([" ".join(WORDS)] * 3, tokenizer, vocab_size=300)
    dk.tag(str(v0), ["char_length_v1", "gopher_v2"], **HERE)
    dk.dedupe(str(v0), how="fuzzy", ngram=5, **HERE)
    dk.mix(
        str(v0), to=str(folder / "corpus/v1"), where="char_length_v1__char_length_v1__length >= 100 and fuzzy is None", dropped=str(folder / "corpus/dropped"), **HERE
    )  # fmt: skip
    for form in TOKEN_FORMATS:
        dk.ragged(
            str(v0), str(folder / f"corpus/tokens/{form}"), tokenizer=str(tokenizer), format=form, **HERE
        )
    return folder


@pytest.fixture(scope="module")
def made(once):
    return once("traced", make_corpus)


@pytest.fixture
def world(made, tmp_path):
    """A copy that a test may change."""
    shutil.copytree(made, tmp_path / "world")
    return tmp_path / "world"


def rows_of(path):
    """Return the rows of a file of documents or attributes, read by other means."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    data = pa.input_stream(str(path), compression="zstd").read() if path.suffix == ".zst" else data
    return [json.loads(line) for line in data.splitlines()]


def every_row(root):
    """Return the documents of a dataset by shard and row."""
    paths = sorted((root / "documents").rglob("*.*"))
    return {
        (str(path.relative_to(root)), row): one for path in paths for row, one in enumerate(rows_of(path))
    }


def every_document(root):
    """Return (id, source) of the documents of a dataset by shard and row."""
    return {place: (one["id"], one["source"]) for place, one in every_row(root).items()}


def test_every_document_is_found_where_it_is_and_nowhere_else(made):
    v0 = made / "corpus/v0"
    expected = every_document(v0)
    ids = tuple(dict.fromkeys(id for id, _ in expected.values()))
    found = dk.find(ids, str(v0), **HERE)
    assert found.exit_status == 0
    assert [one.id for one in found.ids] == list(ids)
    seen = {(place.path, place.row): (one.id, place.source) for one in found.ids for place in one.documents}
    assert seen == expected
    twice = next(one for one in found.ids if one.id == "twice")
    assert len(twice.documents) == 4  # in four shards


def traced(place):
    return dk.trace(f"{place.folder}/{place.file}", place.row)


def check_round_trip(dataset, tokens):
    """Trace each place of tokens of all documents back; each document is in one place."""
    expected, seen = every_document(dataset), []
    for one in dk.find(tuple({id for id, _ in expected.values()}), str(tokens), **HERE).ids:
        for place in one.tokens:
            shown = traced(place)
            assert shown.dataset == str(dataset)
            (part,) = (part for part in shown.documents if part.place == place.place)
            assert (part.id, part.state, part.start) == (one.id, "there", place.start)
            assert expected[part.path, part.document] == (one.id, part.source)
            seen.append((part.path, part.document))
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("form", TOKEN_FORMATS)
def test_trace_of_what_is_found_is_the_document(made, form):
    check_round_trip(made / "corpus/v0", made / f"corpus/tokens/{form}")


@pytest.mark.parametrize("form", ["dolma", "megatron", "datatrove"])
def test_tokens_of_a_shuffled_packed_mix_are_traced(world, form):
    v0, packed = world / "corpus/v0", world / "packed"
    how = {"format": form, "shuffle": True, "seed": 3, "max_size": 6000}
    dk.ragged(str(v0), str(packed), tokenizer=str(world / "tokenizer.json"), **how, **HERE)
    check_round_trip(v0, packed)


@pytest.mark.parametrize("mode", ["LMData", "LMData_VSL"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_of_hdf5_are_traced(world, mode, shuffle):
    v0, rows = world / "corpus/v0", world / "rows"
    how = {"mode": mode, "max_seq_length": 64, "max_rows_per_file": 40, "shuffle": shuffle}
    tokenizer = str(world / "tokenizer.json")
    dk.hdf5(str(v0), str(rows), tokenizer=tokenizer, **how, **HERE)
    expected = every_row(v0)
    ids = tuple({one["id"] for one in expected.values()})
    tokens, seen = Counter(), set()
    for one in dk.find(ids, str(rows), **HERE).ids:
        for place in one.tokens:
            shown = traced(place)
            assert shown.dataset == str(v0)
            own = [part for part in shown.documents if (part.place, part.start) == (place.place, place.start)]
            assert [part.id for part in own] == [one.id]
            assert own[0].state == "there"
            assert expected[place.path, place.document]["id"] == one.id
            tokens[place.path, place.document] += place.size
            seen.add((place.file, place.row))
    assert {place for place, one in expected.items() if len(one["text"]) > 400} <= tokens.keys()
    assert seen == {
        (path.name, row) for path in rows.glob("*.h5") for row in range(len(h5py.File(path)["data"]))
    }


@pytest.mark.parametrize("mode", ["LMData", "LMData_VSL"])
def test_tokens_of_a_row_of_hdf5_are_shown(world, mode):
    v0, rows, tokenizer = world / "corpus/v0", world / "rows", str(world / "tokenizer.json")
    dk.hdf5(str(v0), str(rows), tokenizer=tokenizer, mode=mode, max_seq_length=64, **HERE)
    texts = {one["id"]: one["text"] for one in every_row(v0).values()}
    for row in range(0, 30, 5):
        shown = dk.trace(str(next(rows.glob("*.h5"))), row, tokenizer=tokenizer)
        assert shown.documents
        for part in shown.documents:
            assert part.tokens.removesuffix("<|endoftext|>") in texts[part.id]


@pytest.mark.parametrize("form", TOKEN_FORMATS)
def test_tokens_are_shown_as_text(made, form):
    found = dk.find("b-3", str(made / f"corpus/tokens/{form}"), **HERE)
    (place,) = found.ids[0].tokens
    file = f"{place.folder}/{place.file}"
    (part,) = dk.trace(file, place.row, tokenizer=str(made / "tokenizer.json")).documents
    text = json.loads((made / "corpus/v0/documents/sub/b.jsonl").read_text().splitlines()[3])["text"]
    assert part.text == text[: len(part.text)]
    assert part.tokens.removesuffix("<|endoftext|>") == text


def test_a_position_is_of_one_document(made):
    place = dk.find("b-3", str(made / "corpus/tokens/numpy"), **HERE).ids[0].tokens[0]
    file = f"{place.folder}/{place.file}"
    assert dk.trace(file, place.row, position=0).documents[0].id == "b-3"
    with pytest.raises(UsageError, match="holds no token of a document"):
        dk.trace(file, place.row, position=place.size)
    with pytest.raises(UsageError, match=r"has 50 rows of documents, from 0 to 49; found row 50"):
        dk.trace(file, 50)


def test_files_beside_the_ids_stand_for_them(made):
    place = dk.find("b-3", str(made / "corpus/tokens/numpy"), **HERE).ids[0].tokens[0]
    beside = f"{place.folder}/{place.file}".replace(".data.npy", ".len.npy")
    assert dk.trace(beside, place.row) == traced(place)


def test_without_segments_it_says_what_to_do(world):
    folder = world / "corpus/tokens/numpy"
    shutil.rmtree(folder / "_segments")
    file = next(folder.glob("*.data.npy"))
    with pytest.raises(UsageError, match=r"has no segments .* Write it again with this version"):
        dk.trace(str(file), 0)
    with pytest.raises(UsageError, match="no such file"):
        dk.trace(str(folder / "nothing.data.npy"), 0)
    with pytest.raises(UsageError, match="numpy: a folder; expected a token file"):
        dk.trace(str(folder), 0)
    assert "without segments, which were not searched" in str(dk.find("a-30", str(folder), **HERE))


def test_documents_that_are_gone_or_others_are_told(world):
    place = dk.find("b-3", str(world / "corpus/tokens/numpy"), **HERE).ids[0].tokens[0]
    path = world / "corpus/v0/documents/sub/b.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[1:]))
    assert [part.state for part in traced(place).documents] == ["another document"]
    path.unlink()
    assert [part.state for part in traced(place).documents] == ["gone"]


def test_all_kinds_of_places(made):
    corpus = str(made / "corpus")
    (found,) = dk.find("copy-1", corpus, **HERE).ids
    assert {place.name for place in found.attributes} == {"char_length_v1", "gopher_v2", "fuzzy"}
    (length,) = (place.values for place in found.attributes if place.name == "char_length_v1")
    assert list(length.values()) == [len(" ".join(WORDS * 8) + " end")]
    (cluster,) = found.clusters
    assert (cluster.name, cluster.size, cluster.survivor) == ("fuzzy", 3, False)
    (dropped,) = found.dropped
    assert (dropped.shard, dropped.row) == ("e.jsonl", 1)
    assert any("fuzzy" in reason for reason in dropped.reasons)
    assert Counter(place.folder.rpartition("/")[2] for place in found.tokens) == Counter(TOKEN_FORMATS)
    (found,) = dk.find("cut off", corpus, **HERE).ids
    (set_aside,) = found.quarantine
    assert set_aside.row == 60
    assert (found.documents, found.tokens) == ((), ())


def test_an_index_that_has_the_dataset_is_named(world):
    corpus = world / "corpus"
    dk.dedupe(str(corpus / "v0"), name="known", index=str(corpus / "index"), **HERE)
    (found,) = dk.find("b-3", str(corpus), **HERE).ids
    assert [(place.index, place.dataset) for place in found.indexes] == [(f"{corpus}/index", f"{corpus}/v0")]


def test_ids_may_be_several_and_stand_in_a_list(made, tmp_path):
    v0 = str(made / "corpus/v0")
    (tmp_path / "list.txt").write_text("b-1\nweb\tc-1\nwïki\tc-1\n")
    found = dk.find(v0, ids=str(tmp_path / "list.txt"), **HERE)
    assert [(one.id, len(one.documents)) for one in found.ids if one] == [("b-1", 1), ("c-1", 1)]
    found = dk.find("b-1", v0, also=["b-2", "nobody"], **HERE)
    assert [len(one.documents) for one in found.ids] == [1, 1, 0]
    assert (found.exit_status, found.missing) == (1, ("nobody",))
    assert "not found: 'nobody'" in str(found)


def test_a_source_leaves_the_others_out(made):
    v0 = made / "corpus/v0"
    every = [source for id, source in every_document(v0).values() if id == "twice"]
    for source in ("web", "wïki"):
        (found,) = dk.find("twice", str(v0), source=source, **HERE).ids
        assert [place.source for place in found.documents] == [source] * every.count(source)


@pytest.mark.parametrize("wrong", [7, ["a", 7]])
def test_ids_are_strings(made, wrong):
    with pytest.raises(UsageError, match="expected a string"):
        dk.find(wrong, str(made / "corpus"), **HERE)


def test_what_cannot_be_searched_is_refused(made, tmp_path):
    with pytest.raises(UsageError, match="given no root"):
        dk.find("a")
    with pytest.raises(UsageError, match="no dataset, no token files"):
        dk.find("a", str(tmp_path))


# ------------------------------------------------------------------------------------------------ the index


def files_read(monkeypatch):
    """Return a list that grows by each file whose ids are read."""
    read, original = [], indexing.FileIds.read

    def noted(self):
        read.append(self.file.path)
        return original(self)

    monkeypatch.setattr(indexing.FileIds, "read", noted)
    return read


def test_only_changed_files_are_read_again(world, monkeypatch):
    v0, read = world / "corpus/v0", files_read(monkeypatch)
    assert dk.find("b-3", str(v0), **HERE).exit_status == 0
    assert "documents/sub/b.jsonl" in read
    read.clear()
    assert dk.find("b-4", str(v0), **HERE).exit_status == 0
    assert read == []
    path = v0 / "documents/sub/b.jsonl"
    path.write_text(path.read_text().replace("b-3", "new"))
    (v0 / "documents/0.jsonl").write_text('{"id":"first","text":"","source":"web"}\n')
    (v0 / "documents/d.parquet").unlink()
    found = dk.find(("b-3", "new", "first", "d-1", "c-2", "copy-2"), str(v0), **HERE)
    assert read == ["documents/0.jsonl", "documents/sub/b.jsonl"]
    expected = every_document(v0)
    seen = {(place.path, place.row): one.id for one in found.ids for place in one.documents}
    assert seen == {
        place: id for place, (id, _) in expected.items() if id in ("new", "first", "c-2", "copy-2")
    }


def test_another_file_of_the_same_size_is_another_one(world):
    v0 = world / "corpus/v0"
    path = v0 / "documents/e.jsonl"
    assert dk.find("copy-1", str(v0), **HERE).exit_status == 0
    path.write_text(path.read_text().replace("copy-1", "copx-1"))
    assert dk.find("copx-1", str(v0), **HERE).exit_status == 0
    assert dk.find("copy-1", str(v0), **HERE).ids[0].documents == ()


@pytest.mark.parametrize("at", [0.01, 0.3, 0.5, 0.98])
def test_a_damaged_index_is_made_anew(world, at):
    v0 = world / "corpus/v0"
    before = dk.find(("b-3", "twice"), str(v0), **HERE)
    for path in indexing._folder().glob("*.ids"):
        data = bytearray(path.read_bytes())
        start = int(len(data) * at)
        data[start : start + 2000] = bytes(len(data[start : start + 2000]))
        path.unlink()
        path.write_bytes(data)
    assert dk.find(("b-3", "twice"), str(v0), **HERE) == before
    path.unlink()
    path.write_bytes(b"")
    assert dk.find(("b-3", "twice"), str(v0), **HERE) == before
    (v0 / "documents/0.jsonl").write_text('{"id":"first","text":"","source":"web"}\n')
    assert dk.find("first", str(v0), **HERE).exit_status == 0


def test_a_build_that_was_stopped_goes_on(made, monkeypatch):
    v0 = str(made / "corpus/v0")
    monkeypatch.setattr(indexing, "TASK_BYTES", 1)
    write, count = indexing.write_index, []

    def stopped(path, *args):
        count.append(path)
        if len(count) == 4:
            raise KeyboardInterrupt
        write(path, *args)

    monkeypatch.setattr(indexing, "write_index", stopped)
    with pytest.raises(InterruptedStageError):
        dk.find("b-3", v0, **HERE)
    monkeypatch.setattr(indexing, "write_index", write)
    read = files_read(monkeypatch)
    assert dk.find("b-3", v0, **HERE).exit_status == 0
    every = len(list((made / "corpus/v0/documents").rglob("*.*"))) + 1  # and the table of clusters
    assert len(read) == every - 3
    assert not list(indexing._folder().glob("*.runs"))


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_any_scheduler_makes_the_same_index(made, scheduler, monkeypatch):
    monkeypatch.setattr(indexing, "TASK_BYTES", 1)
    corpus = str(made / "corpus")
    expected = dk.find(("twice", *ODD), corpus, **HERE)
    first = {path.name: path.read_bytes() for path in indexing._folder().glob("*.ids")}
    options = {"scheduler": scheduler, "workers": 2, "progress": False}
    assert dk.find(("twice", *ODD), corpus, overwrite=True, **options) == expected
    assert {path.name: path.read_bytes() for path in indexing._folder().glob("*.ids")} == first


def test_hits_are_compared_with_the_id_itself(made, monkeypatch):
    key = indexing.key_of("b-3")
    monkeypatch.setattr(indexing, "key_of", lambda id: key)
    found = dk.find(("b-3", "b-4"), str(made / "corpus"), **HERE)
    assert list(map(bool, found.ids)) == [True, False]


# ------------------------------------------------------------------------------------------------ explain


@pytest.mark.parametrize("id", ["copy-1", "b-3", "d-5", "c-0", "", "a b"])
def test_signals_have_their_exact_ranks(made, id):
    v0 = made / "corpus/v0"
    explained = dk.explain(id, str(v0), **HERE)
    every = [len(one["text"]) for one in every_row(v0).values()]
    own = next(one for one in explained.signals if one.name.startswith("char_length"))
    assert own.documents == len(every)
    assert own.below == sum(length < own.value for length in every)
    assert own.equal == every.count(own.value)
    assert own.quantile == (own.below + own.equal / 2) / own.documents


def test_rules_of_mixes_are_evaluated_on_the_document(made):
    v0, corpus = made / "corpus/v0", str(made / "corpus")
    dropped = {}
    for path in (made / "corpus/dropped").rglob("*.jsonl.gz"):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            row = json.loads(line)
            dropped[f"documents/{row['shard']}", row["row"]] = row["reasons"]
    everything = every_document(v0)
    assert 10 < len(dropped) < len(everything)
    unique = {id for id, count in Counter(id for id, _ in everything.values()).items() if count == 1}
    for place, (id, _) in list(everything.items())[::7]:
        if id not in unique:
            continue
        explained = dk.explain(id, str(v0), root=corpus, **HERE)
        (mix,) = explained.mixes
        assert list(mix.dropped_by) == dropped.get(place, [])
        assert mix.is_there == (place not in dropped)
        assert mix.note == ""


def test_a_copy_is_shown_beside_its_survivor(made):
    explained = dk.explain("copy-2", str(made / "corpus/v0"), **HERE)
    (cluster,) = explained.clusters
    assert cluster.size == 3
    survivor, copy = cluster.members
    assert survivor.survivor
    assert copy.id == "copy-2"
    assert [piece.kind for piece in copy.pieces if piece.kind == "added"]
    assert explained.places.documents


def test_what_is_missing_is_told(world):
    bare = world / "bare/v0"
    shutil.copytree(world / "corpus/v0/documents", bare / "documents")
    explained = dk.explain("b-3", str(bare), **HERE)
    assert (explained.signals, explained.mixes, explained.clusters) == ((), (), ())
    assert len(explained.notes) == 3
    with pytest.raises(UsageError, match="no document with id 'nobody'"):
        dk.explain("nobody", str(bare), **HERE)
    with pytest.raises(UsageError, match="--of-source"):
        dk.explain("twice", str(bare), **HERE)
    assert dk.explain("twice", str(bare), of_source="web", **HERE).document.source == "web"


def test_quantiles_that_are_there_are_used(world):
    v0 = str(world / "corpus/v0")
    counted = dk.explain("b-3", v0, **HERE).signals
    dk.quantiles(v0, signals=["char_length_v1__char_length_v1__length"], by=None, **HERE)
    known = dk.explain("b-3", v0, **HERE).signals
    for one, other in zip(counted, known, strict=True):
        if one.name.startswith("char_length"):
            assert other.below is None
            assert abs(other.quantile - one.quantile) < 0.1
        else:
            assert other == one
    assert dk.explain("b-3", v0, exact=True, **HERE).signals == counted


# ------------------------------------------------------------------------------------------------ shown


def test_answers_print_and_are_json(made, capsys):
    v0 = str(made / "corpus/v0")
    (place,) = dk.find("copy-1", str(made / "corpus/tokens/numpy"), **HERE).ids[0].tokens
    file = f"{place.folder}/{place.file}"
    for words in (["find", "copy-1", v0], ["explain", "copy-1", v0], ["trace", file, str(place.row)]):
        more = [] if words[0] == "trace" else ["--no-progress"]
        assert cli.main([*words, *more]) == 0
        shown = capsys.readouterr().out
        assert "e.jsonl" in shown
        assert cli.main([*words, *more, "--json"]) == 0
        assert "copy-1" in json.dumps(json.loads(capsys.readouterr().out))
    assert cli.main(["find", "nobody", v0, "--no-progress"]) == 1
    assert "<table" in dk.find("copy-1", v0, **HERE)._repr_html_()
    assert "<table" in dk.explain("copy-1", v0, **HERE)._repr_html_()
    assert "<table" in dk.trace(file, place.row)._repr_html_()
