"""Mixer configurations of the Dolma toolkit: what they say, what is wrong with them, streams of one dataset and of several."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.errors import BadRecordBudgetError, InterruptedStageError, StageError, UsageError
from dolma_dask.outputs.cutting import JoinStage
from dolma_dask.pipelines.dolma_mix import mix_config, read_config
from dolma_dask.verbs.mix.streams import output_folder

from .conftest import failing, write_lines

HERE: dict[str, Any] = {"scheduler": "synchronous", "progress": False}


def put(root: Path, name: str, count: int, **values: Any) -> None:
    rows = [{"id": f"{name}-{row}", "text": f"text {row}", "n": row} for row in range(count)]
    write_lines(root / f"documents/{name}.jsonl.gz", [json.dumps(row) for row in rows])
    for key, value in values.items():
        lines = [json.dumps({"id": row["id"], "attributes": {key: value(row["n"])}}) for row in rows]
        write_lines(root / f"attributes/{key}/{name}.jsonl.gz", lines)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(path for path in folder.glob("*.gz"))
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for root in ("one", "two"):
        put(tmp_path / root, "a", 4, score=lambda n: [[0, 6, n]], spans=lambda n: [[0, 4, 1]])
        put(tmp_path / root, "sub/b", 2, score=lambda n: [[0, 6, n]], spans=lambda n: [[0, 4, 1]])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stream(**more: Any) -> dict[str, Any]:
    return {
        "name": "m",
        "documents": ["one/documents/**/*.gz"],
        "attributes": ["score"],
        "output": {"path": "out"},
        **more,
    }


def mixed(*streams: dict[str, Any], **options: Any) -> Any:
    own = {name: options.pop(name) for name in ("shuffle",) if name in options}
    return mix_config({"streams": list(streams), **own}, **HERE, **options)


INCLUDE = {"include": ["$.attributes[?(@.score[0][2] >= 1)]"]}


def test_rows_carry_attributes_and_provenance(corpus: Path) -> None:
    mixed(stream(filter=INCLUDE))
    assert rows_of(corpus / "out") == [
        {
            "id": f"{name}-{row}",
            "text": f"text {row}",
            "n": row,
            "attributes": {"score": [[0, 6, row]]},
            "metadata": {"provenance": f"{name.rpartition('/')[2]}.jsonl.gz:{row + 1}"},
        }
        for name, count in (("a", 4), ("sub/b", 2))
        for row in range(1, count)
    ]


def test_yaml_and_json_say_the_same(corpus: Path) -> None:
    config = {
        "streams": [stream(filter=INCLUDE)],
        "processes": 1,
        "work_dir": {"input": None, "output": "tmp"},
    }
    (corpus / "c.json").write_text(json.dumps(config, indent=1))
    (corpus / "c.yaml").write_text(
        """
streams:
  - name: m
    documents: [one/documents/**/*.gz]
    attributes:
      - score
    output: {path: out}
    filter:
      include:
        - "$.attributes[?(@.score[0][2] >= 1)]"
processes: 1
work_dir:
  input: null
  output: tmp
