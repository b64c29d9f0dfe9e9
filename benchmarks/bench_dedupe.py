"""Exact duplicates and lists of ids on whole files: .jsonl.gz in, attributes in .jsonl.gz out; and the kernels behind them."""

import gzip
import json
import random
from pathlib import Path

import numpy as np

from benchmarks.bench_commands import DOLMA, _command, _dolma
from benchmarks.bench_verbs import OPTIONS, linked
from benchmarks.harness import Goal, Job, benchmark
from dolma_dask.verbs.block.verb import block
from dolma_dask.verbs.dedupe.verb import dedupe

HASHED_MB = 100


@benchmark("dedupe", goal=Goal("speed", 100), beside="dolma-dedupe")
def dedupe_text(job: Job) -> None:
    """Equal texts, one process, past start-up."""
    warm, dataset = linked(job, "warm"), linked(job, "all")
    dedupe(warm, **OPTIONS)
    with job.measured(job.corpus.text_mb):
        done = dedupe(dataset, **OPTIONS)
    assert done.counts["documents_in"] == job.corpus.documents > done.counts["duplicates"] > 0


@benchmark("dedupe-id", goal=Goal("speed", 100))
def dedupe_id(job: Job) -> None:
    """Equal sources and ids, the longest text survives."""
    warm, dataset = linked(job, "warm"), linked(job, "all", 2)
    dedupe(warm, by="id", keep="longest", **OPTIONS)
    with job.measured(2 * job.corpus.text_mb):
        done = dedupe(dataset, by="id", keep="longest", **OPTIONS)
    assert done.counts["duplicates"] == job.corpus.documents


@benchmark("dedupe-command", beside="dolma-dedupe")
def dedupe_command(job: Job) -> None:
    """dolma-dask dedupe, one process, start-up included."""
    _command(job, job.corpus.text_mb, "dedupe", linked(job, "all"))


@benchmark("dolma-dedupe")
def dolma_dedupe(job: Job) -> None:
    """dolma dedupe of whole documents on the same files, start-up included."""
    if not DOLMA.exists():
        return
    root, config = linked(job, "all"), job.scratch / "dedupe.yaml"
    config.write_text(DEDUPE.format(root=root, scratch=job.scratch, documents=job.corpus.documents))
    _dolma(job, job.corpus.text_mb, "-c", str(config), "dedupe")


DEDUPE = """
documents: ["{root}/documents/*.gz"]
dedupe:
  name: exact
  documents: {{attribute_name: exact, key: "$.text"}}
bloom_filter: {{file: "{scratch}/bloom.bin", estimated_doc_count: {documents}, desired_false_positive_rate: 1.0e-9, read_only: false}}
processes: 1
"""


NEW_WORDS = 0.9
"""Share of the paragraphs that get a word of their own: a quarter of all then stands before, blank lines included."""


def varied(job: Job) -> str:
    """Return a new dataset with the documents of all files, most paragraphs unlike their copies in other files."""
    root = job.scratch / "varied"
    for path in map(Path, job.corpus.files("all")):
        draw = random.Random(path.name)
        documents = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
        lines = [
            json.dumps({**one, "text": _varied(one["text"], draw)}, ensure_ascii=False) for one in documents
        ]
        target = root / "documents" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 6, mtime=0))
    return str(root)


def _varied(text: str, draw: random.Random) -> str:
    paragraphs = (
        f"{one} {draw.randrange(10**6)}" if one.strip() and draw.random() < NEW_WORDS else one
        for one in text.split("\n")
    )
    return "\n".join(paragraphs)


NGRAMS = ["--ngram", "13", "--overlap", "0.5"]


@benchmark("dedupe-paragraphs", beside="dolma-dedupe-paragraphs")
def dedupe_paragraphs(job: Job) -> None:
    """dolma-dask dedupe of paragraphs, one process, start-up included."""
    _command(job, job.corpus.text_mb, "dedupe", varied(job), "--unit", "paragraph")


@benchmark("dolma-dedupe-paragraphs")
def dolma_dedupe_paragraphs(job: Job) -> None:
    """dolma dedupe of paragraphs on the same files, start-up included."""
    _dolma_paragraphs(job, "paragraphs: {attribute_name: exact}")


@benchmark("dedupe-ngrams", beside="dolma-dedupe-ngrams")
def dedupe_ngrams(job: Job) -> None:
    """dolma-dask dedupe of n-grams of 13 words in paragraphs."""
    _command(job, job.corpus.text_mb, "dedupe", varied(job), "--unit", "paragraph", *NGRAMS)


@benchmark("dolma-dedupe-ngrams")
def dolma_dedupe_ngrams(job: Job) -> None:
    """dolma dedupe of the same n-grams."""
    by_ngram = "{ngram_length: 13, stride: 0, overlap_threshold: 0.5, skip_short_paragraphs: false}"
    _dolma_paragraphs(job, f"paragraphs: {{attribute_name: exact, by_ngram: {by_ngram}}}")


def _dolma_paragraphs(job: Job, unit: str) -> None:
    if not DOLMA.exists():
        return
    root, config = varied(job), job.scratch / "dedupe.yaml"
    filled = DEDUPE.replace(
        'documents: {{attribute_name: exact, key: "$.text"}}', unit.replace("{", "{{").replace("}", "}}")
    )
    config.write_text(filled.format(root=root, scratch=job.scratch, documents=10_000_000))
    _dolma(job, job.corpus.text_mb, "-c", str(config), "dedupe")


@benchmark("block", goal=Goal("speed", 100))
def block_ids(job: Job) -> None:
    """A list of a million ids in memory."""
    _block(job, exchange=False)


@benchmark("block-exchange", goal=Goal("speed", 100))
def block_ids_exchanged(job: Job) -> None:
    """The same list through the exchange."""
    _block(job, exchange=True)


def _block(job: Job, exchange: bool) -> None:
    ids = Path(job.scratch, "ids.txt")
    ids.write_text("".join(f"document-{number:09d}\n" for number in range(1_000_000)))
    warm, dataset = linked(job, "warm"), linked(job, "all")
    block(warm, str(ids), exchange=exchange, **OPTIONS)
    with job.measured(job.corpus.text_mb):
        done = block(dataset, str(ids), exchange=exchange, **OPTIONS)
    assert done.counts["documents_in"] == job.corpus.documents


@benchmark("hash-ids", unit="ids")
def hash_ids(job: Job) -> None:
    """xxh3-128 of sources and ids of 40 bytes."""
    _hash(job, 40)


@benchmark("hash-texts")
def hash_texts(job: Job) -> None:
    """xxh3-128 of texts of 3 kB."""
    _hash(job, 3000)


def _hash(job: Job, size: int) -> None:
    from dolma_dask.text.xxh3 import hash_strings

    count = HASHED_MB * 1_000_000 // size
    data = np.frombuffer(random.Random(1).randbytes(count * size), np.uint8)
    offsets = np.arange(count + 1, dtype=np.int64) * size
    hash_strings(data[:size], offsets[:2])
    with job.measured(HASHED_MB):
        hash_strings(data, offsets)
