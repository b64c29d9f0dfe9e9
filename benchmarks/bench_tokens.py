"""MB of text per CPU-second from text to flat ids, beside the plain way through lists.

python benchmarks/bench_tokens.py TOKENIZER.json DOCUMENTS.jsonl.gz [--megabytes 5]
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from dolma_dask.tokens.engine import load_tokenizer


def read_texts(path: Path, megabytes: float) -> list[str]:
    texts, total = [], 0
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            texts.append(json.loads(line)["text"])
            total += len(texts[-1].encode())
            if total >= megabytes * 1e6:
                break
    return texts


def measure(name: str, run: Callable[[], int], megabytes: float, repeats: int = 2) -> None:
    best, tokens = float("inf"), 0
    for _ in range(repeats):
        start = time.process_time()
        tokens = run()
        best = min(best, time.process_time() - start)
    print(
        f"{name:<44} {megabytes / best:6.2f} MB/CPU-s {best / tokens * 1e9:8.1f} ns/token {tokens:>9} tokens"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--megabytes", type=float, default=5)
    options = parser.parse_args()

    texts = read_texts(options.documents, options.megabytes)
    column = pa.array(texts, pa.large_string())
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    engine = load_tokenizer(options.tokenizer)
    plain = Tokenizer.from_file(str(options.tokenizer))

    def by_engine() -> int:
        return int(engine.encode(column).ids.size)

    def by_lists() -> int:
        ids = [encoding.ids for encoding in plain.encode_batch(texts, add_special_tokens=False)]
        return sum(map(len, ids))

    def by_lists_to_array() -> int:
        ids = [encoding.ids for encoding in plain.encode_batch(texts, add_special_tokens=False)]
        return int(np.concatenate([np.array(document, engine.dtype) for document in ids]).size)

    print(f"{len(texts)} documents, {megabytes:.1f} MB")
    measure("TokenEngine.encode", by_engine, megabytes)
    measure("[e.ids for e in encode_batch]", by_lists, megabytes)
    measure("the same to one array", by_lists_to_array, megabytes)


if __name__ == "__main__":
    main()
