"""Functions of users in `convert` and `transform`, beside the same work without them: what a Python call per record costs."""

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import dolma_dask as dk
from benchmarks.bench_verbs import OPTIONS
from benchmarks.harness import Job, benchmark

_PAGES = re.compile(r"^\s*\[page \d+\]\s*$", re.MULTILINE)


def renamed(record: dict[str, Any]) -> dict[str, Any]:
    """Do what the mapping of the benchmark `convert` does."""
    source, created = record["meta"].pop("set"), record.pop("timestamp")
    return {
        "id": record.pop("doc_id"),
        "text": record.pop("content"),
        "source": source,
        "created": created,
        "metadata": record,
    }


def same(text: str) -> str:
    """Change nothing."""
    return text


def end(text: str) -> str:
    """Change every text."""
    return text + "\n"


def without_pages(text: str) -> str:
    """Search every text, and change few."""
    return _PAGES.sub("", text)


def whole(document: dict[str, Any]) -> dict[str, Any]:
    """Change every text, as a document."""
    return {**document, "text": document["text"] + "\n"}


def ends(texts: pa.Array) -> pa.Array:
    """Change every text of a block."""
    return pc.binary_join_element_wise(texts, pa.scalar("\n", texts.type), pa.scalar("", texts.type))


@benchmark("convert-function", beside="convert")
def convert_function(job: Job) -> None:
    """Records with other field names to documents by a function that does what the mapping does."""
    folder = job.corpus.dataset("raw")
    dk.convert(f"{folder}/part-0.jsonl.gz", to=str(job.scratch / "warm"), function=renamed, **OPTIONS)
    with job.measured(job.corpus.text_mb):
        done = dk.convert(folder, to=str(job.scratch / "v0"), function=renamed, **OPTIONS)
    assert done.counts["documents_out"] == job.corpus.documents


def _transform(job: Job, function: Any) -> None:
    root = job.corpus.dataset("all")
    dk.transform(root, function, to=str(job.scratch / "warm"), prune=1, **OPTIONS)
    with job.measured(job.corpus.text_mb):
        done = dk.transform(root, function, to=str(job.scratch / "v1"), **OPTIONS)
    assert done.counts["documents_out"] == job.corpus.documents


@benchmark("mix-all")
def mix_all(job: Job) -> None:
    """A mix that keeps and changes nothing."""
    root = job.corpus.dataset("all")
    dk.mix(root, to=str(job.scratch / "warm"), prune=1, **OPTIONS)
    with job.measured(job.corpus.text_mb):
        done = dk.mix(root, to=str(job.scratch / "v1"), **OPTIONS)
    assert done.counts["documents_out"] == job.corpus.documents


@benchmark("transform-same", beside="mix-all")
def transform_same(job: Job) -> None:
    """A function of one text that changes nothing."""
    _transform(job, same)


@benchmark("transform", beside="mix-all")
def transform_text(job: Job) -> None:
    """A function of one text that changes all."""
    _transform(job, end)


@benchmark("transform-regex", beside="mix-all")
def transform_regex(job: Job) -> None:
    """A function of one text that searches it with a regular expression, anchored at line starts."""
    _transform(job, without_pages)


@benchmark("transform-document", beside="mix-all")
def transform_document(job: Job) -> None:
    """A function of one document that changes all."""
    _transform(job, whole)


@benchmark("transform-block", beside="mix-all")
def transform_block(job: Job) -> None:
    """A function of all texts of a block that changes all."""
    _transform(job, ends)
