"""The chain of RedPajama-V2 on a synthetic tree, from a server that fails to the documents that stay: killed and resumed, on disk and on S3.

Run ``python -m benchmarks.bench_redpajama`` (200 MB of text, 20 kills in each place, a quarter of an hour on two processors; ``--megabytes 2 --kills 3`` shows
that it works). The tree of `dolma_dask.testing.redpajama_tree` is served over http; ``dolma-dask run`` downloads, converts, attaches, tags, finds
quantiles, filters and mixes: once unbroken with three workers, and with two, on disk and on an S3 server, where its process group gets SIGKILL at
seeded moments until it comes to its end. It fails (exit status 1) at the first file that differs, is left behind or is written by one more call.

Memory is that of the largest worker, beside the same on a tree of 2 MB.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench_pipeline import BUCKET, DifferenceError, compare, outputs, serving
from benchmarks.corpus import BUILD, ROOT
from benchmarks.pipeline_call import measured_environment
from dolma_dask.testing.commands import Command
from dolma_dask.testing.redpajama_tree import BUCKETS, SNAPSHOTS, write_tree

sys.path.insert(0, str(ROOT / "tests" / "unit" / "verbs"))

from bad_server import BadServer, Fault

WARM_MEGABYTES = 2
FAULTS = (Fault("drop", 5000), Fault("reset", 20_000), Fault("status", status=503), Fault("whole"))
FAULTY = 0.2
"""Share of the files that each fail once, in one of these ways."""

MIN_SECONDS = 1.5
"""Before a kill: less would hardly be enough to start."""

CHAIN = f"""\
variables: {{server: , root: }}
stages:
  - download:
      inputs: ${{server}}
      to: ${{root}}/raw
      snapshots: {list(SNAPSHOTS)}
      buckets: {list(BUCKETS)}
      on_broken: record
  - convert: {{inputs: "${{root}}/raw/documents", to: "${{root}}/v0", mapping: redpajama_v2}}
  - name: attach signals
    attach: {{dataset: "${{root}}/v0", tables: "${{root}}/raw/quality_signals", name: rps, missing: "null"}}
  - name: attach duplicates
    attach: {{dataset: "${{root}}/v0", tables: "${{root}}/raw/duplicates", name: exact, missing: "null"}}
  - tag:
      dataset: ${{root}}/v0
      taggers: [redpajama_v2_doc, redpajama_v2_lines, redpajama_v2_ccnet]
      format: parquet
  - quantiles:
      dataset: ${{root}}/v0
      signals:
        - redpajama_v2_doc__redpajama_v2_doc__rps_doc_word_count
        - redpajama_v2_doc__redpajama_v2_doc__rps_doc_frac_unique_words
        - redpajama_v2_ccnet__redpajama_v2_ccnet__ccnet_perplexity
        - rps_doc_stop_word_fraction
      by: metadata.language
      level: regular
  - filter: {{dataset: "${{root}}/v0", format: parquet}}
  - mix:
      dataset: ${{root}}/v0
      to: ${{root}}/v1
      where: exact is None and quality.level >= 1
"""
"""Computed signals and an attached one, which tails and shards without a table lack."""


@dataclass
class Chain:
    """The pipeline in one place."""

    scratch: Path
    server: str
    root: str  # as the command gets it
    folder: Path  # where that lies on this disk
    environment: dict[str, str] = field(default_factory=dict)

    def words(self, workers: int) -> list[str]:
        """Return the command without the program."""
        path = self.scratch / "chain.yaml"
        path.write_text(CHAIN)
        settings = ["--set", f"server={self.server}/rpv2", f"root={self.root}"]
        return [
            "run",
            str(path),
            *settings,
            "--no-progress",
            "--scheduler",
            "processes",
            "--workers",
            str(workers),
        ]

    def run(self, workers: int) -> tuple[float, float]:
        """Run it to its end; return seconds and the memory of its largest process besides the command, in MB."""
        with Command(self.words(workers), self.scratch / "log", **self.environment) as command:
            return self._watched(command)

    def _watched(self, command: Command) -> tuple[float, float]:
        begin, peak = time.monotonic(), 0.0
        while command.running():
            workers = [process for process in command.workers() if process.pid != command.process.pid]
            peak = max([peak, *(_most_memory(process.pid) for process in workers)])
            time.sleep(0.05)
        if command.wait():
            raise SystemExit(command.output)
        return time.monotonic() - begin, peak

    def run_killed(self, workers: int, kills: int, seconds: float, draw: random.Random) -> tuple[int, int]:
        """Run it to its end with so many kills at drawn moments, if need be from the beginning again; return how often it was killed and ended."""
        killed = ended = 0
        while killed < kills:
            if ended:
                shutil.rmtree(self.folder)
            while killed < kills and self._is_killed(workers, draw.uniform(MIN_SECONDS, seconds)):
                killed += 1
            ended += 1
        self.run(workers)
        return killed, ended

    def _is_killed(self, workers: int, seconds: float) -> bool:
        """Run it for so long; return whether it had to be killed."""
        end = time.monotonic() + seconds
        with Command(self.words(workers), self.scratch / "log", **self.environment) as command:
            while command.running():
                if time.monotonic() > end:
                    command.kill(group=True)
                    return True
                time.sleep(0.01)
            if command.wait():
                raise SystemExit(command.output)
        return False


def _most_memory(pid: int) -> float:
    """Return the largest resident memory of a process so far, in MB; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM")), 0.0)


