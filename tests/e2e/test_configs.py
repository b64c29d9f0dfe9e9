"""Every pipeline in configs/ is run as its first lines say, on small data; the second run finds everything done."""

import gzip
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from small_corpus import collect_small_corpus
from tokenizers import AddedToken, Tokenizer

from dolma_dask import cli
from dolma_dask.dataset import open_dataset
from dolma_dask.frames.dataframe import read_dataframe
from dolma_dask.loaders.ragged import open_ragged
from dolma_dask.pipelines.pipeline import run
from dolma_dask.pipelines.pipeline_file import variables_of
from dolma_dask.testing.tokenizer import train_tokenizer

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted(path.name for path in (ROOT / "configs").glob("*.yaml"))
WORDS = (
    "the", "river", "runs", "slowly", "past", "old", "mills", "and", "new", "houses", "while", "people", "walk", "along", "its",
    "bank", "every", "day", "of", "the", "year",
)  # fmt: skip
HERE = ["--scheduler", "synchronous", "--no-progress"]


def text(number: int) -> str:
    """Words that differ from number to number."""
    return f"number {number} says: " + " ".join(
        WORDS[(number + at * (1 + number % 5)) % len(WORDS)] for at in range(60)
    )


def store(path: Path, rows: list[dict[str, object]]) -> None:
    """Write JSON lines, as the suffix says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def stored(root: str, **names: str) -> list[dict[str, object]]:
    """Read all documents of a dataset, in order."""
    dataset = open_dataset(root, **names)
    paths = [Path(dataset.url(f"documents/{shard.path}")) for shard in dataset.shards]
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def store_tokenizer(path: str) -> None:
    train_tokenizer(map(text, range(50)), path, vocab_size=400)
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer.save(path)


def make_wiki() -> None:
    for name in "ab":
        store(Path(f"dumps/wiki/{name}.jsonl.gz"), [{"id": f"{name}{n}", "text": text(n)} for n in range(20)])
    with gzip.open("dumps/wiki/b.jsonl.gz", "ab") as file:
        file.write(b'{"id":"short","text":"too short"}\n')
    store_tokenizer("t5.json")


def check_wiki(out: Path) -> None:
    assert len(open_ragged("corpus/wiki/tokens")) == 40
    assert (out / "corpus/wiki/report.html").stat().st_size > 100_000


def make_c4() -> None:
    texts = {
        "kept": "Menu\nA line that ends as it should.\nToo short.\nİt asks: is this one kept?\nlast line without an end",
        "brace": "if (x) { run. }",
        "script": "Please turn JavaScript on to read.",
        "rude": "Here is a darned word of two.",
        "phrase": "It is no good at allthough it ends.",
        "nothing": "Home\nAbout us",
        "whole": "A page of one line.",
    }
    store(
        Path("web/v0/documents/0.jsonl.gz"),
        [{"id": name, "text": text, "source": "web"} for name, text in texts.items()],
    )
    Path("lists/bad_words").mkdir(parents=True)
    Path("lists/bad_words/en.txt").write_text("darned\ngood at all\n")


def check_c4(out: Path) -> None:
    assert {row["id"]: row["text"] for row in stored("web/v1")} == {
        "kept": "A line that ends as it should.\nİt asks: is this one kept?\n",
        "whole": "A page of one line.",
    }


def make_dolma_toolkit() -> None:
    for shard in range(2):
        rows = [{"id": f"{shard}-{n}", "text": text(n % 15), "source": "wiki"} for n in range(20)]
        store(Path(f"data/wikipedia/v0/documents/wiki-{shard:04d}.jsonl.gz"), rows)


def check_dolma_toolkit(out: Path) -> None:
    assert sorted(row["text"] for row in stored("data/wikipedia/v1")) == sorted(text(n) for n in range(15))
    with gzip.open(out / "data/wikipedia/v0/attributes/exp/wiki-0000.jsonl.gz") as file:
        assert "exp__gopher_v2__word_count" in json.loads(next(file))["attributes"]


def make_pretrain_data() -> None:
    for shard in range(2):
        rows = [{"source": "wiki", "id": f"{shard}-{n}", "text": text(n), "added": "x"} for n in range(10)]
        store(Path(f"pretraining-data/sources/wiki/v0/documents/2019-0{shard}/a.jsonl.gz"), rows)
    Path("pretraining-data/blocklists").mkdir()
    Path("pretraining-data/blocklists/wiki.txt").write_text("0-3\nwiki\t1-4\nnowhere\n")


def check_pretrain_data(out: Path) -> None:
    ids = [row["id"] for row in stored("pretraining-data", source="wiki", version="v1")]
    assert ids == [
        f"{shard}-{n}" for shard in range(2) for n in range(10) if (shard, n) not in {(0, 3), (1, 4)}
    ]


def make_one_reading() -> None:
    for shard in range(2):
        rows = [{"id": f"{shard}-{n}", "text": text(n % 15), "source": "wiki"} for n in range(20)]
        store(Path(f"corpus/v0/documents/{shard}.jsonl.gz"), rows)
    store_tokenizer("t5.json")


def check_one_reading(out: Path) -> None:
    arrays = open_ragged("training/tokens")
    rows = json.loads((out / "training/h5/data_params.json").read_text())["post-process"]
    assert len(arrays) == 15
    assert rows["n_examples"] == -(-(arrays.tokens - 1) // 512)
    assert not (out / "training/documents").exists()


def make_pre_tokenize() -> None:
    for shard in range(2):
        rows = [{"text": text(n + 10 * shard), "timestamp": "2019", "url": f"u{n}"} for n in range(10)]
        store(Path(f"c4/en/c4-train.{shard:05d}-of-00002.json.gz"), rows)
    store_tokenizer("t5.json")


def check_pre_tokenize(out: Path) -> None:
    ids = np.load(out / "c4-ragged/tokens/c4-train.00001-of-00002.data.npy")
    lengths = np.load(out / "c4-ragged/tokens/c4-train.00001-of-00002.len.npy")
    tokenizer = Tokenizer.from_file("t5.json")
    assert tokenizer.encode(text(10), add_special_tokens=False).ids == ids[: lengths[0]].tolist()


def make_redpajama_v2() -> None:
    """A tree of published files, with a listing."""
    shards = [f"2023-06/0000/{language}_head" for language in ("de", "en", "es", "fr", "it")]
    for shard in shards:
        language = shard[-7:-5]
        rows = [
            {
                "url": f"u{n}",
                "raw_content": text(n % 30),
                "date_download": "2023",
                "language": language,
                "language_score": 0.5,
                "nlines": 1 + n,
                "length": 1000,
                "perplexity": 100.0 * n,
            }
            for n in range(40)
        ]
        place = f"mirror/documents/{shard}.json.gz"
        store(Path(place), rows)
        signals = [
            {"id": f"{shard}.json.gz/{n}", "id_int": n, "quality_signals": signals_of(row)}
            for n, row in enumerate(rows)
        ]
        store(Path(f"mirror/quality_signals/{shard}.signals.json.gz"), signals)
    Path("mirror/listings").mkdir()
    for shard in shards:
        listing = Path(f"mirror/listings/{shard[-7:-5]}-2023-06-head_middle.txt")
        listing.write_text(f"{shard}\n")


def signals_of(row: dict[str, Any]) -> dict[str, Any]:
    """Signals of a document of one line, the same in all but the number of lines and the perplexity."""
    size = len(row["raw_content"])
    values = {
        "ccnet_language_score": row["language_score"],
        "ccnet_length": row["length"],
        "ccnet_nlines": row["nlines"],
        "ccnet_perplexity": row["perplexity"],
        "rps_doc_frac_chars_dupe_10grams": 0.0,
        "rps_doc_frac_chars_dupe_5grams": 0.0,
        "rps_doc_frac_no_alph_words": 0.1,
        "rps_doc_frac_unique_words": 0.9,
        "rps_doc_ldnoobw_words": 0.0,
        "rps_doc_stop_word_fraction": 0.4,
        "rps_doc_unigram_entropy": 4.0,
        "rps_doc_word_count": 20.0,
        "rps_lines_ending_with_terminal_punctution_mark": 1.0,
        "rps_lines_num_words": 20.0,
    }
    return {name: [[0, size, value]] for name, value in values.items()}


def check_redpajama_v2(out: Path) -> None:
    kept = {row["id"] for row in stored("redpajama/v1")}
    inside = {f"2023-06/0000/de_head.json.gz/{n}" for n in range(4, 30)}
    assert kept
    assert kept <= inside, (
        "the first copy of each text is the German one; 1 to 40 lines are cut below 4.9, perplexities of 0 to 39 hundred above 35.1"
    )
    levels = read_dataframe("redpajama/v0", columns=["quality.level", "quality.stop_words"]).compute()
    assert set(levels["quality.level"]) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert set(levels["quality.stop_words"]) == {4.0}
    assert (out / "redpajama/v1.html").exists()


def make_cerebras() -> None:
    store(Path("raw/a.jsonl"), [{"idea": text(n), "meta": {}} for n in range(20)])
    store_tokenizer("neox-encoder.json")


def check_cerebras(out: Path) -> None:
    params = json.loads((out / "data_dir/h5/data_params.json").read_text())
    assert "2048" in json.dumps(params)


def make_preferences() -> None:
    rows = [{"prompt": text(n), "chosen": f"Yes, {n}.", "rejected": "No."} for n in range(20)]
    store(Path("raw/preferences/a.jsonl"), rows)
    store_tokenizer("neox-encoder.json")


def check_preferences(out: Path) -> None:
    with h5py.File(out / "preferences/h5/part-000000-00000.h5") as file:
        assert file["data"].shape == (20, 6, 2048)


def make_whole_documents() -> None:
    rows = [{"id": str(n), "text": text(n % 15), "source": "wiki"} for n in range(20)]
    store(Path("corpus/v0/documents/a.jsonl.gz"), rows)
    store_tokenizer("neox-encoder.json")


def check_whole_documents(out: Path) -> None:
    with h5py.File(out / "training/h5/part-000000-00000.h5") as file:
        begins = (file["data"][:, 4] == 0) & (file["data"][:, 1] == 1)
    assert begins.sum() == 15


def make_demo() -> None:
    from dolma_dask.io.documents import DocumentFile

    collect_small_corpus(Path("demo").absolute())
    run(f"{ROOT}/configs/demo.yaml", only=["descriptions"], scheduler="synchronous", progress=False)
    shard = open_dataset("demo/v0").shards[0]
    blocks = DocumentFile(f"demo/v0/documents/{shard.path}", ["text"])
    train_tokenizer(
        (text for block in blocks for text in block.batch.column("text").to_pylist()),
        "demo/tokenizer.json",
        1000,
    )


def check_demo(out: Path) -> None:
    assert len(open_ragged("demo/tokens")) == len(stored("demo/v1")) > 200
    assert (out / "demo/h5/data_params.json").exists()
    assert (out / "reports/demo.html").exists()


LANGUAGES = {
    "en": "It was a bright cold day in April, and the clocks were striking thirteen. People came home late.",
    "de": "Es war ein klarer, kalter Tag im April, und die Uhren schlugen gerade dreizehn. Alle kamen spät nach Hause.",
    "fr": "C'était une journée froide et claire du mois d'avril, et les horloges sonnaient treize heures.",
    "mixed": "Der Hund bellt. It was a bright cold day. Wir gehen nach Hause.",
    "empty": "",
}


def make_english() -> None:
    pytest.importorskip("py3langid", reason="the packages of the extra language are not installed")
    rows = [{"id": name, "text": text, "source": "web"} for name, text in LANGUAGES.items()]
    store(Path("web/v0/documents/a.jsonl.gz"), rows)


def check_english(out: Path) -> None:
    assert stored("web/english") == [{"id": "en", "text": LANGUAGES["en"], "source": "web"}]


OTHER_RULES = ["en >= 0.65", "en >= 0.5", "language == 'en' and confidence >= 0.7"]


@pytest.mark.parametrize("keep", OTHER_RULES)
@pytest.mark.parametrize("detector", ["language_langid_v1", "language_cld2_v1"])
def test_other_choices_of_english_can_be_swapped_in(tmp_path, monkeypatch, detector, keep):
    pytest.importorskip("pycld2", reason="the packages of the extra language are not installed")
    pipeline = (ROOT / "configs/english.yaml").read_text()
    assert f"# keep: {keep}\n" in pipeline
    assert f"{detector} (" in pipeline
    monkeypatch.chdir(tmp_path)
    make_english()
    pipeline = pipeline.replace("  keep: en >= 0.99\n", "").replace(f"# keep: {keep}\n", f"keep: {keep}\n")
    Path("mine.yaml").write_text(pipeline)
    words = ["corpus=web/v0", "out=web/english", f"detector={detector}"]
    assert cli.main(["run", "mine.yaml", "--set", *words, *HERE]) == 0
    check_english(tmp_path)


def make_health() -> None:
    messes = {5: "caf\u00c3\u00a9", 7: "<b>bold</b>", 9: "\\fBls\\fR", 11: "a { color: red; }"}
    rows = [{"id": str(n), "text": f"{text(n)} {messes.get(n, '')}", "source": "web"} for n in range(20)]
    store(Path("corpus/v0/documents/a.jsonl.gz"), rows)


def check_health(out: Path) -> None:
    assert {int(row["id"]) for row in stored("corpus/clean")} == {*range(20)} - {5, 7, 9, 11}
    assert (out / "reports/health.html").exists()


MAKERS: dict[str, tuple[Callable[[], None], Callable[[Path], None]]] = {
    "c4.yaml": (make_c4, check_c4),
    "cerebras.yaml": (make_cerebras, check_cerebras),
    "demo.yaml": (make_demo, check_demo),
    "dolma_toolkit.yaml": (make_dolma_toolkit, check_dolma_toolkit),
    "english.yaml": (make_english, check_english),
    "health.yaml": (make_health, check_health),
    "one_reading.yaml": (make_one_reading, check_one_reading),
    "pre_tokenize.yaml": (make_pre_tokenize, check_pre_tokenize),
    "preferences.yaml": (make_preferences, check_preferences),
    "pretrain_data.yaml": (make_pretrain_data, check_pretrain_data),
    "redpajama_v2.yaml": (make_redpajama_v2, check_redpajama_v2),
    "whole_documents.yaml": (make_whole_documents, check_whole_documents),
    "wiki.yaml": (make_wiki, check_wiki),
}


def command_of(name: str) -> list[str]:
    """Return the first command that a pipeline's comment shows."""
    (line, *_) = re.findall(
        r"dolma-dask (run .*?)(?:  +.*)?$", (ROOT / "configs" / name).read_text(), re.MULTILINE
    )
    return shlex.split(line)


