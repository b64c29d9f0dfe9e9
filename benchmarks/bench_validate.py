"""validate: every row of documents and of one attribute set with 19 keys, and all identities compared, in one process past start-up."""

from benchmarks.bench_verbs import OPTIONS
from benchmarks.harness import Job, benchmark
from dolma_dask.verbs.tag.verb import tag
from dolma_dask.verbs.validate.verb import validate


@benchmark("validate")
def whole(job: Job) -> None:
    """Documents and gopher_v2: records, alignment, spans, unique ids."""
    _validate(job, ["gopher_v2"])


@benchmark("validate-documents", beside="validate")
def documents(job: Job) -> None:
    """Documents alone: records and unique ids."""
    _validate(job, [])


def _validate(job: Job, attributes: list[str]) -> None:
    warm, dataset = job.corpus.dataset("warm"), job.corpus.dataset("all")
    for root in (warm, dataset):
        tag(root, ["gopher_v2"], scheduler="synchronous", progress=False)
    validate(warm, attributes=attributes, **OPTIONS)
    with job.measured(job.corpus.text_mb):
        report = validate(dataset, attributes=attributes, **OPTIONS)
    assert report.counts["documents_in"] == job.corpus.documents
    assert not report.problems
