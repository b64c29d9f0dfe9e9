"""Requests to a store that each verb makes, by number of files: the table `REQUESTS` of ``dolma_dask/pipelines/estimate/model.py``.

Run ``python -m benchmarks.bench_estimate_requests`` (two minutes): a pipeline on the tests' S3 server, through a proxy that counts, for 10 files and
for 20; a line through both. Files are small, so that each is one block.
"""

import gzip
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.corpus import BUILD, ROOT, default_origin, original_lines
from benchmarks.repeated import tokenizer_path

sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from s3_server import Proxy, S3Server

PIPELINE = """\
stages:
  - convert: {inputs: "s3://b/raw", to: "s3://b/v0", source: bench}
  - validate: {dataset: "s3://b/v0", attributes: []}
  - tag: {dataset: "s3://b/v0", taggers: [gopher_v2]}
  - quantiles: {dataset: "s3://b/v0", signals: [word_count], level: regular}
  - filter: {dataset: "s3://b/v0", thresholds: ["s3://b/v0/quantiles/quantiles.regular.json"], name: quality}
  - dedupe: {dataset: "s3://b/v0"}
  - name: near
    dedupe: {dataset: "s3://b/v0", how: fuzzy}
  - mix: {dataset: "s3://b/v0", to: "s3://b/v1", where: exact is None and fuzzy is None and word_count > 20}
  - ragged: {dataset: "s3://b/v1", to: "s3://b/tokens", tokenizer: "%(tokenizer)s"}
  - hdf5: {dataset: "s3://b/v1", to: "s3://b/h5", tokenizer: "%(tokenizer)s", max_seq_length: 2048, eos: <|endoftext|>}
report: {dataset: "s3://b/v1", to: "s3://b/report.html", tokens: ["s3://b/tokens"]}
"""
STAGES = (
    "convert",
    "validate",
    "tag",
    "quantiles",
    "filter",
    "dedupe",
    "near",
    "mix",
    "ragged",
    "hdf5",
    "report",
)
DOCUMENTS = 2_000


def count_requests(scratch: Path, files: int) -> dict[str, Counter[str]]:
    """Return the requests of each stage for so many files."""
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "b/raw").mkdir(parents=True)
    lines = [line for _, line in zip(range(DOCUMENTS), original_lines(default_origin()), strict=False)]
    for number in range(files):
        data = b"".join(_stored(line) for line in lines[number::files])
        (scratch / f"b/raw/{number:03}.jsonl.gz").write_bytes(gzip.compress(data, 6))
    (scratch / "p.yaml").write_text(PIPELINE % {"tokenizer": tokenizer_path(scratch)})
    server = S3Server(scratch).start()
    proxy = Proxy(int(server.endpoint.rpartition(":")[2]))
    found = {}
    try:
        environment = {**os.environ, **server.environment(proxy.port)}
        for stage in STAGES:
            proxy.requests.clear()
            command = [sys.executable, "-m", "dolma_dask", "run", str(scratch / "p.yaml"), "--only", stage]
            subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
            found[stage] = proxy.methods()
    finally:
        proxy.close()
        server.kill()
    return found


def _stored(line: str | bytes) -> bytes:
    data = line.encode() if isinstance(line, str) else line
    return data.rstrip(b"\n") + b"\n"


def main() -> None:
    """Print fixed requests and requests per file."""
    scratch = BUILD / "requests"
    few, many = count_requests(scratch, 10), count_requests(scratch, 20)
    for stage in STAGES:
        one, two = few[stage].total(), many[stage].total()
        rate = (two - one) / 10
        print(
            f"{stage:10} {one:5} {two:5}  fixed {one - 10 * rate:6.0f}  per file {rate:5.1f}  {dict(many[stage])}"
        )
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
