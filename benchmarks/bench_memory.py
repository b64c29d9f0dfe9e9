"""Memory does not grow with the file: the peak above a warm process, for shards of 0.25 GB and 1 GB of JSON in one gzip member each."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import dolma_dask as dk
from benchmarks.bench_verbs import OPTIONS, TAGGERS, WORDS, linked, tagged, tokenizer_path
from benchmarks.corpus import Corpus
from benchmarks.harness import Goal, Job, Result, benchmark, own_peak_megabytes, reset_peak

SIZES = {"small": 250, "large": 1000}
"""MB of JSON, decompressed."""

LIMIT_MB = 200


def big_dataset(corpus: Corpus, megabytes: int) -> str:
    """Return the name of a dataset with one shard, made once: the files of ``all`` again and again."""
    from isal import igzip

    name = f"big-{megabytes}"
    path = Path(corpus.dataset(name), "documents", "part-0.jsonl.gz")
    if path.exists():
        return name
    path.parent.mkdir(parents=True, exist_ok=True)
    waiting = path.with_name("waiting")
    files, size = itertools.cycle(corpus.files()), 0
    with igzip.open(waiting, "wb", compresslevel=1) as out:
        while size < megabytes * 1e6:
            size += out.write(igzip.decompress(Path(next(files)).read_bytes()))
    waiting.rename(path)
    return name


def _tag(job: Job, name: str) -> Callable[[], object]:
    return partial(dk.tag, linked(job, name), TAGGERS, **OPTIONS)


def _mix(job: Job, name: str) -> Callable[[], object]:
    return partial(dk.mix, tagged(job, name), to=str(job.scratch / f"{name}-v1"), where=WORDS, **OPTIONS)


def _ragged(job: Job, name: str) -> Callable[[], object]:
    out = str(job.scratch / f"{name}-out")
    return partial(dk.ragged, job.corpus.dataset(name), out, tokenizer=tokenizer_path(job.corpus), **OPTIONS)


def _measure(job: Job, megabytes: int, prepare: Callable[[Job, str], Callable[[], object]]) -> None:
    """Run a verb on a few documents, then on the large shard, and tell how far the memory rose in between."""
    megabytes = megabytes // 10 if job.quick else megabytes
    run = prepare(job, big_dataset(job.corpus, megabytes))
    prepare(job, "warm")()
    warm = reset_peak()
    with job.measured(megabytes):
        run()
    assert job.result
    growth = own_peak_megabytes() - warm
    job.result = Result(**{**vars(job.result), "note": f"+{growth:.0f} MB on {warm:.0f}", "growth": growth})


for _verb, _prepare in {"tag": _tag, "mix": _mix, "ragged": _ragged}.items():
    for _size, _megabytes in SIZES.items():
        benchmark(
            f"memory-{_verb}-{_size}",
            goal=Goal("growth", LIMIT_MB),
            beside=f"memory-{_verb}-small" if _size == "large" else None,
            unit="JSON",
            repeats=1,
            about=f"{_verb} on one shard of {_megabytes} MB of JSON: growth of a warm process.",
        )(partial(_measure, megabytes=_megabytes, prepare=_prepare))