def test_each_pipeline_is_tested():
    assert list(MAKERS) == CONFIGS


@pytest.mark.parametrize("name", CONFIGS)
def test_a_pipeline_as_its_first_lines_show_it(name, tmp_path, monkeypatch, capsys):
    make, check = MAKERS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CORPUS", raising=False)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    make()
    words = [*command_of(name), *HERE]
    assert words[1] == f"configs/{name}"
    assert cli.main([*words, "--dry-run"]) == 0
    assert cli.main(words) == 0, capsys.readouterr().out
    check(tmp_path)
    capsys.readouterr()
    assert cli.main([*words, "--json"]) == 0
    states = {stage["name"]: stage["state"] for stage in json.loads(capsys.readouterr().out)["stages"]}
    assert set(states.values()) == {"done before"}, states
    assert cli.main([*words, "--dry-run"]) == 0


@pytest.mark.parametrize("name", CONFIGS)
def test_a_pipeline_is_explained(name):
    """Half of what a reader needs is why: each begins with for whom it is, and each stage has a comment."""
    lines = (ROOT / "configs" / name).read_text().splitlines()
    assert lines[0].startswith("# ")
    assert sum(line.lstrip().startswith("#") or "  # " in line for line in lines) >= 8
    assert variables_of(word for word in command_of(name) if "=" in word) is not None