"""
    )
    assert read_config("c.json") == read_config("c.yaml")
    mix_config("c.yaml", **HERE)
    again = mix_config("c.json", **HERE)
    assert (again.done, again.skipped) == (0, 2)


def test_interpolation(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE_TO", "there")
    config = {
        "processes": "${d.processes:100}",
        "streams": [
            stream(
                name="${streams[0].attributes.0}-x",
                output={"path": "${oc.env:WHERE_TO}/${.max_size_in_bytes}", "max_size_in_bytes": 7000},
            ),
            stream(
                name="y",
                output={
                    "path": "${oc.env:NOT_SET,here}",
                    "max_size_in_bytes": "${streams.0.output.max_size_in_bytes}",
                },
            ),
        ],
    }
    read = read_config(config)
    assert read.processes == 1
    assert [item.name for item in read.streams] == ["score-x", "y"]
    outputs = [(item.output.path, item.output.max_size_in_bytes) for item in read.streams]
    assert outputs == [("there/7000", 7000), ("here", 7000)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("streams:\n  - name: m\n    atributes: [a]\n", r"line 3, column 5: streams\[0\]\.atributes: there is no such key; did you mean 'attributes'\?"),
        ("streams:\n  - name: m\n    documents: x.gz\n", r"line 3, column 16: streams\[0\]\.documents: x\.gz; expected a list"),
        ("streams:\n  - name: m\n    output: {max_size_in_bytes: big}\n", r"max_size_in_bytes: big; expected a whole number"),
        ("stream: []\n", r"line 1, column 1: stream: there is no such key; did you mean 'streams'\?"),
        ("streams: []\n", "no streams"),
        ("streams:\n  - documents: [a]\n", r"streams\[0\] needs `name` and `output`, which are missing"),
        ("streams:\n  - name: m\n    span_replacement: [{min_score: 1}]\n", r"span_replacement\[0\] needs `span`, which is missing"),
        ("streams:\n  - name: ${streams[0].name}\n", "leads back to itself"),
        ("streams:\n  - name: ${nope}\n", r"\$\{nope\} leads to nothing"),
        ("streams:\n  - name: ${oc.env:SURELY_NOT_SET}\n", "environment variable SURELY_NOT_SET is not set"),
        ("streams:\n  - name: ${d.glub:*}\n", r"\$\{d.glub:\.\.\.\} is not known here"),
        ("shuffle: maybe\n", "shuffle: maybe; expected true or false"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_places(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UsageError, match=message):
        mix_config(str(tmp_path / "c.yaml"), **HERE)


@pytest.mark.parametrize(
    "more, message",
    [
        (
            {"documents": ["one/documents/*.parquet"]},
            r"stream 'm': no file matches one/documents/\*\.parquet",
        ),
        ({"documents": ["one/documents/*.gz", "typo/*"]}, r"no file matches typo/\*; expected"),
        ({"documents": []}, "stream 'm': no file is named; expected"),
        ({"documents": ["one/attributes/score/*.gz"]}, "does not lie below a folder 'documents'"),
        ({"compression": {"input": "zst"}}, r"is said to be jsonl\.zst"),
        ({"compression": {"output": "bz2"}}, "expected gz, zst"),
        ({"filter": {"include": ["$.attributes.nope"]}}, "no row has the attribute 'nope'"),
        (
            {"filter": {"include": ["$.a["]}},
            r"^the configuration, streams\[0\].filter.include\[0\], character 5: cannot read this JSONPath",
        ),
        (
            {"filter": {"include": ["$.a"], "syntax": "jqq"}},
            r"^the configuration, streams\[0\].filter.syntax: syntax='jqq'",
        ),
        ({"attributes": ["absent"]}, "has no attribute set 'absent'"),
        ({"output": {"path": "one"}, "filter": INCLUDE}, "would write over its own input"),
    ],
)
def test_streams_that_cannot_be(corpus: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mixed(stream(**more))


def test_several_streams(corpus: Path) -> None:
    streams = [
        stream(name="x", filter=INCLUDE),
        stream(
            name="y",
            documents=["two/documents/a.jsonl.gz"],
            attributes=[],
            output={"path": "out", "discard_fields": ["n", "attributes"]},
        ),
    ]
    summary = mixed(*streams)
    assert sorted(path.name for path in (corpus / "out").glob("*.gz")) == [
        "x-0000.jsonl.gz",
        "y-0000.jsonl.gz",
    ]
    assert summary.counts["documents_out"] == 8
    assert "stream" in str(summary)
    assert summary.to_json()["streams"]["y"]["counts"]["documents_out"] == 4
    assert mixed(*streams).done == 0


def test_one_stream_of_several_datasets(corpus: Path) -> None:
    documents = ["two/documents/*.gz", "one/documents/*.gz"]
    both, one = stream(documents=documents), stream(documents=documents[:1], output={"path": "plain"})
    mixed(both, prune=1)  # files of one dataset alone are known without its root
    mixed(both)
    assert [row["id"] for row in rows_of(corpus / "out")] == [f"a-{row}" for row in range(4)] * 2
    with pytest.raises(UsageError, match=r"1 file that this run does not read, first .*/one/documents/a"):
        mixed(both, prune=1)
    again = mixed(both)
    assert (again.done, again.skipped) == (0, 2)
    mixed(one, shuffle=False)
    assert len(rows_of(corpus / "plain/documents")) == 4
    with pytest.raises(UsageError, match="written by more than one input"):
        mixed({**both, "output": {"path": "other"}}, shuffle=False)


def test_a_failed_stream_does_not_stop_the_others(corpus: Path) -> None:
    lines = [json.dumps({"id": "other", "attributes": {"score": []}})] * 4
    write_lines(corpus / "one/attributes/score/a.jsonl.gz", lines)
    streams = [stream(name="x"), stream(name="y", documents=["two/documents/*.gz"])]
    with pytest.raises(StageError, match=r"x: a\.jsonl\.gz"):
        mixed(*streams)
    assert [path.name for path in (corpus / "out").glob("*.gz")] == ["y-0000.jsonl.gz"]


def test_a_file_that_is_not_there_is_no_pipeline(corpus: Path) -> None:
    with pytest.raises(UsageError, match="no such file; expected a configuration of the Dolma toolkit"):
        read_config("none.yaml")


def test_dryrun_and_files_as_the_inputs(corpus: Path) -> None:
    config = {"streams": [stream()], "dryrun": True, "shuffle": True}
    summary = mix_config(config, **HERE)
    assert summary.planned == ("a.jsonl.gz", "sub/b.jsonl.gz")
    assert not (corpus / "out").exists()
    mix_config({**config, "dryrun": False, "shuffle": False}, **HERE)
    assert (corpus / "out/documents/sub/b.jsonl.gz").exists()


def test_seed_and_sample(corpus: Path) -> None:
    put(corpus / "three", "a", 300)
    config = {
        "seed": 3,
        "streams": [stream(documents=["three/documents/*.gz"], attributes=[], sample_rate=1.5)],
    }
    mix_config(config, **HERE)
    ids = [row["id"] for row in rows_of(corpus / "out")]
    assert 420 < len(ids) < 480
    assert len(set(ids)) == 300
    assert ids != sorted(ids)


def test_journals_never_lie_among_documents(corpus: Path) -> None:
    mixed(stream(output={"path": "v1/documents"}))
    assert sorted(path.name for path in (corpus / "v1").iterdir()) == ["_journal", "documents"]
    assert [path.name for path in (corpus / "v1/documents").iterdir()] == ["m-0000.jsonl.gz"]


def paths_in(folder: Path) -> list[str]:
    """Return all files, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_output_folders_hold_outputs_and_nothing_else(corpus: Path) -> None:
    """Also one that lies in another, that is named through a link, and of documents that could not be read."""
    for root in ("one", "two"):
        write_lines(corpus / root / "documents/bad.jsonl.gz", ["nonsense"])
    (corpus / "real/deep").mkdir(parents=True)
    (corpus / "link").symlink_to("real/deep")
    places = {"x": "out/x", "y": "out/y", "z": "out", "w": "link", "v": "made/../out/x/v/w"}
    streams = [
        stream(name=name, attributes=[], output={"path": path}, documents=[f"{root}/documents/**/*.gz"])
        for (name, path), root in zip(places.items(), ("one", "two", "one", "one", "two"), strict=True)
    ]
    options: dict[str, Any] = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5}
    done = mixed(*streams, **options)
    assert {name: each.target for name, each in done.streams} == {
        **{name: str(corpus / path) for name, path in places.items()},
        "w": str(corpus / "real/deep"),
        "v": str(corpus / "out/x/v/w"),
    }
    files = [
        "out/x/x-0000.jsonl.gz",
        "out/y/y-0000.jsonl.gz",
        "out/z-0000.jsonl.gz",
        "out/x/v/w/v-0000.jsonl.gz",
    ]
    assert paths_in(corpus / "out") == sorted(file.removeprefix("out/") for file in files)
    assert paths_in(corpus / "real/deep") == ["w-0000.jsonl.gz"]
    kept = [path for path in paths_in(corpus) if "_quarantine/" in path]
    assert len(kept) == 5, "one for each stream, though names of files are the same"
    again = mixed(*streams, **options)
    assert (again.done, again.skipped) == (0, 15)
    assert not list(corpus.rglob("_work/*/*"))


