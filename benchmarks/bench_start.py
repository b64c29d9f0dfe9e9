"""Start-up of commands: 200 documents of 0.6 MB each time, nothing journalled, in CPU-seconds of the whole process tree.

python -m benchmarks.bench_start [--only tag mix ...] [--runs 7] [--beside TREE ...]

Commands take turns, and trees of the package within them; kernels and byte code are compiled beforehand. Told are the least and the median.
"""

import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench_verbs import WORDS
from benchmarks.corpus import BUILD, ROOT, default_origin, original_lines, shared_folder
from benchmarks.harness import environment

DOCUMENTS = 200
MEAN_BYTES = 3_000

TOKENIZER = str(shared_folder() / "tokenizers" / "neox-encoder.json")
TAG = ["tag", "v0", "--taggers", "gopher_v2"]

COMMANDS = {
    "help": ["--help"],
    "tag-help": ["tag", "--help"],
    "status": ["status", "v0"],
    "tag": TAG,
    "tag-again": TAG,
    "quantiles": ["quantiles", "v0", "--level", "regular"],
    "stat": ["stat", "v0"],
    "mix": ["mix", "v0", "--to", "v1", "--where", WORDS],
    "dedupe": ["dedupe", "v0"],
    "dedupe-fuzzy": ["dedupe", "v0", "--how", "fuzzy"],
    "validate": ["validate", "v0"],
    "ragged": ["ragged", "v0", "ragged", "--tokenizer", TOKENIZER],
    "hdf5": ["hdf5", "v0", "h5", "--tokenizer", TOKENIZER],
}
"""Words of each command."""

BEFORE = dict.fromkeys(("tag-again", "quantiles", "stat", "mix"), TAG)
"""What a command finds done."""


def documents() -> bytes:
    """Return the documents of one shard, those next to the mean size."""
    lines = sorted(original_lines(default_origin()), key=lambda line: abs(len(line) - MEAN_BYTES))
    return b"\n".join([*sorted(lines[:DOCUMENTS]), b""])


class Trees:
    """Runs commands of the package as each tree has it, in a scratch folder that is new each time."""

    def __init__(self, trees: Sequence[str]) -> None:
        self.trees = trees
        self._scratch = BUILD / "scratch" / "start"
        self._shard = gzip.compress(documents(), mtime=0)

    def seconds(self, tree: str, name: str) -> float:
        """Return user and system CPU-seconds of one run."""
        folder = self._scratch / "v0" / "documents"
        shutil.rmtree(self._scratch, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "a.jsonl.gz").write_bytes(self._shard)
        if name in BEFORE:
            self._run(tree, BEFORE[name])
        return self._run(tree, COMMANDS[name])

    def _run(self, tree: str, words: Sequence[str]) -> float:
        command = [str(Path(sys.executable).with_name("dolma-dask")), *words]
        threads = {"OMP_NUM_THREADS", "RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM"}  # users set none
        variables = {name: value for name, value in environment().items() if name not in threads}
        variables["PYTHONPATH"] = tree
        output = self._scratch / "output"
        with output.open("w") as file:
            running = subprocess.Popen(command, cwd=self._scratch, env=variables, stdout=file, stderr=file)
            _, status, usage = os.wait4(running.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(words)}: status {status}\n{output.read_text()}")
        return usage.ru_utime + usage.ru_stime


def measure(trees: Trees, names: Sequence[str], runs: int) -> None:
    """Print a line for each command: least and median for each tree."""
    taken: dict[tuple[str, str], list[float]] = {(name, tree): [] for name in names for tree in trees.trees}
    for number in range(runs + 1):
        for name, tree in taken:
            seconds = trees.seconds(tree, name)
            if number:  # the first one compiles
                taken[name, tree].append(seconds)
    for name in names:
        cells = (taken[name, tree] for tree in trees.trees)
        print(
            f"{name:14}", *(f"{min(cell):8.3f} {statistics.median(cell):6.3f}" for cell in cells), flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(COMMANDS), choices=COMMANDS, metavar="NAME")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--beside", nargs="*", default=[], help="other trees of the package", metavar="TREE")
    options = parser.parse_args()
    trees = [str(ROOT), *options.beside]
    for tree in trees:
        subprocess.run([sys.executable, "-m", "compileall", "-q", f"{tree}/dolma_dask"], check=True)
    measure(Trees(trees), options.only, options.runs)


if __name__ == "__main__":
    main()
