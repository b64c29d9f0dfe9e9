"""Signatures of the default scheme: MB (10**6 bytes) of text per CPU-second, from texts in memory, beside rensa; and the recall of near copies.

Run ``python -m benchmarks.bench_minhash [--peers PYTHON] [--megabytes 200] [--repeats 3]``, where PYTHON is that of an environment with rensa.
``ascii`` are the documents of the corpus that have no other characters, ``multilingual`` all of them; both again and again, each time behind its
number. Each run is a fresh process that has read its texts and compiled its kernels before, ours and rensa's in turn; the median counts.

Near copies are made of synthetic Chinese, Japanese and Thai and of documents of the corpus in scripts without spaces, at a Jaccard similarity of
their character 5-grams from 0.8 to 0.9; recall is the share of pairs that share one of 14 bands of 8 rows.
"""

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.corpus import BUILD, ROOT, default_origin, original_lines
from benchmarks.harness import environment
from dolma_dask.minhash.ngrams import hash_shingles, hash_tokens
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.testing.near_copies import SCRIPTS, char_ngrams, jaccard, near_copy, unspaced_text

BLOCK = 1 << 21
"""Bytes of text that are signed at once, as a stage reads them."""

CORPORA = ("ascii", "multilingual")
BANDS, ROWS = 14, 8
PAIRS = 350
GOALS = {("word", "ascii"): 500, ("word", "multilingual"): 150, ("char", "multilingual"): 120}

OURS: dict[str, Callable[[pa.LargeStringArray], object]] = {
    "word": MinHash().sign,
    "char": MinHash(unit="char").sign,
    "word, 256 values": MinHash(num_perm=256).sign,
    "word, 13-grams": MinHash(ngram=13).sign,
    "tokens alone": lambda texts: hash_tokens(texts, unit="word"),
    "shingles alone": lambda texts: hash_shingles(texts, ngram=5, unit="word"),
}


def texts_of(name: str, megabytes: float) -> Iterator[str]:
    texts = [json.loads(line)["text"] for line in original_lines(default_origin())]
    if name == "ascii":
        texts = [text for text in texts if text.isascii()]
    for number in itertools.count():
        for text in texts:
            if megabytes <= 0:
                return
            megabytes -= len(text.encode()) / 1e6
            yield f"{number} {text}"


def make_corpus(name: str, megabytes: float) -> Path:
    """Return a file of JSON strings; it is made once."""
    path = BUILD / f"minhash-{name}-{megabytes:g}.jsonl"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(text, ensure_ascii=False) + "\n" for text in texts_of(name, megabytes))
        path.write_text("".join(lines), encoding="utf-8")
    return path


def read_blocks(path: Path) -> list[pa.LargeStringArray]:
    with path.open(encoding="utf-8") as lines:
        texts = pa.array(map(json.loads, lines), pa.large_string())
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1)
    cuts = np.searchsorted(offsets, np.arange(0, offsets[-1], BLOCK))
    return [texts[first:last] for first, last in itertools.pairwise([*cuts.tolist(), len(texts)])]


def run_ours(path: Path, way: str) -> None:
    """Print MB of text and CPU-seconds."""
    blocks, job = read_blocks(path), OURS[way]
    job(blocks[0])
    start = time.process_time()
    for block in blocks:
        job(block)
    seconds = time.process_time() - start
    print(sum(block.nbytes - 8 * (len(block) + 1) for block in blocks) / 1e6, seconds)


def speed(command: list[str]) -> float:
    done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    megabytes, seconds = map(float, done.stdout.split())
    return megabytes / seconds


def measure(name: str, megabytes: float, peers: str, repeats: int) -> None:
    path = make_corpus(name, megabytes)
    child = [sys.executable, "-m", "benchmarks.bench_minhash", "--child", str(path), "--way"]
    commands = {way: [*child, way] for way in OURS}
    if peers:
        script = str(Path(__file__).with_name("peers") / "minhash_rensa.py")
        commands |= {f"rensa, {way}": [peers, script, str(path), way] for way in ("each", "matrix", "c")}
    runs = {way: [] for way in commands}
    for _ in range(repeats):
        for way, command in commands.items():
            runs[way].append(speed(command))
    medians = {way: statistics.median(speeds) for way, speeds in runs.items()}
    best = max((median for way, median in medians.items() if way.startswith("rensa")), default=None)
    for way, median in medians.items():
        beside = f"  {median / best:5.1f} x rensa" if best and way in OURS else ""
        goal = f"  goal {GOALS[way, name]}" if (way, name) in GOALS else ""
        print(
            f"{name:<13} {way:<17} {median:7.1f}  {min(runs[way]):.1f} .. {max(runs[way]):.1f}{beside}{goal}"
        )


def unspaced_originals(draws: random.Random) -> Iterator[tuple[str, str]]:
    """Yield (what it is, a text)."""
    for script in SCRIPTS:
        for _ in range(PAIRS):
            yield script, unspaced_text(script, draws.randint(300, 900), draws)
    found = [text for text in texts_of("multilingual", 20) if _is_unspaced(text)]
    for _ in range(PAIRS if found else 0):
        text, size = draws.choice(found), draws.randint(300, 1500)
        at = draws.randrange(max(len(text) - size, 1))
        yield "corpus", text[at : at + size]


def _is_unspaced(text: str) -> bool:
    """Tell whether most letters are Han, Kana, Thai, Lao or Khmer."""
    letters = [char for char in text if char.isalpha()]
    ranges = ("\u0e00\u0eff", "\u1780\u17ff", "\u3040\u30ff", "\u4e00\u9fff")
    found = sum(any(first <= char <= last for first, last in ranges) for char in letters)
    return len(text) > 300 and 2 * found > len(letters)


def measure_recall() -> None:
    draws = random.Random(11)
    kinds, pairs = [], []
    for kind, text in unspaced_originals(draws):
        kinds.append(kind)
        pairs += [text, near_copy(text, 0.8, 0.9, draws)]
    sets = [char_ngrams(text) for text in pairs]
    similarities = np.array([jaccard(*two) for two in zip(sets[::2], sets[1::2], strict=True)])
    expected = (1 - (1 - similarities**ROWS) ** BANDS).mean()
    print(
        f"\n{len(kinds)} pairs, mean similarity {similarities.mean():.3f}; the curve promises {expected:.3f}"
    )
    schemes = [
        MinHash(),
        MinHash(unit="char"),
        MinHash(scheme="datasketch"),
        MinHash(scheme="datasketch", ngram=1),
    ]
    for scheme in [*schemes, MinHash(scheme="redpajama_v2", ngram=13)]:
        found = _share_band(scheme, pairs)
        parts = [f"{kind} {found[np.array(kinds) == kind].mean():.3f}" for kind in dict.fromkeys(kinds)]
        print(f"{scheme.label:<40} {found.mean():.3f}  {', '.join(parts)}")


def _share_band(scheme: MinHash, pairs: list[str]) -> np.ndarray:
    signatures = scheme.sign(pa.array(pairs, pa.large_string()))
    bands = signatures.values[:, : BANDS * ROWS].reshape(-1, BANDS, ROWS)
    signed = scheme.has_signature(signatures.kinds)
    return (bands[::2] == bands[1::2]).all(axis=2).any(axis=1) & signed[::2] & signed[1::2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", default="", metavar="PYTHON", help="of an environment with rensa")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--way", default="word", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        run_ours(Path(given.child), given.way)
        return
    for name in CORPORA:
        measure(name, given.megabytes, given.peers, given.repeats)
    measure_recall()


if __name__ == "__main__":
    main()
