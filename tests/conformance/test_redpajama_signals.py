"""Quality signals of RedPajama-V2: every value and JSON type of the rule-based ones and of CCNet's fields is the published pipeline's."""

import gzip
import json
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redpajama_oracle as oracle

import dolma_dask as dk
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.taggers.word_lists import combinations_of_categories, read_stop_words

pytestmark = pytest.mark.conformance

OF_MODELS = ("rps_doc_ml_", "rps_doc_books_", "rps_doc_openwebtext_", "rps_doc_wikipedia_")
"""Signals of classifiers and of importance weights, which need models."""


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@cache
def documents(folder: Path) -> dict[str, dict]:
    """Records by id."""
    found = {}
    for path in sorted((folder / "documents").rglob("*.json.gz")):
        name = path.relative_to(folder / "documents")
        found |= {f"{name}/{row}": record for row, record in enumerate(records(path))}
    assert len(found) == 489
    return found


@cache
def published(folder: Path) -> dict[str, dict]:
    """Rows of signals by id."""
    rows = [
        row
        for path in sorted((folder / "quality_signals").rglob("*.signals.json.gz"))
        for row in records(path)
    ]
    assert len(rows) == 488
    return {row["id"]: row for row in rows}


def same(found: object, expected: object) -> bool:
    """Equal, with the same JSON types."""
    return json.dumps(found) == json.dumps(expected)


def test_the_definitions_of_the_tests_give_the_published_values(shared: Path) -> None:
    folder = shared / "conformance/rpv2"
    stop_words = read_stop_words()
    listed = {
        path.stem: {line.strip() for line in path.read_text().splitlines()}
        for path in (folder / "artifacts/bad_words").glob("*.txt")
    }
    categories = json.loads((folder / "artifacts/bad_urls/domain_to_category_id.json").read_text())
    wrong = []
    for id_, row in published(folder).items():
        record = documents(folder)[id_]
        language, text = record["language"], record["raw_content"]
        found = oracle.ccnet_signals(record, len(text)) | oracle.rule_signals(
            text, set(stop_words[language]), listed[language], categories.get(record["source_domain"])
        )
        expected = {
            name: spans for name, spans in row["quality_signals"].items() if not name.startswith(OF_MODELS)
        }
        assert list(found) == list(expected)
        wrong += [
            (id_, name, found[name], expected[name])
            for name in found
            if not same(found[name], expected[name])
        ]
    assert wrong == []


def tagged(folder: Path, name: str) -> dict[str, dict]:
    """Values of a tagger for the published documents, by id."""
    rows = {id_: documents(folder)[id_] for id_ in published(folder)}
    texts = [row["raw_content"] for row in rows.values()]
    metadata = [json.dumps({key: row[key] for key in row if key != "raw_content"}) for row in rows.values()]
    columns = [pa.array(values, pa.large_string()) for values in (texts, metadata)]
    artifacts = folder / "artifacts"
    files = {
        str(path.relative_to(artifacts)): partial(path.open, "rb")
        for path in artifacts.rglob("*")
        if path.is_file()
    }
    tagger = get_tagger(name).with_files(files)
    found = tagger(pa.RecordBatch.from_arrays(columns, names=["text", "metadata"])).to_pylist()
    return dict(zip(rows, found, strict=True))


@pytest.mark.parametrize("name", ["redpajama_v2_doc", "redpajama_v2_ccnet"])
def test_every_signal_of_documents(shared: Path, name: str) -> None:
    """Numbers are compared as JSON, so that 0.0 is not -0.0; whole numbers are floats here."""
    folder = shared / "conformance/rpv2"
    for id_, row in tagged(folder, name).items():
        signals = published(folder)[id_]["quality_signals"]
        scores = {signal: signals[signal][0][2] for signal in row}
        assert same(
            row, {signal: score if score is None else float(score) for signal, score in scores.items()}
        ), id_


def test_every_signal_of_lines(shared: Path) -> None:
    folder = shared / "conformance/rpv2"
    for id_, row in tagged(folder, "redpajama_v2_lines").items():
        signals = published(folder)[id_]["quality_signals"]
        for name, spans in row.items():
            found = (
                [[0, 0, None]]
                if spans is None
                else [[span["start"], span["end"], span["score"]] for span in spans]
            )
            expected = [
                [start, end, score if score is None else float(score)] for start, end, score in signals[name]
            ]
            assert same(found, expected), (id_, name)


TAGGERS = ["redpajama_v2_doc", "redpajama_v2_lines", "redpajama_v2_ccnet"]


