"""Packings of segments into rows: a million documents with log-normal lengths, a hundred windows of 10,000 segments.

python -m benchmarks.bench_packing [--length 2048 ...]
"""

import argparse
import time

import numpy as np

from dolma_dask.tokens.bins import PACKINGS

DOCUMENTS = 1_000_000
WINDOW = 10_000
MEDIAN = 290
"""Tokens; with `SPREAD` the mean is 504, as in C4."""
SPREAD = 1.05


def segments(length: int) -> list[np.ndarray]:
    """Return windows of segments: documents in a random order, long ones cut into full rows and a rest."""
    draw = np.random.default_rng(0)
    documents = np.ceil(draw.lognormal(np.log(MEDIAN), SPREAD, DOCUMENTS)).astype(np.int64)
    full, rest = np.divmod(documents, length)
    sizes = draw.permutation(np.concatenate([np.full(full.sum(), length), rest[rest > 0]]))
    return [sizes[first : first + WINDOW] for first in range(0, len(sizes), WINDOW)]


def measure(name: str, windows: list[np.ndarray], length: int) -> str:
    pack = PACKINGS[name]
    pack(windows[0], length, None)  # compiles
    started = time.process_time()
    rows = sum(len(pack(window, length, None)) for window in windows)
    seconds = time.process_time() - started
    count, tokens = sum(map(len, windows)), sum(int(window.sum()) for window in windows)
    bound = sum(-(-int(window.sum()) // length) for window in windows)
    return (
        f"{length:>7} {name:<9} {count:>9,} segments {seconds:6.3f} CPU-s {count / seconds / 1e6:6.1f} M/CPU-s "
        f"{rows:>9,} rows {rows / bound:7.5f} of the bound {100 * tokens / (rows * length):7.3f} % full"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, nargs="+", default=[512, 2048, 8192], help="tokens of a row")
    for length in parser.parse_args().length:
        windows = segments(length)
        for name in PACKINGS:
            print(measure(name, windows, length), flush=True)


if __name__ == "__main__":
    main()