@pytest.mark.parametrize(
    ("path", "root", "prefix"),
    [
        ("s3://b/out/x", "s3://b/out", "x/"),
        ("s3://b/out/x/y/", "s3://b/out", "x/y/"),
        ("s3a://b/full", "s3a://b", "full/"),
        ("s3://top", "s3://top", ""),
        ("s3://b/apart", "s3://b/apart", ""),
        ("s3://b/v1/documents/x", "s3://b/v1", "documents/x/"),
        ("s3://b/full/documents", "s3://b", "full/documents/"),
        ("/full", "/", "full/"),
    ],
)
def test_what_lies_beside_an_output(path: str, root: str, prefix: str) -> None:
    full = {"s3://b/out/x", "s3://b/full", "s3://top", "/full"}
    assert output_folder(path, full) == (root, prefix)


def test_a_stopped_stream_goes_on_beside_another_of_its_name(corpus: Path) -> None:
    both = [stream(output={"path": path}) for path in ("out/a", "out/b")]
    for each in both:
        with failing(JoinStage), pytest.raises(InterruptedStageError):
            mixed(each)
    assert not list((corpus / "out/a").glob("*"))
    assert len(list((corpus / "out/_work").glob("mix-*"))) == 2, "neither has removed what the other left"
    assert mixed(both[0]).done == 0
    assert paths_in(corpus / "out/a") == ["m-0000.jsonl.gz"]
    assert len(list((corpus / "out/_work").glob("mix-*"))) == 1


