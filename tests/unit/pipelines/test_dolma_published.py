"""Configuration files as they are published for tag, dedupe and tokens of the Dolma toolkit: the same keys and kinds of values, over files of ours."""

import gzip
import json
from pathlib import Path

import pytest

from dolma_dask.cli import main
from dolma_dask.testing.tokenizer import train_tokenizer

FILTER = """
bloom_filter:
  file: ${oc.env:HOME}/seen.bin
  read_only: false
  estimated_doc_count: 759208
  size_in_bytes: 1048576  # 1 MB; smaller causes too many FPs
"""
SEEN = FILTER.replace("read_only: false", "read_only: true")

TAG = {
    "names": "taggers:\n  - char_length_strip_ws_v1\n  - whitespace_tokenizer_v1\n\ndocuments:\n  - data/c4/v0/documents/train/*.gz\n  - data/wiki/v0/documents/*/*.gz\nprocesses: 188\n",
    "experiment": "experiment: quality\ntaggers:\n  - gopher_v2\n  - random_number_v1\nprocesses: 80\ndocuments: \n  # - data/old/documents/*.gz\n  - ${oc.env:HOME}/data/c4/v0/documents/*/*.jsonl.gz\n",
    "destination and markers": "experiment: e\ntaggers: [c4_v2]\ndocuments: ['data/c4/v0/documents/**/*.gz']\ndestination: [data/c4/v0/attributes/e]\nignore_existing: true\nprocesses: ${d.processes:1}\ndebug: true\nwork_dir: {input: null, output: '${oc.env:HOME}/done'}\n",
}

DEDUPE = {
    "documents": """
documents:
    - data/c4/v0/documents/train/*.gz

dedupe:
  name: dedupe_docs
  documents:
    attribute_name: bff_duplicate_docs
    key: $.text
  skip_empty: true

bloom_filter:
  file: new/bloom.bin
  read_only: false
  estimated_doc_count: 100_000_000
  desired_false_positive_rate: 1e-06

work_dir:
  input: ${oc.env:HOME}/status/input
  output: "${oc.env:HOME}/status/output"

processes: 188
""",
    "urls": """{
  "documents": ["data/c4/v0/documents/*/0.jsonl.gz"],
  "work_dir": {"input": "temp/input", "output": "temp/output"},
  "dedupe": {
    "dedupe_method": "documents",
    "name": "dedupe_by_url",
    "documents": {"attribute_name": "bff_duplicate_url", "key": "$.metadata.url"}
  },
  "bloom_filter": {
    "file": "new/url_bloom_filter.bin",
    "size_in_bytes": 0,
    "read_only": false,
    "estimated_doc_count": 1000,
    "desired_false_positive_rate": 0.001,
    "sysram_limit": 0.9
  },
  "processes": 1
}""",
    "paragraphs": "documents: ['${oc.env:HOME}/data/wiki/v0/documents/*/*.gz']\ndedupe:\n  name: suite\n  paragraphs:\n    attribute_name: bff_duplicate_paragraph_spans\n    by_ngram: null\n  skip_empty: true\n"
    + FILTER.replace("seen.bin", "new.bin"),
    "a filter that was made before": "documents:\n  - data/c4/v0/documents/train/*.gz\ndedupe:\n  name: decontamination\n  paragraphs:\n    attribute_name: bff_duplicate_paragraph_spans\n  skip_empty: true\n"
    + SEEN
    + "processes: 224\nwork_dir:\n  input: temp/in\n  output: temp/out\n",
    "n-grams": """
documents:
  - data/c4/v0/documents/train/*
  - data/wiki/v0/documents/af/*
dedupe:
  name: dedupe_para_ngrams_13_1
  paragraphs:
    attribute_name: dedupe_para_ngrams_13_1
    by_ngram:
      ngram_length: 13
      stride: 1
      overlap_threshold: 0.5
      skip_short_paragraphs: true
    # paragraph_separator: '.'
  skip_empty: true
bloom_filter:
  file: new/ngrams.bin
  read_only: false
  # number of words
  estimated_doc_count: 123_589
  desired_false_positive_rate: 1e-02
compression: {input: gz, output: gz}
is_s3_volume: false
""",
    "one of four partitions": "documents: [data/c4/v0/documents/train/*.gz]\ndedupe: {name: part, documents: {attribute_name: d, key: $.id}, num_partitions: 4, partition_index: 0, file_partition: false, min_length: 3, min_words: 1, document_dir: documents}\nbloom_filter: {file: new/p.bin, read_only: false, estimated_doc_count: 10, desired_false_positive_rate: 0.1}\n",
}