@pytest.fixture(scope="module")
def root(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published documents as a dataset."""
    root = tmp_path_factory.mktemp("rpv2")
    raw = str(shared / "conformance/rpv2/documents")
    dk.convert(raw, to=str(root), mapping="redpajama_v2", scheduler="synchronous", progress=False)
    return root


@pytest.mark.parametrize("form", ["jsonl.gz", "parquet"])
def test_attribute_files_hold_every_digit(shared: Path, root: Path, form: str) -> None:
    folder = shared / "conformance/rpv2"
    name = form.partition(".")[0]
    options = {"experiment": name, "format": form, "artifacts": str(folder / "artifacts")}
    dk.tag(str(root), TAGGERS, scheduler="synchronous", progress=False, **options)
    compared = 0
    for path in sorted((root / "attributes" / name).rglob(f"*.{form}")):
        for row in pq.read_table(path).to_pylist() if form == "parquet" else records(path):
            signals = published(folder).get(row["id"], {"quality_signals": {}})["quality_signals"]
            found = {
                key.rpartition("__")[2]: value
                for key, value in row.get("attributes", row).items()
                if "__" in key
            }
            for signal, spans in signals.items():
                if not signal.startswith(OF_MODELS):
                    assert spans_of(found.get(signal), spans) == spans, (row["id"], signal)
                    compared += 1
    assert compared == 488 * (29 + 7)


def spans_of(stored: object, published: list) -> list:
    """Spans of a stored value; a number is of the whole document, and nothing is a null score."""
    if stored is None or isinstance(stored, float):
        return [[0, published[0][1], stored]]
    return [list(span.values()) if isinstance(span, dict) else span for span in stored]


def test_files_of_signals_are_the_published_ones(shared: Path, root: Path, tmp_path: Path) -> None:
    """All of a row but the signals of models: values, JSON types and the order of keys. The record without perplexity, which upstream skips, has a row here."""
    folder = shared / "conformance/rpv2"
    lists = str(folder / "artifacts")
    dk.signals(str(root), str(tmp_path), artifacts=lists, scheduler="synchronous", progress=False)
    found = {
        row["id"]: row for path in sorted(tmp_path.glob("*/*/*.signals.json.gz")) for row in records(path)
    }
    assert len(found) == 489
    assert [id_ for id_ in found if id_ not in published(folder)] == ["2022-49/0000/en_middle.json.gz/2"]
    for id_, row in published(folder).items():
        signals = row["quality_signals"]
        rules = {name: spans for name, spans in signals.items() if not name.startswith(OF_MODELS)}
        assert same(found[id_], {**row, "quality_signals": rules}), id_


METRICS = {
    "ccnet_nlines": "number_of_lines",
    "ccnet_perplexity": "perplexity",
    "rps_doc_frac_chars_dupe_10grams": "character_repetition10",
    "rps_doc_frac_chars_dupe_5grams": "character_repetition5",
    "rps_doc_frac_no_alph_words": "special_characters",
    "rps_doc_frac_unique_words": "word_repetition",
    "rps_doc_ldnoobw_words": "flagged_words",
    "rps_doc_stop_word_fraction": "stop_words",
    "rps_doc_unigram_entropy": "unigram_entropy",
    "rps_doc_word_count": "number_of_words",
}
"""Signals, and what the chain on LUMI calls them."""


def test_thresholds_taken_from_attributes_are_those_of_the_chain(shared: Path, tmp_path: Path) -> None:
    """The chain has no quantiles of documents without text or perplexity."""
    folder, here = shared / "conformance/rpv2", {"scheduler": "synchronous", "progress": False}
    for path in (folder / "documents").rglob("*.json.gz"):
        kept = [row for row in records(path) if row["raw_content"] and row["perplexity"] is not None]
        copy = tmp_path / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in kept).encode()))
    root = str(tmp_path / "v0")
    dk.convert(str(tmp_path / "documents"), to=root, mapping="redpajama_v2", **here)
    dk.tag(root, TAGGERS[::2], artifacts=str(folder / "artifacts"), **here)
    dk.quantiles(root, list(METRICS), by="metadata.language", level="regular", **here)
    bounds = json.loads((tmp_path / "v0/quantiles/quantiles.regular.json").read_text())["bounds"]
    chain = json.loads((folder / "quality_filter/thresholds_regular.json").read_text())
    for signal, by_language in bounds.items():
        metric = METRICS[signal.rpartition("__")[2]]
        for language in ("de", "en", "es", "fr", "it"):
            expected = {
                {">": "lower", "<": "upper"}[sign]: float(value)
                for sign, value in chain[language][metric].items()
            }
            found = {end: value for end, value in by_language[language].items() if value is not None}
            assert found == pytest.approx(expected, rel=1e-12), (signal, language)


def test_numbers_of_combinations_of_categories_are_the_published_ones(shared: Path) -> None:
    listed = json.loads((shared / "conformance/rpv2/artifacts/bad_urls/category_index.json").read_text())
    assert {int(number): tuple(names) for number, names in listed.items()} == dict(
        enumerate(combinations_of_categories())
    )
