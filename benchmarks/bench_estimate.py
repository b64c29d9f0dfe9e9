"""Estimates of a pipeline beside the pipeline's real cost: CPU, bytes and files of each stage, and in all.

Run ``python -m benchmarks.bench_estimate --times 10`` (the reference corpus ten times with new ids: 200 MB of text, two minutes), and with 50
(1 GB, five minutes). Every text is there as often as that, so that a sample of documents alone would see hardly any copy. The stages are those of
``configs/demo.yaml``, or with ``--begin dataset`` those after `convert`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.corpus import BUILD, ROOT
from benchmarks.pipeline_call import call_pipeline, measured_environment
from benchmarks.repeated import link_documents, tokenizer_path, write_documents

TEXT_MB = 20.0
"""Megabytes of the originals."""

CONVERT = '  - convert: {inputs: "${raw}", to: "${out}/v0", source: bench}\n'

PIPELINE = """\
variables:
  raw:
  out:
  tokenizer:
  good: word_count >= 50 and symbol_to_word_ratio <= 0.1 and fraction_of_words_with_alpha_character >= 0.7
stages:
%s\
  - validate: {dataset: "${out}/v0", attributes: []}
  - tag: {dataset: "${out}/v0", taggers: [char_length_v1, whitespace_tokenizer_v1, gopher_v2]}
  - quantiles: {dataset: "${out}/v0", signals: [word_count, symbol_to_word_ratio], by: source, level: regular}
  - dedupe: {dataset: "${out}/v0"}
  - name: near
    dedupe: {dataset: "${out}/v0", how: fuzzy, where: "${good} and exact is None"}
  - mix: {dataset: "${out}/v0", to: "${out}/v1", where: "${good} and exact is None and fuzzy is None"}
  - ragged: {dataset: "${out}/v1", to: "${out}/tokens", tokenizer: "${tokenizer}", eos: <|endoftext|>, name: bench}
  - hdf5: {dataset: "${out}/v1", to: "${out}/h5", tokenizer: "${tokenizer}", max_seq_length: 2048, eos: <|endoftext|>}
report: {dataset: "${out}/v1", to: "${out}/report.html", tokens: ["${out}/tokens", "${out}/h5"]}
"""


def main() -> int:
    """Make the corpus, estimate, run, and print both; 1 if CPU, bytes or files in all are further apart than `--within`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--begin", choices=("raw", "dataset"), default="raw")
    parser.add_argument("--within", type=float, default=0.3)
    options, more = parser.parse_known_args()
    scratch = BUILD / "estimate"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        return _compare(scratch, options, more)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _compare(scratch: Path, options: argparse.Namespace, more: list[str]) -> int:
    write_documents(scratch / "raw", TEXT_MB * options.times)
    is_raw = options.begin == "raw"
    if not is_raw:
        link_documents(scratch / "raw", scratch / "out")
    file = scratch / "pipeline.yaml"
    file.write_text(PIPELINE % (CONVERT if is_raw else ""))
    words = [str(file), "--set", f"raw={scratch / 'raw'}", f"out={scratch / 'out'}"]
    words.append(f"tokenizer={tokenizer_path(scratch)}")
    told = _estimate([*words, *more], scratch)
    before = _files(scratch / "out")
    call = call_pipeline(words, scratch, {}, TEXT_MB * options.times)
    made = {path: size for path, size in _files(scratch / "out").items() if path not in before}
    rows = [
        (stage["name"], stage["cpu"] + stage["start"], call.costs[stage["name"]].cpu)
        for stage in told["stages"]
    ]
    for name, estimated, taken in rows:
        print(f"{name:12} CPU-s {estimated:8.2f} {taken:8.2f}  {estimated / max(taken, 1e-3):6.2f}")
    for name, size in _by_folder(scratch / "out", made).items():
        print(f"{name:60} {size / 1e6:8.2f} MB")
    print("MB estimated:", {stage["name"]: round(stage["bytes"] / 1e6, 2) for stage in told["stages"]})
    total = told["all"]
    sums = [
        ("CPU-s", total["cpu"], call.whole.cpu),
        ("MB", total["bytes"] / 1e6, sum(made.values()) / 1e6),
        ("files", total["files"], len(made)),
    ]
    for name, estimated, taken in sums:
        print(f"in all       {name:9} {estimated:10.2f} {taken:10.2f}  {estimated / taken:6.2f}")
    print(
        f"wall: estimated {_wall(told)}, taken {call.whole.wall:.1f} s; the estimate took {told['seconds']:.0f} s, load {os.getloadavg()[0]:.1f}"
    )
    return int(any(abs(estimated / taken - 1) > options.within for _, estimated, taken in sums[:3]))


def _wall(told: dict[str, Any]) -> str:
    return ", ".join(f"{one['wall']:.1f} s with {one['workers']}" for one in told["workers"][:3])


def _estimate(words: list[str], scratch: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "dolma_dask", "estimate", *words, "--json", "--no-progress"]
    done = subprocess.run(command, cwd=ROOT, env=measured_environment(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"estimate: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _by_folder(root: Path, made: dict[str, int]) -> dict[str, int]:
    """Sum sizes by the first folders of their paths."""
    sums: Counter[str] = Counter()
    for path, size in made.items():
        sums["/".join(Path(path).relative_to(root).parts[:3][:-1] or ("page",))] += size
    return dict(sums)


def _files(root: Path) -> dict[str, int]:
    """Return the sizes of files below a folder, without journals."""
    return {
        str(path): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() and not {"_journal", "_work", "_quarantine"} & set(path.parts)
    }


if __name__ == "__main__":
    sys.exit(main())
