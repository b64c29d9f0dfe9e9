"""Memory does not grow with the file: the peak above a warm process, for one shard of 0.25 GB and of 1 GB of JSON in one gzip member."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import dolma_dask as dk
from benchmarks.bench_verbs import OPTIONS, TAGGERS, WORDS, linked, tokenizer_path
from benchmarks.corpus import Corpus
from benchmarks.harness import Benchmark, Goal, Job, Result, benchmark, own_peak_megabytes, reset_peak

SIZES = {"small": 250, "large": 1000}
"""MB of JSON, decompressed."""

LIMIT_MB = 200
WHERE = WORDS


def big_shard(corpus: Corpus, megabytes: int) -> str:
    """Return the name of a dataset of one shard, made once: the documents of ``all`` again and again."""
    from isal import igzip

    name = f"big-{megabytes}"
    path = Path(corpus.dataset(name), "documents", "part-0.jsonl.gz")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        waiting = path.with_name("waiting")
        with igzip.open(waiting, "wb", compresslevel=1) as out:
            size = 0
            while size < megabytes * 1e6:
                for file in corpus.files():
                    size += out.write(igzip.decompress(Path(file).read_bytes())) if size < megabytes * 1e6 else 0
        waiting.rename(path)
    return name
