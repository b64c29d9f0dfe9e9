"""Collections written back, in one process, past start-up, beside the verbs that do the same without pandas: .jsonl.gz in, .jsonl.gz (or .npy) out."""

from collections.abc import Callable
from typing import Any

import dolma_dask as dk
from benchmarks.bench_verbs import OPTIONS, linked, tokenizer_path
from benchmarks.harness import Job, benchmark, peak_megabytes

HERE = {"scheduler": "synchronous"}
TAGGER = ["char_length_v1"]


def _measure(job: Job, name: str, megabytes: float, work: Callable[[str, str], Any]) -> None:
    """Do it on a small dataset, then on that of this name; a dataset, and a place that is free."""
    work(linked(job, "warm"), str(job.scratch / "to-warm"))
    root, before = linked(job, name), peak_megabytes()
    with job.measured(megabytes):
        done = work(root, str(job.scratch / "to"))
    result = job.result
    assert result is not None
    note = f"{result.peak - before:.0f} MB above a warm process"
    job.result = type(result)(result.megabytes, result.cpu, result.wall, result.peak, note)
    assert done.exit_status == 0


def _frame(root: str) -> Any:
    return dk.read_dataframe(root, ["id", "source", "text"])


@benchmark("write-documents", beside="mix-all")
def write_documents(job: Job) -> None:
    """id, source and text of all documents, read into pandas and spelled anew; partitions of up to 64 MB."""
    _measure(job, "all", job.corpus.text_mb, lambda root, to: dk.write_documents(_frame(root), to, **HERE))


@benchmark("mix-all")
def mix_all(job: Job) -> None:
    """All documents of the same dataset, kept as they are."""
    _measure(job, "all", job.corpus.text_mb, lambda root, to: dk.mix(root, to=to, **OPTIONS))


@benchmark("write-attributes", beside="tag-length")
def write_attributes(job: Job) -> None:
    """A number per document that pandas has computed of the text."""

    def work(root: str, to: str) -> Any:
        df = _frame(root)
        return dk.write_attributes(df.assign(length=df.text.str.len()), root, "length", **HERE)

    _measure(job, "all", job.corpus.text_mb, work)


@benchmark("tag-length")
def tag_length(job: Job) -> None:
    """The same number by a tagger (char_length_v1)."""
    _measure(job, "all", job.corpus.text_mb, lambda root, to: dk.tag(root, TAGGER, **OPTIONS))


@benchmark("write-ragged", beside="ragged")
def write_ragged(job: Job) -> None:
    """Token ids and lengths of two of the eight files, read into pandas."""
    path = tokenizer_path(job.corpus)

    def work(root: str, to: str) -> Any:
        return dk.write_ragged(_frame(root), to, tokenizer=path, **HERE)

    _measure(job, "few", job.corpus.few_mb, work)


@benchmark("write-documents-bag", beside="write-documents")
def write_documents_bag(job: Job) -> None:
    """The same documents as dicts, two of the eight files."""

    def work(root: str, to: str) -> Any:
        return dk.write_documents(dk.read_bag(root, ["id", "source", "text"]), to, **HERE)

    _measure(job, "few", job.corpus.few_mb, work)
