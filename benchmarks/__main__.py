"""Run the benchmarks: python -m benchmarks [--list] [--only NAME ...] [--quick] [--with-dolma] [--corpus collected|shared]."""

import argparse
import fnmatch
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from benchmarks import (
    bench_cluster,
    bench_collections,
    bench_commands,
    bench_dedupe,
    bench_files,
    bench_filter,
    bench_functions,
    bench_hdf5,
    bench_mix,
    bench_partitions,
    bench_quantiles,
    bench_validate,
    bench_verbs,
    bench_warc,
    harness,
)
from benchmarks.bench_verbs import tokenizer_path
from benchmarks.corpus import ROOT, Corpus, default_origin, open_corpus

MODULES = (
    bench_files,
    bench_verbs,
    bench_mix,
    bench_functions,
    bench_warc,
    bench_hdf5,
    bench_partitions,
    bench_validate,
    bench_quantiles,
    bench_filter,
    bench_dedupe,
    bench_commands,
    bench_cluster,
    bench_collections,
)
"""Importing them registers their benchmarks; the table is in the order of registration."""

SCRIPTS = {
    "memory": "Growth of a warm process over a shard of 0.25 GB and of 1 GB.",
    "json": "Kernels that read documents and attribute rows.",
    "attributes": "Kernels that write attribute rows, and digests.",
    "taggers": "Kernels of the taggers, and the time to compile them.",
    "tokens": "From text to flat token ids.",
    "packing": "Segments into rows, by each packing: segments per CPU-second, and how full rows are.",
    "minhash": "Signatures of the default scheme beside rensa, and the recall of near copies in scripts without spaces.",
    "minhash_redpajama": "Signatures of RedPajama-V2 and datasketch, beside hashlib with NumPy and datasketch itself.",
    "small_files": "Whole commands over 20,000 shards of three documents, or a million.",
    "gopher": "Rule signals of RedPajama-V2 beside datatrove's Gopher filters, as whole commands.",
    "attach": "Published quality signals to attributes, beside isal's inflate.",
    "what_if": "what-if beside reading the same Parquet columns with pyarrow.",
    "s3": "Requests per shard and per run on an S3 server.",
    "pipeline": "A pipeline on disk and on an S3 server: the same bytes, and what each stage costs.",
    "redpajama": "The chain of RedPajama-V2 on a synthetic tree, killed and resumed, on disk and on an S3 server: the same bytes, memory.",
    "exchange": "Records regrouped by key through files and between workers, beside dd.shuffle.",
}
"""Scripts of their own, ``bench_<name>.py``, that print their own tables."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="NAME", help="names, or patterns such as 'read*'"
    )
    parser.add_argument(
        "--quick", action="store_true", help="16 MB, once: shows that it works; figures mean little"
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the median is told")
    parser.add_argument("--with-dolma", action="store_true", help="install the Dolma toolkit to compare with")
    parser.add_argument("--corpus", choices=["collected", "shared"], default=default_origin())
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.list:
        return _list()
    if options.with_dolma:
        bench_commands.make_dolma_environment()
    corpus = open_corpus(options.corpus, options.quick)
    if options.child:
        return harness.run_here(harness.BENCHMARKS[options.child], corpus, options.quick)
    chosen = [item for item in harness.BENCHMARKS.values() if _is_chosen(item.name, options.only)]
    if options.quick:
        chosen = [replace(item, goal=None) for item in chosen]
    scripts = [name for name in SCRIPTS if _is_chosen(name, options.only)]
    if not chosen and not scripts:
        raise SystemExit(f"no benchmark is called {' '.join(options.only)}; see --list")
    print(_heading(corpus), flush=True)
    is_good = _run_benchmarks(chosen, corpus, options)
    for name in scripts:
        _run_script(name, corpus, options.quick)
    return 0 if is_good else 1


def _list() -> int:
    known = {item.name: item.about for item in harness.BENCHMARKS.values()} | SCRIPTS
    width = max(map(len, known))
    print("\n".join(f"{name:{width}}  {about}" for name, about in known.items()))
    return 0


def _is_chosen(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _heading(corpus: Corpus) -> str:
    load, processors = os.getloadavg()[0], os.cpu_count()
    return (
        f"Python {platform.python_version()}, {processors} processors, load {load:.1f}; corpus: {corpus.origin}, "
        f"{corpus.documents:,} documents, {corpus.text_mb:.1f} MB of text, {corpus.json_mb:.1f} MB of JSON"
    )


def _run_benchmarks(chosen: Sequence[harness.Benchmark], corpus: Corpus, options: argparse.Namespace) -> bool:
    """Run, print a line as each ends and the table at the end; tell whether all ran and kept their goals."""
    if not harness.kernel_cache().exists():  # compiling takes memory, which is not to be told
        for name in ("tag", "mix"):
            harness.run(harness.BENCHMARKS[name], corpus, quick=options.quick, repeats=1)
    results: dict[str, harness.Result | None] = {}
    for item in chosen:
        try:
            result = harness.run(item, corpus, quick=options.quick, repeats=options.repeats)
        except harness.BenchmarkError as error:
            print(error, file=sys.stderr, flush=True)
            continue
        results[item.name] = result
        print(f"{item.name} {f'{result.cpu:.2f} CPU-s' if result else '-'}", file=sys.stderr, flush=True)
    cells = harness.rows(chosen, results)
    if cells:
        print(harness.table(cells), flush=True)
    return len(results) == len(chosen) and not any("MISSED" in row[7] for row in cells)


def _run_script(name: str, corpus: Corpus, quick: bool) -> None:
    print(f"\n{name}: {SCRIPTS[name]}", flush=True)
    arguments = {
        "memory": ["--verb", "tag", "--megabytes", "25"] if quick else [],
        "pipeline": ["--megabytes", "5"] if quick else [],
        "packing": ["--length", "512"] if quick else [],
        "json": corpus.files("few"),
        "taggers": corpus.files("few"),
        "tokens": [tokenizer_path(corpus), corpus.files()[0]],
        "minhash_redpajama": ["--megabytes", "20", "--runs", "1"] if quick else [],
    }
    command = [sys.executable, "-m", f"benchmarks.bench_{name}", *arguments.get(name, [])]
    subprocess.run(command, cwd=ROOT, env=harness.environment(), check=True)


if __name__ == "__main__":
    sys.exit(main())
