"""Gopher's filters of quality and repetition by datatrove, at their defaults and in the order of FineWeb: documents are judged and counted, not written."""

import shutil
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import JsonlReader

WORKERS = 2


def main() -> None:
    """Judge the documents of a folder, and leave the number of those that stay in a file."""
    folder, output = sys.argv[1], Path(sys.argv[2])
    work = output.with_suffix(".work")
    shutil.rmtree(work, ignore_errors=True)
    pipeline = [
        JsonlReader(folder, glob_pattern="**/*.jsonl.gz", compression="gzip"),
        GopherRepetitionFilter(),
        GopherQualityFilter(),
    ]
    tasks = len(list(Path(folder).rglob("*.jsonl.gz")))
    executor = LocalPipelineExecutor(
        pipeline, tasks=tasks, workers=WORKERS, start_method="fork", logging_dir=str(work)
    )
    stats = executor.run().stats
    output.write_text(f"{stats[-1].stats['forwarded'].total}\n")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
