"""status: what is done, left and changed, from journals and a listing alone."""

import gzip
import json
import shutil

import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import DataError, InterruptedStageError, StageError, UsageError
from dolma_dask.io import documents
from dolma_dask.journal import Journal
from dolma_dask.outputs.hdf5.staging import StagingOutput
from dolma_dask.outputs.pieces import SortStage
from dolma_dask.questions.status.question import status
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.verbs.dedupe.verb import dedupe
from dolma_dask.verbs.hdf5.verb import hdf5
from dolma_dask.verbs.quantiles.verb import quantiles
from dolma_dask.verbs.validate.verb import validate

HERE = {"scheduler": "synchronous", "progress": False}


def lines(number, count=5):
    return "".join(
        json.dumps({"id": f"{number}-{row}", "text": f"words of {row}"}) + "\n" for row in range(count)
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder, with a converted dataset of three shards in v0."""
    (tmp_path / "raw").mkdir()
    for number in range(3):
        (tmp_path / f"raw/{number}.jsonl").write_text(lines(number))
    monkeypatch.chdir(tmp_path)
    dk.convert("raw", to="v0", source="s", **HERE)
    return tmp_path


def row(name, verb, writes=None):
    """The row of a verb."""
    (found,) = [item for item in status(name).rows if item.verb == verb and writes in (None, item.writes)]
    return found


def numbers(name, verb, writes=None):
    found = row(name, verb, writes)
    return found.done, found.left, found.changed


@pytest.mark.slow
def test_every_verb_that_is_done(place):
    validate("v0", **HERE)
    dk.tag("v0", ["char_length_v1", "whitespace_tokenizer_v1"], **HERE)
    quantiles("v0", signals=["char_length_v1__char_length_v1__length"], level="regular", **HERE)
    dedupe("v0", **HERE)
    dk.mix("v0", to="v1", **HERE)
    found = status("v0")
    shown = [(item.verb, item.writes, item.done, item.left, item.changed, item.state) for item in found.rows]
    assert shown == [
        ("convert", "documents/", 3, 0, 0, "done"),
        ("validate", "", 3, 0, 0, "done"),
        ("tag", "attributes/char_length_v1/", 3, 0, 0, "done"),
        ("tag", "attributes/whitespace_tokenizer_v1/", 3, 0, 0, "done"),
        ("quantiles", "quantiles/quantiles.json", 1, 0, 0, "done"),
        ("quantiles", "quantiles/quantiles.regular.json", 1, 0, 0, "done"),
        ("dedupe", "attributes/exact/", 3, 0, 0, "done"),
    ]
    assert (found.exit_status, found.notes, found.leftovers) == (0, (), ())
    assert found.shards == 3
    assert found.bytes == sum(path.stat().st_size for path in (place / "v0/documents").iterdir())
    first = found.rows[0]
    assert first.bytes == found.bytes
    assert first.finished > first.started > 1e9
    assert numbers("v1", "mix") == (3, 0, 0)


def test_no_document_is_read(place, monkeypatch):
    dk.tag("v0", ["char_length_v1"], **HERE)
    monkeypatch.setattr(
        documents.DocumentFile, "__init__", lambda *_, **__: pytest.fail("a document was read")
    )
    monkeypatch.setattr("dolma_dask.io.files.checksum", lambda url: pytest.fail("a file was hashed"))
    assert numbers("v0", "tag") == (3, 0, 0)


def test_some_shards_are_left(place):
    dk.tag("v0", ["char_length_v1"], only=["1"], **HERE)
    assert numbers("v0", "tag") == (1, 2, 0)
    found = status("v0")
    assert found.exit_status == 1
    assert "2 shards new, failed or left out; the same command does only these" in str(found)
    dk.mix("v0", to="v1", prune=2, **HERE)
    assert numbers("v1", "mix") == (2, 1, 0)


def test_a_shard_that_failed_is_left(place):
    path = place / "v0/documents/1.jsonl.gz"
    path.write_bytes(gzip.compress(b"nonsense\n"))
    with pytest.raises(StageError):
        dk.tag("v0", ["char_length_v1"], **HERE)
    assert numbers("v0", "tag") == (2, 1, 0)
    assert row("v0", "tag").state == "to do"
    (place / "raw/3.jsonl").write_text("nonsense\n")
    with pytest.raises(StageError):
        dk.convert("raw", to="v0", source="s", **HERE)
    assert row("v0", "convert").left == 1


def test_what_was_made_from_files_that_changed(place):
    dk.tag("v0", ["char_length_v1"], **HERE)
    dedupe("v0", **HERE)
    (place / "raw/2.jsonl").write_text(lines(2, 9))
    assert numbers("v0", "convert") == (2, 0, 1)
    dk.convert("raw", to="v0", source="s", **HERE)
    assert numbers("v0", "convert") == (3, 0, 0)
    assert numbers("v0", "tag") == (2, 0, 1)
    assert numbers("v0", "dedupe") == (0, 0, 3), "one changed shard may change the marks of all"
    shown = str(status("v0"))
    assert "tag of attributes/char_length_v1/: 1 shard made from files that have changed" in shown
    dk.tag("v0", ["char_length_v1"], **HERE)
    dedupe("v0", **HERE)
    assert status("v0").exit_status == 0


MADE = {
    "dedupe": lambda **options: dedupe("v0", **options, **HERE),
    "tag": lambda **options: dk.tag("v0", ["char_length_v1"], **options, **HERE),
    "quantiles": lambda **options: quantiles("v0", level="regular", **options, **HERE),
    "filter": lambda **options: dk.filter("v0", **options, **HERE),
    "block": lambda **options: dk.block("v0", "list.txt", **options, **HERE),
    "validate": lambda **options: validate("v0", **options, **HERE),
}
"""Calls that make something of each shard, in an order in which each finds what it reads."""


def test_what_was_made_from_a_file_that_is_gone_is_removed_as_the_messages_say(place):
    (place / "list.txt").write_text("0-1\n")
    for make in MADE.values():
        make()
    (place / "raw/2.jsonl").unlink()
    told = "convert of documents/: 1 shard made from files that are gone; the same command with --overwrite"
    assert told in str(status("v0"))
    with pytest.raises(UsageError, match=r"from .*raw/2\.jsonl, which is not .* --overwrite, or put back"):
        dk.convert("raw", to="v0", source="s", **HERE)
    dk.convert("raw", to="v0", source="s", overwrite=True, **HERE)
    beside = MADE.keys() - {"quantiles", "validate"}
    assert all(row("v0", verb).gone == 1 for verb in beside)
    problems = json.dumps(validate("v0", **HERE).to_json())
    with pytest.raises(DataError, match=r"2\.jsonl\.gz is gone .* --name exact --overwrite"):
        dk.mix("v0", to="v1", where="exact is None", **HERE)
    for verb, make in MADE.items():
        assert verb not in beside or f"the same {verb} with --overwrite removes it" in problems
        make(overwrite=True)
    assert not list((place / "v0").rglob("2.jsonl*"))
    assert status("v0").exit_status == validate("v0", **HERE).exit_status == 0


@pytest.mark.parametrize("only", [None, ["0"]])
def test_a_set_that_was_removed_as_a_whole_is_forgotten(place, only):
    dk.tag("v0", ["char_length_v1"], only=only, **HERE)
    shutil.rmtree(place / "v0/attributes/char_length_v1")
    found = status("v0")
    assert (row("v0", "tag").state, found.exit_status) == ("removed", 0)
    assert "tag of attributes/char_length_v1/: the attribute set was removed; the same" in str(found)
    (place / "v0/documents/1.jsonl.gz").write_bytes(b"nonsense")
    for number in 0, 2:
        (place / f"v0/documents/{number}.jsonl.gz").unlink()
    with pytest.raises(StageError):
        dk.tag("v0", ["char_length_v1"], **HERE)
    assert row("v0", "tag").state == "to do", "a run that could make nothing has removed nothing"


def test_only_attributes_of_documents_that_are_gone_are_removed_and_only_with_overwrite(place):
    dk.tag("v0", ["char_length_v1"], **HERE)
    attributes = place / "v0/attributes/char_length_v1"
    shutil.copy(attributes / "1.jsonl.gz", attributes / "of_another_tool.jsonl.gz")
    for name in "12":
        (place / f"v0/documents/{name}.jsonl.gz").rename(place / f"v0/documents/{name}.txt")
    (place / "v0/documents/1.txt").rename(place / "v0/documents/1.jsonl.gz")
    left_out = {"skip": ["1.jsonl.gz", "2.txt"]}
    found = dk.tag("v0", ["char_length_v1"], **left_out, **HERE)
    assert any("gone, kept; --overwrite removes" in note and "1 file" in note for note in found.notes)
    assert len(list(attributes.iterdir())) == 4
    dk.tag("v0", ["char_length_v1"], overwrite=True, **left_out, **HERE)
    there = sorted(path.name for path in attributes.iterdir())
    assert there == ["0.jsonl.gz", "1.jsonl.gz", "of_another_tool.jsonl.gz"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_a_set_that_was_made_again_is_done_though_another_is_not(place, how):
    dedupe("v0", how=how, name="one", **HERE)
    dedupe("v0", how=how, name="other", **HERE)
    (place / "raw/2.jsonl").write_text(lines(2, 9))
    dk.convert("raw", to="v0", source="s", **HERE)
    dedupe("v0", how=how, name="one", **HERE)
    assert numbers("v0", "dedupe", "attributes/one/") == (3, 0, 0)
    assert numbers("v0", "dedupe", "attributes/other/") == (0, 0, 3)


def test_outputs_that_are_gone_are_left(place):
    dk.tag("v0", ["char_length_v1"], **HERE)
    (place / "v0/attributes/char_length_v1/0.jsonl.gz").unlink()
    assert numbers("v0", "tag") == (2, 1, 0)
    (place / "v0/documents/0.jsonl.gz").unlink()
    assert numbers("v0", "convert") == (2, 1, 0)


def test_a_copy_is_done_and_its_time_stamps_are_told(place):
    dk.tag("v0", ["char_length_v1"], **HERE)
    shutil.copytree(place / "v0", place / "copy/v0", copy_function=shutil.copyfile)
    shutil.copytree(place / "raw", place / "copy/raw")
    assert numbers("copy/v0", "tag") == (3, 0, 0)
    assert row("copy/v0", "tag").touched == 3
    assert status("copy/v0").exit_status == 0
    assert "inputs of 3 shards have new time stamps" in str(status("copy/v0"))


def test_raw_files_that_were_cleared_away_are_not_changed_files(place):
    shutil.rmtree(place / "raw")
    found = status("v0")
    assert found.rows[0].done == 3
    assert found.exit_status == 0
    assert "what it was made from is not there any more" in str(found)


def test_a_run_that_was_stopped(place):
    journal = Journal(str(place / "v0"), "tag")
    writer = journal.start({}, ("attributes/char_length_v1/",), "1")
    writer.close()
    found = row("v0", "tag")
    assert (found.done, found.left, found.stopped) == (0, 3, True)
    assert status("v0").exit_status == 1
    assert "the last run was stopped or still goes on" in str(status("v0"))
    dk.tag("v0", ["char_length_v1"], **HERE)
    assert row("v0", "tag").state == "done"
    writer = Journal(str(place / "v0"), "convert").start({}, ("documents/more/",), "1", "../raw")
    writer.close()
    found = row("v0", "convert", "documents/more/")
    assert (found.state, found.left) == ("stopped or running", None)
    assert row("v0", "convert", "documents/").state == "done"
    assert "?" in str(status("v0"))


def test_records_that_were_set_aside(place):
    (place / "raw/3.jsonl").write_text(lines(3) + "nonsense\n")
    dk.convert("raw", to="v0", source="s", on_bad_record="quarantine", max_bad_fraction=0.5, **HERE)
    assert row("v0", "convert").bad_rows == 1
    assert "1 record set aside in _quarantine/convert/" in str(status("v0"))
    shutil.rmtree(place / "v0/_quarantine")
    assert row("v0", "convert").bad_rows == 0


def test_what_an_exchange_left_and_what_other_tools_made(place):
    folder = place / "v0/_work/dedupe-exact/abc"
    folder.mkdir(parents=True)
    (folder / "bucket.bin").write_bytes(b"x" * 1000)
    others = place / "v0/attributes/theirs"
    others.mkdir(parents=True)
    (others / "0.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
    found = status("v0")
    (left,) = found.leftovers
    assert (left.folder, left.verb, left.files, left.bytes) == ("_work/dedupe-exact", "dedupe", 1, 1000)
    assert found.exit_status == 1
    assert f"the same dolma-dask dedupe {place}/v0 goes on from there" in str(found)
    assert "attribute set theirs: 1 file of another tool" in str(found)


@pytest.mark.parametrize("verb", ["mix", "hdf5"])
def test_what_was_stopped_before_anything_was_there_is_told(place, monkeypatch, verb):
    train_tokenizer(["words of text"] * 9, place / "t.json", 300)
    calls = {
        "mix": lambda: dk.mix("v0", to="out", shuffle=True, seed=1, max_size=100, **HERE),
        "hdf5": lambda: hdf5("v0", "out", tokenizer="t.json", max_seq_length=8, **HERE),
    }
    first = {"mix": (SortStage, "run_shard"), "hdf5": (StagingOutput, "open")}[verb]

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*first, stop)
        with pytest.raises(InterruptedStageError):
            calls[verb]()
    assert not (place / "out/_journal").exists()
    found = status("out")
    assert (found.exit_status, found.shards, found.rows) == (1, 0, ())
    assert (
        f"of a {verb} that was stopped or still goes on: the same dolma-dask {verb} into {place}/out goes on"
        in str(found)
    )
    calls[verb]()
    assert status("out").exit_status == 0
    (place / "mine/_work/notes").mkdir(parents=True)
    (place / "mine/_work/notes/a.txt").write_text("of somebody else")
    with pytest.raises(UsageError, match="neither documents/ nor a journal"):
        status("mine")


def test_as_a_command(place, capsys):
    assert cli.main(["status", "v0", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["rows"][0]["verb"] == "convert"
    assert content["rows"][0]["state"] == "done"
    dk.tag("v0", ["char_length_v1"], prune=1, **HERE)
    assert cli.main(["status", "v0/documents"]) == 1
    assert "attributes/char_length_v1/" in capsys.readouterr().out
    assert cli.main(["status", "nowhere"]) == 2
    assert "holds neither documents/ nor a journal" in capsys.readouterr().err
    with pytest.raises(UsageError):
        status(str(place / "raw"))


def test_of_a_dataset_a_summary_and_other_tools_documents(place):
    assert status(dk.open_dataset("v0")).shards == status("v0").shards == 3
    assert status(dk.tag("v0", ["char_length_v1"], **HERE)).exit_status == 0
    shutil.rmtree(place / "v0/_journal")
    found = status("v0")
    assert (found.rows, found.exit_status) == ((), 0)
    assert "of another tool" in found._repr_html_()


@pytest.mark.slow
def test_outputs_that_are_not_one_per_shard(place):
    """Packed files of a mixer configuration, and parts of HDF5, are known by how their names begin."""
    streams = "".join(
        f"  - name: {name}\n    documents: [v0/documents/*.gz]\n    output: {{path: packed/documents, max_size_in_bytes: 200}}\n"
        for name in ("some", "more")
    )
    (place / "mixer.yaml").write_text(f"streams:\n{streams}seed: 3\n")
    assert cli.main(["-c", "mixer.yaml", "mix", "--scheduler", "synchronous", "--no-progress"]) == 0
    train_tokenizer(["words of 1 2 3 4"], place / "t.json", vocab_size=270)
    hdf5("v0", "h5", tokenizer="t.json", max_seq_length=8, max_rows_per_file=3, eos="<|endoftext|>", **HERE)
    packed = [(item.writes, item.left, item.changed) for item in status("packed").rows]
    assert packed == [("documents/some-*", 0, 0), ("documents/more-*", 0, 0)]
    (parts,) = status("h5").rows
    assert (parts.writes, parts.done, parts.left, parts.changed) == (
        "part-*",
        len(list(place.glob("h5/*.h5"))),
        0,
        0,
    )
    assert parts.done > 1
    for name in ("packed", "h5"):
        assert status(name).exit_status == 0
        assert not any(item.is_origin_gone for item in status(name).rows)
    (place / "raw/0.jsonl").write_text(lines(0, 7))
    dk.convert("raw", to="v0", source="s", **HERE)
    for name in ("packed", "h5"):
        assert all(item.changed and not item.done for item in status(name).rows), str(status(name))
    shutil.rmtree(place / "v0")
    for name in ("packed", "h5"):
        assert all(item.is_origin_gone and item.done for item in status(name).rows), str(status(name))


def test_on_an_object_store(root, tmp_path):
    (tmp_path / "raw").mkdir(exist_ok=True)
    (tmp_path / "raw/a.jsonl").write_text(lines(0))
    dk.convert(str(tmp_path / "raw"), to=f"{root}/v0", source="s", **HERE)
    dk.tag(f"{root}/v0", ["char_length_v1"], **HERE)
    dk.mix(f"{root}/v0", to=f"{root}/v1", **HERE)
    for name in ("v0", "v1"):
        found = status(f"{root}/{name}")
        assert found.exit_status == 0, str(found)
        assert all(item.done == 1 for item in found.rows)


def test_a_shard_that_is_checked_beside_several_attribute_sets_is_one(place):
    validate("v0", **HERE)
    dk.tag("v0", ["char_length_v1"], **HERE)
    validate("v0", **HERE)
    assert numbers("v0", "validate") == (3, 0, 0)
    (place / "v0/documents/0.jsonl.gz").write_bytes(gzip.compress(lines(7).encode()))
    assert numbers("v0", "validate") == (2, 0, 1)


def test_a_takedown_that_is_done_is_done_until_a_file_changes(place):
    dk.tag("v0", ["char_length_v1"], **HERE)
    (place / "ids.txt").write_text("1-2\nnobody\n")
    dk.remove("v0", ids="ids.txt", **HERE)
    assert [(one.writes, one.state) for one in status("v0").rows if one.verb == "remove"] == [
        ("_tombstones/", "done")
    ]
    assert status("v0").exit_status == 0
    shutil.rmtree("v0/attributes/char_length_v1")
    assert row("v0", "remove").state == "done", "what is gone holds no document"
    (place / "v0/documents/0.jsonl.gz").write_bytes(gzip.compress(lines(0, 7).encode()))
    assert numbers("v0", "remove")[1:] == (0, 1)


def test_what_is_made_of_all_shards_says_how_many_are_not_in_it(place):
    dk.tag("v0", ["char_length_v1"], **HERE)
    options = {"signals": ["length"], "level": "regular", **HERE}
    quantiles("v0", **options)
    assert not any("not in it" in note for note in status("v0").notes)
    (place / "raw/3.jsonl").write_text(lines(3))
    dk.convert("raw", to="v0", source="s", **HERE)
    dk.tag("v0", ["char_length_v1"], **HERE)
    assert "quantiles of quantiles/quantiles.json: 1 shard not in it, new or left out by options" in str(
        status("v0")
    )
    assert quantiles("v0", **options).done
    assert not any("not in it" in note for note in status("v0").notes)
