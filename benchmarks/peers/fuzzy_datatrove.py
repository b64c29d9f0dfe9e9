"""Fuzzy duplicates by datatrove: its stages of signatures, buckets and clusters, at its defaults (word 5-grams, 14 buckets of 8 hashes).

Its last stage, which writes the documents that stay, is left out: the rows to remove become ids here.
"""

import gzip
import shutil
import sys
from pathlib import Path

import numpy as np
import orjson
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader

WORKERS = 2


def run(folder: str, work: Path, files: int) -> None:
    """Leave in ``work/remove`` the rows of each file to be removed."""
    config = MinhashConfig()
    names = {name: str(work / name) for name in ("signatures", "buckets", "remove")}
    read = JsonlReader(folder, glob_pattern="**/*.jsonl.gz", compression="gzip")
    stages = [
        ([read, MinhashDedupSignature(names["signatures"], config)], files),
        ([MinhashDedupBuckets(names["signatures"], names["buckets"], config=config)], config.num_buckets),
        ([MinhashDedupCluster(names["buckets"], names["remove"], config=config)], 1),
    ]
    for number, (pipeline, tasks) in enumerate(stages):
        logs = str(work / f"logs-{number}")
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=min(WORKERS, tasks), logging_dir=logs).run()


def removed_ids(paths: list[Path], folder: Path) -> list[str]:
    ids = []
    for path, rows in zip(paths, sorted(folder.glob("*.remove")), strict=True):
        wanted = set(np.fromfile(rows, np.uint32).tolist())
        with gzip.open(path) as lines:
            ids += [orjson.loads(line)["id"] for row, line in enumerate(lines) if row in wanted]
    return ids


if __name__ == "__main__":
    paths = sorted(Path(sys.argv[1]).rglob("*.jsonl.gz"))
    output = Path(sys.argv[2])
    work = output.with_suffix(".work")
    shutil.rmtree(work, ignore_errors=True)
    run(sys.argv[1], work, len(paths))
    output.write_text("".join(f"{name}\n" for name in removed_ids(paths, work / "remove")))
    shutil.rmtree(work)
