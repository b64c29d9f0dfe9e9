"""Words of the Dolma toolkit's commands: what is said instead runs, and does the same."""

import json
import shlex
from pathlib import Path

import pytest

from dolma_dask.cli import main
from dolma_dask.pipelines.dolma_words import answer
from dolma_dask.pipelines.signatures import spellings
from dolma_dask.registry import VERBS
from dolma_dask.testing.tokenizer import train_tokenizer

QUIET = ["--scheduler", "synchronous", "--no-progress"]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("wiki/a", "b"):
        path = tmp_path / f"v0/documents/{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {"id": f"{name}{i}", "source": "s", "text": "same text", "metadata": {"page": {"hash": f"h{i}"}}}
            for i in range(3)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[list[str]], str]:
    """Return the commands that are said for words of the toolkit, and everything that is said."""
    assert main(list(words)) == 2
    text = capsys.readouterr().err
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("  dolma-dask")], text


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_tag(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "tag --documents v0/documents/wiki/*.jsonl --taggers char_length_v1 --experiment e --processes=1 --destination x --profile.enable"
    ((*command,),), text = said(capsys, *words.split())
    assert command == shlex.split(
        "tag v0 --taggers char_length_v1 --experiment e --workers 1 --only 'wiki/*.jsonl'"
    )
    assert "Left out: destination (attributes lie" in text
    assert "profile.enable (" in text
    assert main([*command, *QUIET]) == 0
    assert files_in(corpus / "v0/attributes") == ["e/wiki/a.jsonl"]


@pytest.mark.slow
def test_dedupe_by_a_file_of_options(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("dedupe.yaml").write_text("""\
root: .
documents: ["${root}/v0/documents/**/*.jsonl"]
processes: 7
bloom_filter: {file: b, read_only: false}
dedupe: {name: same, skip_empty: true, documents: {attribute_name: dup, key: $.metadata.page.hash}}
""")
    (command,), text = said(capsys, "-c", "dedupe.yaml", "dedupe", "--processes", "1", "--no-dryrun")
    assert command == shlex.split("dedupe ./v0 --by metadata.page.hash --name same --key dup --workers 1")
    assert "bloom_filter.file, bloom_filter.read_only (" in text
    assert "root (not known here)" in text
    assert main([*command, *QUIET]) == 0
    rows = [
        json.loads(line) for line in (corpus / "v0/attributes/same/wiki/a.jsonl").read_text().splitlines()
    ]
    assert [row["attributes"] for row in rows] == [{"dup": [[0, 9, 1]]}] * 3


def test_tokens(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = corpus / "tokenizer.json"
    train_tokenizer(["same text"] * 9, tokenizer, vocab_size=300)
    added = json.loads(tokenizer.read_text())["added_tokens"][0]
    words = [
        "tokens",
        "--documents",
        "v0/documents",
        "--destination",
        "out",
        "--tokenizer.name_or_path",
        str(tokenizer),
    ]
    (command,), text = said(capsys, *words, "--tokenizer.eos_token_id", str(added["id"]), "--dtype", "uint16")
    assert command == [
        "ragged",
        "v0",
        "out",
        "--tokenizer",
        str(tokenizer),
        "--eos",
        added["content"],
        "--format",
        "dolma",
    ]
    assert "Left out: dtype (" in text
    assert main([*command, *QUIET]) == 0
    assert any(name.endswith(".csv.gz") for name in files_in(corpus / "out"))


SAID = {
    "tag --documents a/documents/*.gz b/documents/**/*.gz s3://c/d/documents --taggers t --debug --dryrun": [
        "dolma-dask tag a --taggers t --dry-run --scheduler synchronous",
        "dolma-dask tag b --taggers t --dry-run --scheduler synchronous",
        "dolma-dask tag s3://c/d --taggers t --dry-run --scheduler synchronous",
    ],
    "tag --documents c/*/documents/*.gz --taggers t": [
        'for each in c/*; do dolma-dask tag "$each" --taggers t; done'
    ],
    "tag --documents texts/*.gz --taggers t": ["dolma-dask tag DATASET --taggers t"],
    "tokens --documents documents/x.gz --tokenizer.name_or_path gpt2 --tokenizer.eos_token_id 5": [
        "dolma-dask ragged . OUT --tokenizer gpt2 --eos '<text of token 5>' --format dolma --only x.gz"
    ],
    "dedupe --documents a/documents/x/*.gz --dedupe.documents.attribute_name d --compression.output zst": [
        "dolma-dask dedupe a --name d --format jsonl.zst"
    ],
    "stat --attributes a/attributes/e/*.gz a/attributes/f/**/*.gz --bins 10": [
        "dolma-dask quantiles a --attributes e f"
    ],
    "tag --documents v0/documents/*.gz --taggers t --tagger_modules my.py --on-bad-record quarantine --no-progress": [
        "dolma-dask tag v0 --taggers t --tagger-modules my.py --on-bad-record quarantine --no-progress"
    ],
    "tokens v0 out --tokenizer.name_or_path t.json --eos x --batch_size 9": [
        "dolma-dask ragged v0 out --tokenizer t.json --eos x --format dolma"
    ],
    "dedupe v0 --dedupe.paragraphs.attribute_name p --by=id": ["dolma-dask dedupe v0 --by=id"],
    "mix --processes 4": ["dolma-dask -c FILE mix"],
    "mix -c mixer.yaml": ["dolma-dask -c FILE mix"],
    "warc --documents x --source_name s": ["dolma-dask convert FOLDER --to DATASET"],
}


@pytest.mark.parametrize("words", SAID)
def test_what_is_said(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.strip() for line in lines if line.startswith("  ")] == SAID[words]
    for verb, *said_words in (line.split()[1:] for line in SAID[words] if line.startswith("dolma-dask")):
        known = {"-c", *spellings(VERBS[verb].load()).values()} if verb in VERBS else set(said_words)
        options = {word.partition("=")[0].replace("--no-", "--") for word in said_words if word[0] == "-"}
        assert options <= known, "all that is proposed is an option of the command"


def test_what_does_not_exist_here_is_not_said_to_be_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = said(
        capsys, "dedupe", "--documents", "v0/documents/*", "--dedupe.paragraphs.by_ngram.stride", "2"
    )
    assert "duplicates among paragraphs or their n-grams, which nothing here does yet" in text
    assert "The same here" not in text


@pytest.mark.parametrize(
    "words",
    ["tag --taggers a", "tag v0 --taggrs a", "dedupe v0 --bye x", "mix", "tokns", "run --documents x"],
)
def test_mistakes_in_our_own_words_stay_such(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(words.split()) is None
    assert main(words.split()) == 2
    assert "toolkit" not in capsys.readouterr().err