def test_a_mix_beside_a_dataset_says_nothing_of_its_documents(corpus: Path) -> None:
    write_lines(corpus / "one/documents/bad.jsonl.gz", ["nonsense"])
    with pytest.raises(BadRecordBudgetError, match=r"Most often .*one/_quarantine/mix/mixed/, mend"):
        mixed(
            stream(output={"path": "one/mixed"}, attributes=[]),
            on_bad_record="quarantine",
            max_bad_fraction=0.1,
        )
    (corpus / "one/documents/bad.jsonl.gz").unlink()
    with failing(JoinStage), pytest.raises(InterruptedStageError):
        mixed(stream(output={"path": "one/mixed"}))
    notes = dk.mix(str(corpus / "one"), to="other", source="s", **HERE).notes
    assert not [note for note in notes if "complete" in note or "budget" in note]


@pytest.mark.slow
def test_spans_are_replaced_and_the_others_move(corpus: Path) -> None:
    replacement = [{"span": "$.attributes.spans", "min_score": 0.5, "replacement": "T"}]
    mixed(stream(attributes=["score", "spans"], span_replacement=replacement))
    row = rows_of(corpus / "out")[1]
    assert (row["text"], row["attributes"]) == ("T 1", {"score": [[0, 3, 1]], "spans": []})
    mixed(
        stream(attributes=["score", "spans"], span_replacement=replacement),
        compat="dolma-1.2",
        overwrite=True,
    )
    row = rows_of(corpus / "out")[1]
    assert (row["text"], row["attributes"]) == ("T 1", {"score": [[0, 6, 1]], "spans": [[0, 4, 1]]})


def test_two_names_of_which_one_begins_with_the_other(corpus: Path) -> None:
    for name in ("m-2", "m"):
        mixed(stream(name=name))
    assert mixed(stream(name="m-2")).done == 0
    assert sorted(path.name for path in (corpus / "out").glob("*.gz")) == [
        "m-0000.jsonl.gz",
        "m-2-0000.jsonl.gz",
    ]


def test_only_and_prune(corpus: Path) -> None:
    mixed(stream(), only=["sub/*"])
    assert [row["id"] for row in rows_of(corpus / "out")] == ["sub/b-0", "sub/b-1"]
    with pytest.raises(UsageError, match="was made from 1 file that this run does not read"):
        mixed(stream(), prune=1)
    mixed(stream(), prune=1, overwrite=True)
    assert [row["id"] for row in rows_of(corpus / "out")] == [f"a-{row}" for row in range(4)]
    assert mixed(stream(), share="9/9").done == 0
    with pytest.raises(UsageError, match="no shard of stream 'm' matches 'nope'"):
        mixed(stream(), only=["nope"])