@contextmanager
def served(tree: Path, draw: random.Random) -> Iterator[str]:
    """Serve a tree, some files of which fail once; yield its address."""
    files = {
        f"/rpv2/{path.relative_to(tree)}": path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }
    with BadServer(files) as server:
        for path in files:
            if draw.random() < FAULTY:
                server.faults[path].append(draw.choice(FAULTS))
        yield server.url


def tree_of(megabytes: float) -> Path:
    """Return a tree, which is made once."""
    tree = BUILD / f"redpajama-tree-{megabytes:g}"
    if not tree.exists():
        made = tree.with_suffix(".new")
        shutil.rmtree(made, ignore_errors=True)
        print(write_tree(made, megabytes), flush=True)
        made.rename(tree)
    return tree


def check_again(chain: Chain, workers: int) -> None:
    """Run a chain once more, which must write nothing."""
    before = {name: path.stat().st_mtime_ns for name, path in outputs(chain.folder).items()}
    chain.run(workers)
    after = {name: path.stat().st_mtime_ns for name, path in outputs(chain.folder).items()}
    if before != after:
        raise DifferenceError(f"the last call wrote {sorted(set(before.items()) ^ set(after.items()))[0][0]}")


def run(megabytes: float, kills: int, seed: int, scratch: Path, stack: ExitStack) -> None:
    """Do everything in `scratch`, and print what came out; raise `DifferenceError` if anything differs."""
    draw = random.Random(seed)
    warm_url = stack.enter_context(served(tree_of(WARM_MEGABYTES), draw))
    for name in ("compiled", "warm"):  # what compiling takes is no worker's own
        _, warm = Chain(scratch, warm_url, str(scratch / name), scratch / name).run(3)
    url = stack.enter_context(served(tree_of(megabytes), draw))
    whole = Chain(scratch, url, str(scratch / "whole"), scratch / "whole")
    seconds, peak = whole.run(3)
    print(
        f"unbroken, 3 workers: {seconds:.1f} s; largest worker {peak:.0f} MB, of a tree of {WARM_MEGABYTES} MB {warm:.0f}",
        flush=True,
    )
    variables, _ = stack.enter_context(serving(scratch / "objects"))
    places = {
        "disk": Chain(scratch, url, str(scratch / "disk"), scratch / "disk"),
        "S3": Chain(scratch, url, f"s3://{BUCKET}/chain", scratch / "objects" / BUCKET / "chain", variables),
    }
    for place, chain in places.items():
        began = time.monotonic()
        killed, ended = chain.run_killed(2, kills, max(seconds / 4, 2 * MIN_SECONDS), draw)
        files, size = compare(whole.folder, chain.folder)
        check_again(chain, 1)
        print(
            f"{place}: killed {killed} times, ended {ended} times in {time.monotonic() - began:.0f} s; "
            f"{files:,} files and {size:,.1f} MB are the same",
            flush=True,
        )


def main() -> int:
    """Print what was measured; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ.update(measured_environment())
    (BUILD / "scratch").mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="redpajama-", dir=BUILD / "scratch") as scratch,
            ExitStack() as stack,
        ):
            (Path(scratch) / "objects" / BUCKET).mkdir(parents=True)
            run(given.megabytes, given.kills, given.seed, Path(scratch), stack)
    except DifferenceError as error:
        print(f"DIFFERENT: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