TOKENS = {
    "by an old name": "destination: out/c4/gpt/\ndocuments:\n- data/c4/v0/documents/train/*.gz\nprocesses: 224\nseed: 3920\ntokenizer_name_or_path: t.json\nwork_dir:\n  input: temp/in\n  output: temp/out",
    "what a mix has written": "destination: out/decon\ndocuments:\n- data/c4/v0_decon/*.json.gz\nprocesses: 224\nseed: 3920\ntokenizer_name_or_path: t.json\n",
    "many sources": """
destination: ${oc.env:HOME}/out/all-shuffled
documents:
  - data/c4/v0/documents/train
  - data/wiki/v0/documents/*/*gz
  - data/wiki/v0/documents/*/*gz
  - data/c4/v0_decon/c4-*0.json.gz

processes: 188
seed: 3920
max_size: 21_474_836_480
ring_size: 8
batch_size: 20_000

tokenizer:
  name_or_path: t.json
  bos_token_id: null
  eos_token_id: 0
  pad_token_id: 1
  segment_before_tokenization: false
""",
    "both ends": "destination: out/llama\ndocuments: [data/wiki/v0/documents]\ndtype: uint16\ntokenizer:\n  name_or_path: t.json\n  bos_token_id: 1\n  eos_token_id: 0\n  pad_token_id: 0\n  segment_before_tokenization: true\n  encode_special_tokens: true\nfields: {id_field_name: metadata.url, text_field_name: text}\n",
}

