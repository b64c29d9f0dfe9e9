"""mix with token files: the same as by way of a new version, from one reading, each kind resumed by itself; what is refused."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from token_readers import read_all

import dolma_dask as dk
from dolma_dask.engine import batches, runs
from dolma_dask.errors import StageError, UsageError
from dolma_dask.io import files
from dolma_dask.journal import Journal
from dolma_dask.reading.kept import transform as mix_transform
from dolma_dask.reading.reader import AlignedReader
from dolma_dask.testing.tokenizer import END_OF_TEXT
from dolma_dask.tokens.engine import TokenEngine

from .conftest import write_lines

HERE = {"progress": False, "scheduler": "synchronous"}
RULE = {
    "where": "char_length_v1__char_length_v1__length >= 4",
    "exclude": ["$.attributes[?(@.char_length_v1__char_length_v1__length[0][2] > 60)]"],
}


@pytest.fixture
def tokens(tmp_path, tokenizer):
    """Options of both verbs."""
    arrays = {"to": str(tmp_path / "arrays"), "tokenizer": tokenizer, "eos": END_OF_TEXT, "name": "n"}
    rows = {"to": str(tmp_path / "rows"), "tokenizer": tokenizer, "max_seq_length": 8, "max_rows_per_file": 3}
    return {"ragged": arrays, "hdf5": rows}


def token_files(folder: Path) -> dict[str, bytes]:
    """Files of tokens by name: not the journal, nor what tells how they were asked for."""
    found = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".npy", ".h5", ".json")
    }
    found.pop("data_params.json", None)
    return found


def documents_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "documents").rglob("*") if path.is_file()}


def by_way_of_documents(root: Path, tagged: Path, tokens, **options) -> Path:
    """Make documents first and tokens of them, below a folder of its own."""
    dk.mix(str(tagged), to=str(root / "v1"), **RULE, **options, **HERE)
    for verb, name in ((dk.ragged, "ragged"), (dk.hdf5, "hdf5")):
        wish = dict(tokens[name])
        verb(str(root / "v1"), str(root / Path(wish.pop("to")).name), **wish, **HERE)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 3}, {"max_size": 200}])
def test_same_files_as_by_way_of_documents(options, tagged, tmp_path, tokens):
    other = by_way_of_documents(tmp_path / "other", tagged, tokens, **options)
    summary = dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **options, **RULE, **HERE)
    assert documents_of(tmp_path / "v1") == documents_of(other / "v1")
    for name in ("arrays", "rows"):
        assert token_files(tmp_path / name) == token_files(other / name)
    assert len(token_files(tmp_path / "rows")) > 1
    assert not (tmp_path / "rows" / "_work").exists()
    assert [name for name, _ in summary.others] == ["ragged", "hdf5"]
    assert dict(summary.others)["ragged"].counts["tokens"] > 0
    assert "ragged" in str(summary)
    assert summary.to_json()["hdf5"]["counts"]["rows"] > 0


def test_without_documents(tagged, tmp_path, tokens):
    other = by_way_of_documents(tmp_path / "other", tagged, tokens)
    summary = dk.mix(str(tagged), **tokens, **RULE, **HERE)
    for name in ("arrays", "rows"):
        assert token_files(tmp_path / name).keys() == token_files(other / name).keys()
        same = [path for path in token_files(other / name) if path.endswith((".npy", ".h5"))]
        assert all(token_files(tmp_path / name)[path] == token_files(other / name)[path] for path in same)
    assert summary.verb == "mix"
    assert summary.counts["documents_out"] > 0


@pytest.mark.parametrize("small_bytes", [0, batches.SMALL_BYTES], ids=["alone", "as one"])
def test_every_shard_is_read_and_encoded_once(small_bytes, tagged, tmp_path, tokens, monkeypatch):
    monkeypatch.setattr(batches, "SMALL_BYTES", small_bytes)
    read = []
    original = AlignedReader.__iter__

    def counted(self):
        read.append(self.work.shard.path)
        return original(self)

    monkeypatch.setattr(AlignedReader, "__iter__", counted)
    encoded = []
    encode = TokenEngine._encode
    monkeypatch.setattr(TokenEngine, "_encode", lambda *of: encoded.append(1) or encode(*of))
    dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **RULE, **HERE)
    assert len(read) == len(set(read)) == (0 if small_bytes else 2)
    assert len(encoded) == 2  # one block each, for both kinds of tokens


@pytest.mark.parametrize("as_text", [False, True])
def test_several_formats_are_made_of_one_encoding(as_text, tagged, tmp_path, tokenizer, monkeypatch):
    formats = ("numpy", "megatron", "parquet")
    outputs = [
        {"to": str(tmp_path / name), "tokenizer": tokenizer, "eos": END_OF_TEXT, "format": name}
        for name in formats
    ]
    encoded = []
    encode = TokenEngine._encode
    monkeypatch.setattr(TokenEngine, "_encode", lambda *of: encoded.append(1) or encode(*of))
    summary = dk.mix(str(tagged), ragged=json.dumps(outputs) if as_text else outputs, **RULE, **HERE)
    assert len(encoded) == 2  # one block of each shard
    names = (summary.verb, *(name for name, _ in summary.others))
    assert names == ("mix", "ragged 2", "ragged 3")
    assert read_all(tmp_path / "megatron", "megatron") == read_all(tmp_path / "numpy", "numpy")
    assert read_all(tmp_path / "parquet", "parquet") == read_all(tmp_path / "numpy", "numpy") != []
    again = dk.mix(str(tagged), ragged=outputs, **RULE, **HERE)
    assert [again.skipped, *(other.skipped for _, other in again.others)] == [2, 2, 2]


def test_jobs_of_an_array_make_an_index_among_other_formats(tagged, tmp_path, tokenizer, monkeypatch):
    outputs = [
        {"to": str(tmp_path / name), "tokenizer": tokenizer, "format": name} for name in ("mds", "parquet")
    ]
    work, beside = runs._work, []

    def work_later(*of):
        monkeypatch.setattr(runs, "_work", work)
        beside.append(dk.mix(str(tagged), ragged=outputs, share="2/2", **RULE, **HERE))
        work(*of)

    monkeypatch.setattr(runs, "_work", work_later)
    made = dk.mix(str(tagged), ragged=outputs, share="1/2", **RULE, **HERE)
    assert (made.done, beside[0].done) == (1, 1)
    assert (tmp_path / "mds/index.json").exists()
    assert read_all(tmp_path / "mds", "mds") == read_all(tmp_path / "parquet", "parquet") != []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "megatron"}, "two kinds of token files of a mix go to"),
        ({"to": "elsewhere"}, "files of the same names, by which their records are told apart"),
        ({"format": "numpi"}, "numpi"),
        ({"toknizer": "x"}, "ragged of a mix has no option 'toknizer'"),
    ],
)
def test_several_outputs_that_cannot_be_made_are_refused(change, message, tagged, tmp_path, tokenizer):
    first = {"to": str(tmp_path / "a"), "tokenizer": tokenizer}
    if "to" in change:
        change = {"to": str(tmp_path / change["to"])}
    with pytest.raises(UsageError, match=message):
        dk.mix(str(tagged), ragged=[first, {**first, **change}], **HERE)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("lost", ["v1/documents", "arrays", "rows"])
def test_each_kind_is_made_again_by_itself(lost, tagged, tmp_path, tokens):
    dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **RULE, **HERE)
    before = {name: token_files(tmp_path / name) for name in ("arrays", "rows")}
    documents = documents_of(tmp_path / "v1")
    victim = next(
        path for path in sorted((tmp_path / lost).rglob("*")) if path.suffix in (".gz", ".npy", ".h5")
    )
    kept = {
        path: path.stat().st_mtime_ns
        for path in tmp_path.rglob("*.*")
        if path.is_file() and "_journal" not in str(path)
    }
    victim.unlink()
    dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **RULE, **HERE)
    assert documents == documents_of(tmp_path / "v1")
    assert before == {name: token_files(tmp_path / name) for name in ("arrays", "rows")}
    changed = {path for path, stamp in kept.items() if path.stat().st_mtime_ns != stamp}
    assert victim in changed
    assert all(victim.parent in (path.parent, path.parent.parent) for path in changed)


def test_another_kind_is_added_later(tagged, tmp_path, tokens):
    dk.mix(str(tagged), to=str(tmp_path / "v1"), **RULE, **HERE)
    documents = {path: path.stat().st_mtime_ns for path in (tmp_path / "v1" / "documents").rglob("*")}
    summary = dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **RULE, **HERE)
    assert documents == {path: path.stat().st_mtime_ns for path in (tmp_path / "v1" / "documents").rglob("*")}
    assert (summary.done, summary.skipped) == (0, 2)
    assert [item.done > 0 for _, item in summary.others] == [True, True]


def test_a_shard_that_fails_fails_for_all_and_leaves_nothing(tagged, tmp_path, tokens):
    victim = sorted((tagged / "attributes" / "char_length_v1").rglob("*.gz"))[0]
    shutil.copy(sorted((tagged / "attributes" / "char_length_v1").rglob("*.gz"))[1], victim)
    with pytest.raises(StageError, match=r"^mix: 1 of 2 shards failed"):
        dk.mix(str(tagged), **tokens, **RULE, **HERE)
    with pytest.raises(StageError, match=r"^mix: 1 of 2 shards failed"):
        dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **RULE, **HERE)
    assert len(documents_of(tmp_path / "v1")) == 1
    assert len([name for name in token_files(tmp_path / "arrays") if name.endswith(".data.npy")]) == 1
    assert not list((tmp_path / "rows").glob("*.h5"))


def test_bad_records_are_told_wherever_documents_are_missing(dataset, tmp_path, tokens):
    path = dataset / "documents/x/a.jsonl.gz"
    path.write_bytes(path.read_bytes() + gzip.compress(b"{broken\n"))
    options = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5, **HERE}
    summary = dk.mix(str(dataset), to=str(tmp_path / "v1"), **tokens, **options)
    assert summary.counts["bad_records"] == 1
    places = [
        tmp_path / "v1" / "_quarantine/mix",
        tmp_path / "arrays/_quarantine/ragged",
        tmp_path / "rows/_quarantine/hdf5",
    ]
    told = [
        [json.loads(line)["row"] for file in place.rglob("*.jsonl") for line in file.open()]
        for place in places
    ]
    assert told[0] == told[1] == told[2] != []
    for root, verb in (
        (tmp_path / "v1", "mix"),
        (tmp_path / "arrays", "ragged"),
        (tmp_path / "rows", "hdf5"),
    ):
        records = Journal(str(root), verb).records.values()
        assert any(record.counts.get("bad_records") == 1 for record in records)


def test_rows_that_another_run_replaces_meanwhile_are_its_own(tagged, tmp_path, tokens, monkeypatch):
    """A mix whose rows were there at its start has nothing to do with them, even if they are others at its end."""
    rows = {"hdf5": tokens["hdf5"]}
    dk.mix(str(tagged), to=str(tmp_path / "v1"), **rows, **RULE, **HERE)
    next((tmp_path / "v1/documents").rglob("*.gz")).unlink()
    original = AlignedReader.__iter__
    other = {"hdf5": tokens["hdf5"] | {"max_seq_length": 4}}

    def slow(self):
        monkeypatch.setattr(AlignedReader, "__iter__", original)
        dk.mix(str(tagged), **other, **RULE, **HERE, overwrite=True)
        return original(self)

    monkeypatch.setattr(AlignedReader, "__iter__", slow)
    summary = dk.mix(str(tagged), to=str(tmp_path / "v1"), **rows, **RULE, **HERE)
    assert summary.done == 1
    assert dict(summary.others)["hdf5"].done == 0
    monkeypatch.undo()
    assert dk.mix(str(tagged), **other, **RULE, **HERE).done == 0
    dk.mix(str(tagged), **(other | {"hdf5": other["hdf5"] | {"to": str(tmp_path / "alone")}}), **RULE, **HERE)
    assert token_files(tmp_path / "rows") == token_files(tmp_path / "alone")


@pytest.mark.parametrize("lost", ["data_params.json", "part-000000-00000.h5"])
def test_documents_and_what_a_finished_first_pass_lacks(tagged, tmp_path, tokens, lost):
    """The job of the rows goes on behind its first pass while documents are read again."""
    rows = {"hdf5": tokens["hdf5"]}
    dk.mix(str(tagged), to=str(tmp_path / "v1"), **rows, **RULE, **HERE)
    before = token_files(tmp_path / "rows")
    next((tmp_path / "v1/documents").rglob("*.gz")).unlink()
    (tmp_path / "rows" / lost).unlink()
    summary = dk.mix(str(tagged), to=str(tmp_path / "v1"), **rows, **RULE, **HERE)
    assert summary.done == 1
    assert (tmp_path / "rows" / lost).exists()
    assert token_files(tmp_path / "rows") == before
    assert not (tmp_path / "rows/_work").exists()


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"ragged": "{"}, "cannot read ragged"),
        ({"ragged": "[1]"}, "cannot read ragged"),
        ({"ragged": {"to": "x"}}, "lacks 'tokenizer'"),
        ({"ragged": {"to": "x", "tokenizer": "t", "eoss": "x"}}, "did you mean 'eos'"),
        ({"ragged": {"to": "x", "tokenizer": "t", "where": "x"}}, "no option 'where' here"),
        ({"hdf5": {"to": "x", "tokenizer": "t", "max_seq_length": "2048"}}, "max_seq_length"),
        ({"hdf5": {"to": "x", "tokenizer": "t", "tail": "cut"}}, "tail"),
        ({"hdf5": {"to": "x", "tokenizer": "t", "mode": "MLM"}}, "MLM"),
        ({"hdf5": {"to": "x", "tokenizer": "/nowhere.json"}}, "nowhere"),
        ({}, "nothing to write"),
        ({"ragged": {"to": "x", "tokenizer": "t"}, "shuffle": True}, "without `to`"),
    ],
)
def test_what_cannot_be_is_refused(wish, message, tagged):
    with pytest.raises(UsageError, match=message):
        dk.mix(str(tagged), **wish, **HERE)


@pytest.mark.parametrize("options", [{}, {"max_size": 200}])
@pytest.mark.parametrize("wrong", [{"tokenizer": "none.json"}, {"eos": "<none>"}])
def test_what_tokens_need_is_looked_at_before_anything_is_written(wrong, options, tagged, tmp_path, tokens):
    (tmp_path / "takedown.txt").write_text("d1\n")
    before = sorted(path for path in tagged.rglob("*"))
    for verb in ("ragged", "hdf5"):
        with pytest.raises(UsageError):
            dk.mix(
                str(tagged), to=str(tmp_path / "v1"), block=[str(tmp_path / "takedown.txt")], **options, **HERE,
                **{verb: tokens[verb] | wrong},
            )  # fmt: skip
    assert not (tmp_path / "v1").exists()
    assert before == sorted(path for path in tagged.rglob("*"))


def test_packed_documents_are_tokenized_as_they_were_read(tmp_path, tokens):
    lines = [json.dumps({"id": f"d{n}", "text": f"{n} " * (400 if n == 3 else 3)}) for n in range(8)]
    write_lines(tmp_path / "v0/documents/a.jsonl", lines)
    options = {
        "source": "web",
        "max_record_bytes": 700,
        "on_bad_record": "quarantine",
        "max_bad_fraction": 0.5,
    }
    summary = dk.mix(str(tmp_path / "v0"), to=str(tmp_path / "v1"), shuffle=True, **tokens, **options, **HERE)
    assert summary.counts["documents_out"] == 7
    assert len(dk.open_ragged(str(tmp_path / "arrays"))) == 7


def test_another_version_of_mix_makes_its_tokens_again(tagged, tmp_path, tokens, monkeypatch):
    dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **RULE, **HERE)
    monkeypatch.setattr(mix_transform, "VERSION", 99)
    summary = dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **RULE, **HERE)
    assert summary.skipped == 0
    assert [item.skipped for _, item in summary.others] == [0, 0]


def test_token_files_have_the_same_names_with_documents_and_without(tagged, tmp_path, tokens):
    del tokens["ragged"]["name"]
    dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **RULE, **HERE)
    names = set(token_files(tmp_path / "arrays"))
    summary = dk.mix(str(tagged), **tokens, **RULE, **HERE)
    assert set(token_files(tmp_path / "arrays")) == names
    assert summary.done == 0


def test_tokens_of_a_shuffle_are_named_after_the_dataset(tagged, tmp_path, tokens):
    del tokens["ragged"]["name"]
    dk.mix(str(tagged), to=str(tmp_path / "v1"), shuffle=True, **tokens, **RULE, **HERE)
    arrays = [path.name for path in (tmp_path / "arrays").glob("*.npy")]
    assert arrays
    assert all(name.startswith(f"{tagged.name}.") for name in arrays)


@pytest.mark.parametrize("options", [{}, {"max_size": 200}])
@pytest.mark.parametrize("verb", ["ragged", "hdf5"])
def test_tokens_among_documents_are_refused(verb, options, tagged, tmp_path, tokens):
    for root in (tagged, tmp_path / "v1"):
        wish = tokens[verb] | {"to": str(root / "documents" / "tokens")}
        with pytest.raises(UsageError, match="lies among the documents"):
            dk.mix(str(tagged), to=str(tmp_path / "v1"), **{verb: wish}, **options, **HERE)
    place = str(tagged / "attributes/tokens")
    with pytest.raises(UsageError, match="lies among the documents"):
        getattr(dk, verb)(str(tagged), place, tokenizer=wish["tokenizer"], **HERE)
    assert not (tmp_path / "v1").exists()


def test_an_object_store_gets_the_same_bytes(root, tagged, tmp_path, tokens):
    dk.mix(str(tagged), to=str(tmp_path / "v1"), **tokens, **RULE, **HERE)
    local = {
        path.name: path.read_bytes()
        for name in ("arrays", "rows")
        for path in (tmp_path / name).iterdir()
        if path.is_file()
    }
    away = {verb: wish | {"to": f"{root}/{Path(wish['to']).name}"} for verb, wish in tokens.items()}
    for _ in range(2):
        dk.mix(str(tagged), to=f"{root}/v1", **away, **RULE, **HERE)
        found = {
            name: files.read_bytes(f"{root}/{folder}/{name}")
            for folder in ("arrays", "rows")
            for name in local
            if files.stat(f"{root}/{folder}/{name}")
        }
        assert found == local
