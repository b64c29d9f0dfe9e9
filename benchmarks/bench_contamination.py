"""Speed of the tagger contamination: a plain read of a dataset, the same with its cheapest tagger, and against 50,000 items.

Run ``python -m benchmarks.bench_contamination [MB]`` (default 275 MB of text): MB of text per CPU-second of whole commands in one process, compiled beforehand. One item in
five hundred begins a document; the others are words of the documents in any order, so that nearly all n-grams are nowhere.
"""

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.bench_taggers import read_texts
from benchmarks.corpus import BUILD, shared_folder
from dolma_dask.verbs.tag.verb import tag

ITEMS, WORDS, COPIED = 50_000, 60, 500


def documents(texts: list[str], megabytes: float) -> Iterator[str]:
    """Yield documents as lines, the texts again and again."""
    size = 0
    for number in range(1 << 40):
        text = texts[number % len(texts)]
        yield json.dumps({"id": str(number), "text": text, "source": "s"}, ensure_ascii=False) + "\n"
        size += len(text.encode())
        if size >= megabytes * 1e6:
            return


def items(texts: list[str], count: int) -> Iterator[str]:
    """Yield items as lines."""
    draw = random.Random(0)
    known = sorted({word for text in texts for word in text.split() if len(word) < 13})
    for number in range(count):
        words = draw.choices(known, k=WORDS)
        if number % COPIED == 0:
            words = draw.choice(texts).split()[:WORDS]
        yield json.dumps({"text": " ".join(words)}, ensure_ascii=False) + "\n"


def write(path: Path, lines: Iterator[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(lines)


def cpu_seconds(job: Callable[[], object]) -> float:
    start = time.process_time()
    job()
    return time.process_time() - start


def main(arguments: list[str]) -> int:
    megabytes = float(arguments[0]) if arguments else 275.0
    root = BUILD / "contamination"
    shutil.rmtree(root, ignore_errors=True)
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    texts = read_texts(sorted((shared_folder() / "corpus").rglob("*.jsonl.gz")))
    write(root / "v0/documents/a.jsonl", documents(texts, megabytes))
    write(root / "warm/documents/a.jsonl", documents(texts, 1.0))
    write(root / "items.jsonl", items(texts, ITEMS))
    options = {"scheduler": "synchronous", "progress": False, "overwrite": True}
    against = {**options, "against": str(root / "items.jsonl")}
    made = cpu_seconds(lambda: tag(str(root / "warm"), "contamination", **against))
    print(f"n-grams of {ITEMS:,} items, with compilation: {made:.1f} CPU-s")
    tag(str(root / "warm"), "char_length_v1", **options)
    for name, given in [("char_length_v1", options), ("contamination", against)] * 2:
        seconds = cpu_seconds(lambda name=name, given=given: tag(str(root / "v0"), name, **given))  # type: ignore[misc]
        print(f"{name}: {seconds:.2f} CPU-s, {megabytes / seconds:.0f} MB/CPU-s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