EVERY = [("tag", name) for name in TAG] + [("dedupe", name) for name in DEDUPE] + [("tokens", name) for name in TOKENS]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small trees where the files look for documents, and a filter."""
    root = tmp_path_factory.mktemp("published")
    names = ("c4/v0/documents/train/0.jsonl.gz", "c4/v0/documents/train/1.json.gz", "wiki/v0/documents/af/a.jsonl.gz", "c4/v0_decon/c4-0000.json.gz")  # fmt: skip
    for name in names:
        (root / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        rows = [{"id": f"{name}{n}", "source": "s", "text": f"text {n % 3}\nand more", "metadata": {"url": f"u{n}"}} for n in range(5)]  # fmt: skip
        (root / "data" / name).write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))  # fmt: skip
    train_tokenizer(["text and more"] * 9, root / "t.json", vocab_size=300)
    (root / "new").mkdir()
    words = f"dedupe {root}/data/wiki/v0 --unit paragraph --skip-empty --name seen --bloom {root}/seen.bin --no-progress"
    assert main([*words.split(), "--scheduler", "synchronous"]) == 0
    return root


@pytest.mark.parametrize(("command", "name"), EVERY)
def test_published_configurations_run(
    command: str,
    name: str,
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tree)
    monkeypatch.setenv("HOME", str(tree))
    text = {"tag": TAG, "dedupe": DEDUPE, "tokens": TOKENS}[command][name]
    file = tmp_path / f"file.{'json' if text.startswith('{') else 'yaml'}"
    file.write_text(text)
    words = ["-c", str(file), command]
    assert main([*words, "--dryrun"]) == 0
    assert "shard" in capsys.readouterr().out
    quiet = ["--scheduler", "synchronous", "--no-progress"]
    assert main([*words, *quiet, "--processes", "1", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    parts = made.get("datasets", [made])
    assert all(part["counts"]["documents_in"] for part in parts)
    assert main([*words, *quiet, "--json"]) == 0, "nothing is left to do, or is made again"
    capsys.readouterr()


REFUSED = {
    "dedupe": {
        "dedupe: {name: d, dedupe_method: dclm, paragraphs: {attribute_name: a}}\ndocuments: [data/c4/v0/documents/train/*]": "dedupe.dedupe_method: 'dclm'; expected paragraphs",
        "dedupe: {name: d, dedupe_method: dclm, dclm: {attribute_name: a}}": "dedupe.dclm: there is no such key",
        "dedupe: {name: d, documents: {attribute_name: a, key: $.text}}\ndocuments: [data/c4/v0_decon/*.gz]": "attributes lie where attributes/NAME stands in place of documents",
    },
    "tag": {
        "documents: [data/c4/v0/documents/train/*]\ntaggers:\n": "taggers: there are none",
        "documents: [data/c4/v0_decon/*]\ntaggers: [gopher_v2]\n": "does not lie below a folder 'documents'",
    },
    "tokens": {
        "documents: [t.json, data/c4/v0_decon/none*]\ndestination: out\ntokenizer_name_or_path: t.json": "no file matches data/c4/v0_decon/none*",
        "documents: ['data/c4/**/*.gz']\ndestination: out\ntokenizer_name_or_path: t.json": "and files below a folder 'documents'; expected a pattern for each kind",
        "documents: ['se*']\ndestination: out\ntokenizer_name_or_path: t.json": "seen.bin holds no documents; expected JSON lines",
    },
}


@pytest.mark.parametrize(
    ("command", "text"), [(name, text) for name, texts in REFUSED.items() for text in texts]
)
def test_what_cannot_be_done_is_told(
    command: str, text: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.chdir(tree)
    (tmp_path / "file.yaml").write_text(text)
    assert main(["-c", str(tmp_path / "file.yaml"), command]) == 2
    assert REFUSED[command][text] in capsys.readouterr().err


def test_tokens_of_files_elsewhere(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the same files below `documents`, and name them from where their pattern begins."""
    monkeypatch.chdir(tree)
    words = "tokens --tokenizer.name_or_path t.json --tokenizer.eos_token_id 0 --scheduler synchronous --no-progress"
    (tree / "moved/documents").mkdir(parents=True)
    name = "c4-0000.json.gz"
    (tree / "moved/documents" / name).write_bytes((tree / "data/c4/v0_decon" / name).read_bytes())
    for to, pattern in (
        ("one", "data/c4/v0_decon/*"),
        ("other", "moved/documents/*"),
        ("whole", "data/c4/v0_decon"),
    ):
        assert main([*words.split(), "--destination", f"places/{to}", "--documents", pattern]) == 0
    files = {to: (tree / f"places/{to}/part-0-00000.npy").read_bytes() for to in ("one", "other", "whole")}
    assert files["one"] == files["other"] == files["whole"]
    tables = {
        to: gzip.decompress((tree / f"places/{to}/part-0-00000.csv.gz").read_bytes()).decode() for to in files
    }
    assert tables["other"].replace("documents/", "") == tables["one"] == tables["whole"]
    assert f",{name}," in tables["one"]


@pytest.mark.parametrize(
    ("pattern", "to", "is_refused"),
    [
        ("raw/*.gz", "raw", True),
        ("raw", "raw/tokens", True),
        ("raw/**/*.gz", "raw/deep/tokens", True),
        ("raw/**.gz", "raw/tokens", True),
        ("*/*.gz", "raw", True),
        ("*/*.gz", "out", True),
        ("raw/*.gz", "raw/tokens", False),
        ("*/*.gz", "raw/tokens", False),
        ("raw/a.json.gz", "raw", False),
        ("raw/[ab]*.gz", "raws", False),
    ],
)
def test_what_is_written_is_not_read_the_next_time(
    pattern: str, to: str, is_refused: bool, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.json.gz").write_bytes((tree / "data/c4/v0_decon/c4-0000.json.gz").read_bytes())
    words = f"--tokenizer.name_or_path {tree}/t.json --tokenizer.eos_token_id 0 --scheduler synchronous --no-progress"
    call = ["tokens", *words.split(), "--destination", to, "--documents", pattern]
    assert main(call) == (2 if is_refused else 0)
    assert (len(list(tmp_path.rglob("*"))) == 2) == is_refused
    if not is_refused:
        assert main(call) == 0


def test_a_report_of_files_elsewhere_is_not_read_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.jsonl").write_text('{"id": "1", "attributes": {"a": [[0, 1, 2.5]]}}\n')
    call = ["stat", "--attributes", "raw/*.jsonl*", "--scheduler", "synchronous", "--no-progress"]
    assert main([*call, "--report", "raw"]) == 2
    assert "raw/*.jsonl* would find what is written to raw" in capsys.readouterr().err
    assert main([*call, "--report", "r"]) == 0
