"""Commands of the Dolma toolkit run here by their own words and files, and what cannot be done is refused with its place."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from toolkit_table import PAGE, with_tables

from dolma_dask.cli import main
from dolma_dask.pipelines.dolma_calls import OWN
from dolma_dask.pipelines.dolma_options import CONFIGS
from dolma_dask.pipelines.dolma_rows import leaves
from dolma_dask.registry import TOOLKIT, load
from dolma_dask.testing.tokenizer import train_tokenizer

QUIET = ["--scheduler", "synchronous", "--no-progress"]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("v0/documents/wiki/a", "v0/documents/b", "v0/documents/wiki/b", "v1/documents/c"):
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {"id": f"{name}{i}", "source": "s", "text": "same text", "metadata": {"page": {"hash": f"h{i}"}}}
            for i in range(3)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def called(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return the answer of a call that succeeds, as JSON."""
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    return capsys.readouterr().err


@pytest.mark.slow
def test_tag(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "tag --documents v0/documents/wiki/*.jsonl --taggers char_length_v1 --experiment e --processes=1 --profile.enable --no-debug"
    made = called(capsys, *words.split(), "--destination", "./v0/attributes/e", *QUIET)
    assert files_in(corpus / "v0/attributes") == ["e/wiki/a.jsonl", "e/wiki/b.jsonl"]
    assert [note.partition(":")[0] for note in made["notes"]] == ["profile.enable"]
    again = called(capsys, *words.split(), *QUIET, "--documents", "v?/documents/**")
    assert [part["done"] for part in again["datasets"]] == [1, 1], (
        "all shards of both, but two that are finished"
    )


@pytest.mark.slow
def test_tokens_and_stat(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two datasets, each into a folder of its own; special tokens by their ids."""
    train_tokenizer(["same text"] * 9, corpus / "t.json", vocab_size=300)
    end = json.loads((corpus / "t.json").read_text())["added_tokens"][0]["id"]
    tokenizer = ["--tokenizer.name_or_path", "t.json", "--tokenizer.eos_token_id", str(end)]
    words = [
        "tokens",
        "--documents",
        "v?/documents/**",
        "--destination",
        "out",
        *tokenizer,
        "--dtype",
        "uint32",
    ]
    made = called(capsys, *words, *QUIET)
    assert [part["counts"]["documents_out"] for part in made["datasets"]] == [9, 3]
    assert made["notes"] == ["dtype: no effect: uint16, or uint32 where the vocabulary needs it"]
    tables = [name for name in files_in(corpus / "out") if name.endswith(".csv.gz")]
    assert tables == ["v0/part-0-00000.csv.gz", "v1/part-0-00000.csv.gz"]
    for wrong in (-1, 1 << 40):
        text = refused(capsys, *words, "--tokenizer.eos_token_id", str(wrong))
        assert f"tokenizer.eos_token_id: {wrong}; expected an id of t.json, up to" in text
    by_old_name = ["tokens", "v1", "new", "--tokenizer_name_or_path", "t.json", "--dryrun"]
    assert main([*by_old_name, "--tokenizer.bos_token_id", str(end)]) == 0
    assert "--bos '<|endoftext|>' --eos none" in capsys.readouterr().out
    sources = [{"prefix": "out/v0", "sample_rate": 2}, {"prefix": "out/v1", "sample_rate": 1}]
    (corpus / "reshard.yaml").write_text(
        json.dumps({"source_prefixes": sources, "destination_prefix": "all", "max_num_files": 2})
    )
    assert called(capsys, "-c", "reshard.yaml", "reshard", *QUIET)["done"] == 2
    assert {"000000.npy", "000001.csv.gz"} <= {*files_in(corpus / "all")}
    assert main(["tag", "v0", "--taggers", "char_length_v1", *QUIET]) == 0
    capsys.readouterr()
    told = called(capsys, "stat", "--attributes", "v0/attributes/char*/wiki/*", "--report", "r", *QUIET)
    totals = {series["name"].rpartition("__")[2]: series["total"] for series in told["series"]}
    assert totals == {"length/score": 6, "length/length": 6}
    assert files_in(corpus / "r") == ["summaries.jsonl.gz"]


@pytest.mark.slow
def test_stat_of_files_elsewhere(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have the values and the report of the same files in a dataset."""
    assert main(["tag", "v0", "--taggers", "char_length_v1", "gopher_v2", "--experiment", "e", *QUIET]) == 0
    shutil.copytree("v0/attributes/e", "elsewhere/of/e")
    (corpus / "elsewhere/of/e/_SUCCESS").touch()
    capsys.readouterr()
    more = ["--regex", "length|word", *QUIET]
    told = called(capsys, "stat", "--attributes", "v0/attributes/e/**", "--report", "r", *more)
    alone = called(capsys, "stat", "--attributes", "elsewhere/of/**", "--report", "s", *more)
    assert alone["series"] == told["series"]
    assert len(told["series"]) > 4
    assert "in no folder `attributes`" in alone["notes"][0]
    assert (corpus / "r/summaries.jsonl.gz").read_bytes() == (corpus / "s/summaries.jsonl.gz").read_bytes()
    (corpus / "elsewhere/of/e/b.jsonl").write_text('{"id": "1", "attributes": {"a": [[0, 1')
    assert main(["stat", "--attributes", "elsewhere/of/**", *more]) == 1
    assert "b.jsonl" in capsys.readouterr().err


@pytest.mark.slow
def test_dedupe_and_mix_by_files(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """References, options beside the file that count more, flags under the names that the mix asks for."""
    Path("dedupe.yaml").write_text("""\
documents: ["${oc.env:ROOT_OF_TEST,v0}/documents/**/*.jsonl"]
processes: ${d.processes:100}
bloom_filter: {file: b, read_only: false, size_in_bytes: 1000}
is_s3_volume: true
dedupe: {name: same, skip_empty: false, documents: {attribute_name: dup, key: "$.metadata['page'].hash"}}
""")
    made = called(capsys, "-c", "dedupe.yaml", "dedupe", "--dedupe.num_partitions", "2", *QUIET)
    assert [note.partition(":")[0] for note in made["notes"]] == [
        "is_s3_volume",
        "dedupe.num_partitions",
    ]
    rows = map(json.loads, (corpus / "v0/attributes/same_0/wiki/b.jsonl").read_text().splitlines())
    assert [row["attributes"] for row in rows] == [{"dup": [[0, 9, 1]]}] * 3
    other = ["--dedupe.num_partitions", "2", "--dedupe.partition_index", "1"]
    assert called(capsys, "-c", "dedupe.yaml", "dedupe", *other)["done"] == 0
    stream = {
        "name": "m",
        "documents": "${d.glob:v0/documents/**/*.jsonl}",
        "attributes": ["same_0"],
        "output": {"path": "nowhere"},
        "filter": {"include": ["$.text"]},
    }
    Path("mix.json").write_text(json.dumps({"streams": [stream]}))
    beside = [
        "--streams.0.output.path",
        "out/${streams.0.name}",
        "--streams.0.filter.exclude",
        "$.attributes[?(@.dup && @.dup[0])]",
    ]
    mixed = called(capsys, "-c", "mix.json", "mix", *beside, *QUIET)
    assert (mixed["counts"]["documents_out"], mixed["target"]) == (3, str(corpus / "out/m"))


SHOWN = {
    "tag --documents v0/documents/*.jsonl v1/documents/**/*.jsonl --taggers char_length_v1 --debug --dryrun": [
        "dolma-dask tag v0 --taggers char_length_v1 --scheduler synchronous --only '[b].jsonl'",
        "dolma-dask tag v1 --taggers char_length_v1 --scheduler synchronous",
    ],
    "tag --documents v0/documents/wiki/**/*.jsonl v1/documents/** --taggers char_length_v1 --processes 1 --dryrun": [
        "dolma-dask tag v0 --taggers char_length_v1 --workers 1 --only 'wiki/*.jsonl'",
        "dolma-dask tag v1 --taggers char_length_v1 --workers 1",
    ],
    "tag v0 --taggers char_length_v1 --processes 3 --ignore-existing --dryrun": [
        "dolma-dask tag v0 --taggers char_length_v1 --workers 3 --overwrite"
    ],
    "dedupe v0 --dedupe.paragraphs.attribute_name p --dedupe.paragraphs.by_ngram.ngram_length 8 --dedupe.min_words 3 --bloom_filter.file f --bloom_filter.estimated_doc_count 9 --dryrun": [
        "dolma-dask dedupe v0 --min-words 3 --unit paragraph --ngram 8 --overlap 1.0 --stride 1 --name p --key p --bloom f --bloom-keys 9"
    ],
    "dedupe v0 --dedupe.documents.attribute_name d --dedupe.skip_empty --bloom_filter.file f --bloom_filter.desired_false_positive_rate 1e-15 --dryrun": [
        "dolma-dask dedupe v0 --key d --skip-empty --by text --name d --bloom f --bloom-rate 1e-12"
    ],
    "dedupe --documents v?/documents/**/*.jsonl --dedupe.documents.attribute_name d --compression.output zst --dryrun": [
        "dolma-dask dedupe v0 --key d --by text --name d --format jsonl.zst --others v1"
    ],
}


@pytest.mark.parametrize("words", SHOWN)
def test_a_rehearsal_prints_what_would_be_called(
    words: str, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it is YAML that the command takes again."""
    assert main([*words.split(), "--no-progress"]) == 0
    text = capsys.readouterr().out
    lines = [line[2:] for line in text.splitlines() if line.startswith("# dolma-dask")]
    assert sorted(lines) == sorted(SHOWN[words])
    assert not (corpus / "v0/attributes").exists()
    (corpus / "again.yaml").write_text(text)
    name, *places = words.partition(" --")[0].split()
    assert main(["-c", "again.yaml", name, *places]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(text)


def test_parts_of_several_datasets_are_compared(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One list of patterns is for all of them: refused where a file of another dataset would be taken too."""
    words = ["dedupe", "--dedupe.documents.attribute_name", "d", "--dryrun", "--documents"]
    assert main([*words, "v0/documents/wiki/a.jsonl", "v1/documents/*.jsonl"]) == 0
    text = capsys.readouterr().out
    (call,) = (line for line in text.splitlines() if line.startswith("# dolma-dask"))
    assert "dedupe v0 " in call
    assert call.endswith(" --others v1 --only wiki/a.jsonl '[c].jsonl'")
    assert "documents of 1 of 3 shards were compared" in text
    other = corpus / "v1/documents/wiki/a.jsonl"
    other.parent.mkdir()
    other.write_text("")
    assert "a part of v0 and v1, which no patterns tell" in refused(
        capsys, *words, "v0/documents/wiki/a.jsonl", "v1/documents/*.jsonl"
    )


def test_files_are_named_one_by_one_up_to_a_number(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "tag --documents v0/documents/b.jsonl v0/documents/wiki/a.jsonl --taggers char_length_v1 --dryrun"
    assert main(words.split()) == 0
    assert "--only '[b].jsonl' '[w]iki/a.jsonl'" in capsys.readouterr().out
    monkeypatch.setattr("dolma_dask.pipelines.dolma_datasets.MAX_NAMED", 1)
    assert "2 files of v0 cannot be told from its others by patterns" in refused(capsys, *words.split())


FILES = {
    "tag {documents: [v0/documents/*], taggers: [char_lenth_v1]}": "column 40: taggers: there is no tagger 'char_lenth_v1'; did you mean 'char_length_v1'",
    "tag {documents: [v0/documents/*], tagers: []}": "column 31: tagers: there is no such key; did you mean 'taggers'?",
    "tag {processes: many, profile: {enabel: 1}}": "profile.enabel: there is no such key; did you mean 'enable'?",
    "tag {documents: v0/documents/*}": "documents: v0/documents/*; expected a list",
    "tag {documents: [v0/documents/*]}": "taggers: there are none",
    "tag {documents: [dedupe.yaml], taggers: [char_length_v1]}": "no file matches dedupe.yaml",
    "tag {documents: [file.yaml], taggers: [char_length_v1]}": "does not lie below a folder 'documents'",
    "tag {documents: [v0/documents/*], taggers: [char_length_v1], destination: [else]}": "destination: else; expected",
    "tag {documents: '${d.glob:no/*}', taggers: [char_length_v1]}": "no file matches 'no/*'",
    "tag {processes: '${d.processes:%s}'}" % ("9" * 5000): "expected how many processors are left free",
    "tag {documents: ['${documents[²]}']}": "${documents[²]} leads to nothing",
    "tag {processes: '${d.processes:two}'}": "${d.processes:two}; expected how many processors are left free",
    "tag {documents: [v0/documents/*, '${unclosed'], taggers: [char_length_v1]}": "line 1, column 30: '${unclosed': a reference that cannot be read",
    "tag {documents: ['${oc.env:A,${d.cache:v0}', '${}', 'a${b'], taggers: [char_length_v1]}": "has 3 mistakes",
    "tag {documents: [v0/documents/*], processes: -1}": "line 1, column 42: processes: -1; expected a number of processes",
    "mix {processes: -1}": "line 1, column 13: processes: -1; expected a number of processes",
    "dedupe {documents: [v0/documents/*]}": "dedupe.documents.attribute_name: it is missing",
    "dedupe {documents: [v0/documents/*], dedupe: {documents: {attribute_name: a, key: $..url}}}": "dedupe.documents.key: '$..url'; expected the path of one value",
    "dedupe {documents: [v0/documents/**], dedupe: {documents: {attribute_name: a}}, bloom_filter: {file: file.yaml}}": "file.yaml is there",
    "dedupe {dedupe: {documents: {attribute_name: a}, paragraphs: {attribute_name: b}}}": "dedupe.documents is there too",
    "dedupe {documents: [v0/documents/*.jsonl], dedupe: {documents: {attribute_name: a}}, compression: {input: gz}}": "compression.input: 'gz', for v0/documents/*.jsonl; expected names",
    "dedupe {dedupe: {documents: {attribute_name: a}, num_partitions: 2, partition_index: 2}}": "dedupe.partition_index: 2 of 2; expected partitions counted from 0",
    "dedupe {dedupe: {documents: {attribute_name: a}, num_partitions: 0}}": "dedupe.partition_index: 0 of 0; expected",
    "tokens {documents: [v0/documents/**], destination: out}": "tokenizer.name_or_path: it is missing",
    "tokens {documents: [v0/documents/**], destination: out, tokenizer: {name_or_path: t.json}}": "tokenizer.eos_token_id: it is missing",
    "stat {attributes: [v0/documents/**]}": "text: no numbers or spans; expected a key of such",
    "warc {documents: [a.warc.gz], destination: [b]}": "needs `source_name`, which is missing",
    "warc {documents: [a.warc.gz], destination: [b], source_name: c, pre: {taggers: [cc_er]}}": "column 75: pre.taggers: there is no tagger 'cc_er'; did you mean 'cc_re'",
    "mix {streams: [{name: x, documents: [a], output: {pth: b}}]}": "streams[0].output.pth: there is no such key; did you mean 'path'?",
    "mix {streams: [{name: x, documents: [a], output: {path: b}, filter: {exclude: [$.a, '$.b[?(@.c >> 2)]']}}]}": "line 1, column 81: streams[0].filter.exclude[1], character 12: cannot read this JSONPath",
    "mix {streams: [{name: x, documents: [a], output: {path: b}, filter: {syntax: jqq, include: [$.a]}}]}": "column 74: streams[0].filter.syntax: syntax='jqq'; expected one of",
    "mix {streams: [{name: x, documents: [a], output: {path: b}, span_replacement: [{span: $.a, min_score: 1}, {span: $.a, min_score: 1, replacement: '$.b['}]}]}": "column 142: streams[0].span_replacement[1].replacement",
    "mix {streams: [{name: x, documents: [a], output: {path: b}, filter: {include: ['$.', 'a'], exclude: ['$['], }}]}": "has 3 mistakes",
    "mix {processes: 3}": "has no streams",
}


@pytest.mark.parametrize("command", FILES)
def test_mistakes_of_files(command: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, _, text = command.partition(" ")
    (corpus / "file.yaml").write_text(text)
    assert FILES[command] in refused(capsys, "-c", "file.yaml", name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "tag --documnts x --taggers y --processes 1",
            "unknown option --documnts; did you mean '--documents'?",
        ),
        ("tag --documents x --taggers y --processes 1 2", "--processes takes one value"),
        ("tag --documents x --on-bad-recrd y", "did you mean '--on-bad-record'?"),
        ("tag --documents x --on-bad-record y", "Help: dolma-dask tag --help"),
        ("tokens --documents x --engine y", "Help: dolma-dask ragged --help"),
        ("mix --streams.1.name x", "--streams.1.name: 1 is not there"),
        ("mix --processes 4", "has no streams"),
        ("mix -c none.yaml", "none.yaml: there is no such file"),
        ("tag v0 v1 --taggers y --processes 1", "v1: no option is named before it"),
        ("tag --documents v0/documents/** --taggers y --debug false", "false: no option is named before it"),
        ("stat --attributes a/attributes/e/*.gz", "no file matches a/attributes/e/*.gz"),
    ],
)
def test_mistakes_of_words(
    words: str, message: str, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *words.split())


@pytest.mark.parametrize(
    "words",
    [
        "tag --taggers char_length_v1 --documents",
        "tag --dryrun --taggers char_length_v1 --documents",
        "dedupe --dedupe.documents.attribute_name a --documents",
        "tokens --destination out --tokenizer_name_or_path t.json --documents",
        "stat --attributes",
        "warc --source_name s --destination out --documents",
        "-c mix.json mix",
        "-c mix.json mix --dryrun",
    ],
)
def test_a_pattern_that_matches_nothing_beside_one_that_does(
    words: str, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip would leave out a whole source."""
    if words.startswith("tokens"):
        train_tokenizer(["same text"] * 9, corpus / "t.json", vocab_size=300)
    (corpus / "v1/attributes/e").mkdir(parents=True)
    (corpus / "v1/attributes/e/c.jsonl").touch()
    patterns = ["v1/attributes/**" if words.startswith("stat") else "v1/documents/**", "typo/documents/**"]
    stream = {"name": "m", "documents": patterns, "output": {"path": "out"}}
    (corpus / "mix.json").write_text(json.dumps({"streams": [stream]}))
    text = refused(capsys, *words.split(), *([] if "mix" in words else patterns))
    assert ("typo/documents/**: " if "warc" in words else "no file matches typo/documents/**; ") in text
    assert not (corpus / "out").exists()


@pytest.mark.parametrize(
    "words",
    ["tag --taggers a", "tag v0 --taggrs a", "dedupe v0 --bye x", "mix", "tokns", "run --documents x"],
)
def test_mistakes_in_our_own_words_stay_such(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, *words.split())
    assert "toolkit" not in text
    assert "dolma-dask tag: unknown" not in text


def test_every_option_says_what_it_does_here(capsys: pytest.CaptureFixture[str]) -> None:
    """And what it becomes is an option of the command here."""
    for name, kind in CONFIGS.items():
        known = load(OWN[name]).command.fields
        for leaf in leaves(kind):
            assert leaf.row.here, f"{name}: {leaf.name}"
            assert leaf.row.to in ("", *(field.name for field in known)) or name == "mix", leaf.name
    for name in TOOLKIT:
        assert main(["-c", "FILE", name, "--help"]) == 0
        assert name in capsys.readouterr().out


def test_the_page_has_every_option() -> None:
    """After changes: python tools/toolkit_table.py."""
    assert PAGE.read_text() == with_tables(PAGE.read_text())
    assert {*CONFIGS} == {*TOOLKIT}
