"""Documents into a dataframe or a table by whole processes, start-up and end included, beside polars: user and system CPU-seconds, in turn.

Run ``python -m benchmarks.bench_frames --peers PYTHON [--beside TREE ...] [--megabytes 20 220] [--runs 5]``, where PYTHON is that of an environment
with polars, its byte code compiled. Both read the same .jsonl.gz. Told are the medians, and the median of the ratios to polars, run by run.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.bench_commands import ours
from benchmarks.corpus import BUILD, ROOT
from benchmarks.harness import cpu_seconds, environment
from benchmarks.repeated import write_documents

PEER = Path(__file__).with_name("peers") / "frame_polars.py"
SET = "gopher_v2"

CALLS = {
    "id, source, text": ("dk.read_dataframe(root, ['id', 'source', 'text']).compute()", ["id,source,text"]),
    "all columns": (
        "dk.read_dataframe(root, ['id', 'text', 'source', 'added', 'created', 'metadata']).compute()",
        ["all"],
    ),
    "id, source": ("dk.read_dataframe(root, ['id', 'source']).compute()", ["id,source"]),
    "id, attributes": (
        f"dk.read_dataframe(root, ['id'], attributes=['{SET}'], short=True).compute()",
        ["id", SET],
    ),
    "table: id, source, text": ("dk.read_table(root, ['id', 'source', 'text'])", ["id,source,text"]),
    "table: all columns": (
        "dk.read_table(root, ['id', 'text', 'source', 'added', 'created', 'metadata'])",
        ["all"],
    ),
    "table: id, source": ("dk.read_table(root, ['id', 'source'])", ["id,source"]),
    "table: id, attributes": (
        f"dk.read_table(root, ['id'], attributes=['{SET}'], short=True)",
        ["id", SET],
    ),
    "len": ("len(dk.read_dataframe(root))", []),
    "lengths of texts": ("dk.read_dataframe(root).text.str.len().sum().compute()", []),
    "dicts": (
        "dk.read_bag(root, ['id', 'source', 'text']).count().compute(scheduler='synchronous')",
        [],
    ),
    "import": ("dask.dataframe", []),
}
"""What is computed, and the words of polars' script for the same; none: only ours is run."""

PREFACE = "import sys; import dolma_dask as dk; root = sys.argv[1]; "


def dataset(megabytes: int) -> Path:
    """Return a dataset with so many MB of text and a set of attributes, made once."""
    root = BUILD / "frames" / str(megabytes)
    if not (root / "attributes" / SET).exists():
        shutil.rmtree(root, ignore_errors=True)
        write_documents(root / "documents", megabytes)
        tag = [ours(), "tag", str(root), "--taggers", SET, "--no-progress"]
        subprocess.run(tag, env=environment(), check=True, capture_output=True)
    return root


def seconds(command: Sequence[str], tree: str) -> float:
    """Return what a process takes."""
    before = cpu_seconds()
    subprocess.run(command, env={**environment(), "PYTHONPATH": tree}, check=True, stdout=subprocess.DEVNULL)
    return cpu_seconds() - before


def commands(
    root: Path, name: str, trees: Sequence[str], peer: str | None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the tree and command of each that takes part, polars first."""
    call, words = CALLS[name]
    if peer and words:
        yield "polars", [peer, str(PEER), str(root), *words]
    script = "import dask.dataframe" if name == "import" else PREFACE + call
    for tree in trees:
        yield tree, [sys.executable, "-P", "-c", script, str(root)]


def measure(root: Path, name: str, trees: Sequence[str], peer: str | None, runs: int) -> None:
    """Print a line."""
    parts = list(commands(root, name, trees, peer))
    taken = [[seconds(words, tree) for tree, words in parts] for _ in range(runs + 1)][
        1:
    ]  # the first compiles
    cells = []
    for at, (tree, _) in enumerate(parts):
        ratio = statistics.median(row[at] / row[0] for row in taken)
        cells.append(f"{tree} {statistics.median(row[at] for row in taken):.2f} ({ratio:.2f})")
    print(f"{root.name:>4} MB  {name:23}", *cells, sep="  ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--beside", nargs="*", default=[], help="other trees of the package", metavar="TREE")
    parser.add_argument("--megabytes", nargs="+", type=int, default=[20, 220])
    parser.add_argument("--only", nargs="+", default=list(CALLS), choices=CALLS, metavar="NAME")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    trees = [*options.beside, str(ROOT)]
    for tree in trees:
        subprocess.run([sys.executable, "-m", "compileall", "-q", f"{tree}/dolma_dask"], check=True)
    for megabytes in options.megabytes:
        for name in options.only:
            measure(dataset(megabytes), name, trees, options.peers, options.runs)


if __name__ == "__main__":
    main()
