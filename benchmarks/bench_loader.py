"""Token shards read for training: views of documents, rows, and DataLoaders with two workers beside those of litdata, MosaicML's streaming and Megatron-LM.

python -m benchmarks.bench_loader [NAME ...] [--folder FOLDER]

Each measurement runs in a process of its own; user and system CPU-seconds of it and its workers, with files in the page cache. Loaders are skipped that are not installed.
Random ids in documents of log-normal lengths (4 shards, 100 M tokens; 1,024 shards for opening), made once in the folder, and for the others from the same ids.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sized
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import NO_FIGURE, cpu_seconds
from dolma_dask.formats.ragged import RaggedNames, SpecialToken, TokenizerRecord
from dolma_dask.loaders.ragged import open_ragged
from dolma_dask.loaders.token_dataset import TokenDataset
from dolma_dask.sinks.ragged import RaggedWriter
from dolma_dask.tokens.encoding import Tokens

LENGTH, BATCH, WORKERS = 2048, 8, 2
ROWS = 40_000
"""Rows that a loader gives, of 48,000."""

SHARDS = {"few": (4, 50_000), "many": (1024, 300)}
VOCABULARY = 50_277

BENCHMARKS: dict[str, Callable[[Path], None]] = {}


def benchmark(run: Callable[[Path], None]) -> Callable[[Path], None]:
    BENCHMARKS[run.__name__] = run
    return run


def make(folder: Path) -> None:
    """Write the shards, if they are not there."""
    for name, (count, documents) in SHARDS.items():
        drawn, record = np.random.default_rng(0), TokenizerRecord("f" * 32, None, VOCABULARY, eos=SpecialToken("</s>", 0))  # fmt: skip
        for number in range(count):
            names = RaggedNames(f"c4.{number:05d}-of-{count:05d}")
            if (folder / name / names.data).exists():
                continue
            lengths = np.ceil(drawn.lognormal(np.log(290), 1.05, documents)).astype(np.int32)
            with RaggedWriter(str(folder / name), names, record) as writer:
                writer.write(Tokens(drawn.integers(1, VOCABULARY, int(lengths.sum())), lengths))


def windows(folder: Path) -> np.ndarray:
    """Return the windows of the four shards, (n, 2048)."""
    rows = list(open_ragged(folder / "few").windows(LENGTH))
    return np.stack(rows)


def timed(what: str, count: int, unit: str, run: Callable[[], Any]) -> None:
    """Print how many millions of `unit` come in a CPU-second, the best of three runs."""
    seconds = []
    for _ in range(3):
        started = cpu_seconds()
        run()
        seconds.append(cpu_seconds() - started)
    print(f"{what:<58} {count / min(seconds) / 1e6:9.2f} M {unit} per CPU-s", flush=True)


def exhaust(items: Iterable[Any], count: int | None = None) -> None:
    for _ in itertools.islice(items, count):
        pass


@benchmark
def opening(folder: Path) -> None:
    """Open 1,024 shards, whose heads are known."""
    open_ragged(folder / "many")
    times = []
    for _ in range(5):
        started = time.perf_counter()
        open_ragged(folder / "many")
        times.append(time.perf_counter() - started)
    print(f"{'open 1,024 shards':<58} {min(times) * 1e3:9.1f} ms")


@benchmark
def views(folder: Path) -> None:
    """Documents of one shard, and of the corpus through its marks."""
    for name in SHARDS:
        data = open_ragged(folder / name)
        rows = np.random.default_rng(0).integers(0, len(data), 100_000)
        singles = rows[:50_000].tolist()
        exhaust(data.__getitems__(rows[:10]))
        shard = data.shard(0)
        some = np.random.default_rng(0).integers(0, len(shard), 100_000)
        timed(f"{name}: one shard, in order", len(shard), "views", lambda shard=shard: exhaust(shard))
        timed(f"{name}: one shard, 100,000 at random", len(some), "views", lambda shard=shard, some=some: shard.__getitems__(some))  # fmt: skip
        timed(f"{name}: corpus, in order", len(data), "views", lambda data=data: exhaust(data))
        timed(f"{name}: corpus, 100,000 at random", len(rows), "views", lambda data=data, rows=rows: data.__getitems__(rows))  # fmt: skip
        timed(f"{name}: corpus, one by one at random", len(singles), "views", lambda data=data, singles=singles: [data[row] for row in singles])  # fmt: skip


@benchmark
def rows(folder: Path) -> None:
    """Rows of 2,048 tokens as int64, by kind and order."""
    for name, kind, order in itertools.product(
        SHARDS, ("windows", "stream", "best_fit"), ("permuted", "blocks", "written")
    ):
        data = TokenDataset(folder / name, LENGTH, rows=kind, order=order)  # type: ignore[arg-type]
        count = min(len(data), ROWS) // 1024 * 1024
        exhaust(data, 64)
        timed(f"{name}: {kind}, {order}, one by one", count * LENGTH, "tokens", lambda data=data, count=count: exhaust(data, count))  # fmt: skip
        for size in (BATCH, 64):
            timed(f"{name}: {kind}, {order}, batches of {size}", count * LENGTH, "tokens", lambda data=data, count=count, size=size: exhaust(data.batches(size), count // size))  # fmt: skip


def loaded(what: str, loader: Iterable[Any]) -> None:
    """Print the CPU of a loader's batches and its workers, once they are warm."""
    assert isinstance(loader, Sized)
    started, tokens = cpu_seconds(), 0
    for batch in loader:
        ids = batch["input_ids"] if isinstance(batch, dict) else batch
        tokens += ids.shape[0] * LENGTH
    seconds = cpu_seconds() - started
    print(
        f"{what:<58} {tokens / seconds / 1e6:9.1f} M tokens per CPU-s, {1e9 * seconds / tokens:6.2f} ns each"
    )


@benchmark
def ours(folder: Path) -> None:
    """Our loader, permuted windows with labels."""
    from torch.utils.data import DataLoader

    from dolma_dask.loaders.torch_tokens import torch_dataset

    # as MosaicML's and Megatron's give; as litdata's do, which have no labels
    for labels, dtype in (("same", np.int64), ("none", np.int64), ("none", np.int32)):
        data = TokenDataset(folder / "few", LENGTH, labels=labels, dtype=dtype)  # type: ignore[arg-type]
        exhaust(data, 64)
        loader = DataLoader(torch_dataset(data, BATCH), batch_size=None, num_workers=WORKERS)
        loaded(f"dolma-dask, labels {labels}, {np.dtype(dtype)}", loader)


@benchmark
def litdata(folder: Path) -> None:
    """litdata's StreamingDataset of tokens, shuffled."""
    import litdata
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    place = folder / "litdata"
    if not (place / "index.json").exists():
        litdata.optimize(
            fn=partial(shard_rows, folder),
            inputs=list(range(SHARDS["few"][0])),
            output_dir=str(place),
            chunk_size=8192 * LENGTH,
            item_loader=TokensLoader(block_size=LENGTH),
            num_workers=1,
        )
    data = StreamingDataset(str(place), item_loader=TokensLoader(block_size=LENGTH), shuffle=True)
    loaded("litdata", StreamingDataLoader(data, batch_size=BATCH, num_workers=WORKERS))


def shard_rows(folder: Path, number: int) -> Iterable[Any]:
    """Yield the ids of a shard as litdata takes them."""
    import torch

    shard = open_ragged(folder / "few").shard(number)
    for first in range(0, len(shard.ids), 512 * LENGTH):
        yield torch.from_numpy(shard.ids[first : first + 512 * LENGTH].astype(np.int32))


@benchmark
def streaming(folder: Path) -> None:
    """MosaicML's StreamingDataset, a sample for each window, shuffled by py1s and py1e."""
    from streaming import MDSWriter, StreamingDataset
    from torch.utils.data import DataLoader

    place = folder / "mds"
    if not (place / "index.json").exists():
        with MDSWriter(out=str(place), columns={"input_ids": f"ndarray:int32:{LENGTH}"}) as out:
            for row in windows(folder).astype(np.int32):
                out.write({"input_ids": row})
    for algorithm in ("py1s", "py1e"):
        data = StreamingDataset(local=str(place), shuffle=True, shuffle_algo=algorithm, batch_size=BATCH)
        loaded(f"streaming, {algorithm}", DataLoader(data, batch_size=BATCH, num_workers=WORKERS))


@benchmark
def megatron(folder: Path) -> None:
    """Megatron-LM's IndexedDataset, windows by number through a sampler in random order, as its GPTDataset reads them once documents are joined."""
    import torch
    from megatron.core.datasets.indexed_dataset import DType, IndexedDataset, IndexedDatasetBuilder
    from torch.utils.data import DataLoader, Dataset

    place = folder / "megatron"
    if not place.with_suffix(".idx").exists():
        builder = IndexedDatasetBuilder(f"{place}.bin", dtype=DType.optimal_dtype(VOCABULARY))
        for row in windows(folder).astype(np.int32):
            builder.add_item(torch.from_numpy(row))
            builder.end_document()
        builder.finalize(f"{place}.idx")

    class Windows(Dataset[Any]):
        data = IndexedDataset(str(place))

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, row: int) -> dict[str, Any]:
            ids = torch.from_numpy(self.data.get(row).astype(np.int64))
            return {"input_ids": ids, "labels": ids}

    rows = Windows()
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    loaded(
        "megatron-core IndexedDataset", DataLoader(rows, batch_size=BATCH, sampler=order, num_workers=WORKERS)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="all, if none are named")
    parser.add_argument("--folder", type=Path, default=Path("build/scratch/loader"))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = asked.names or list(BENCHMARKS)
    if asked.here:
        try:
            BENCHMARKS[names[0]](asked.folder)
        except ImportError as error:
            print(f"{names[0]}: not measured, {error}")
            sys.exit(NO_FIGURE)
        return
    make(asked.folder)
    for name in names:
        command = [
            sys.executable,
            "-m",
            "benchmarks.bench_loader",
            name,
            "--here",
            "--folder",
            str(asked.folder),
        ]
        subprocess.run(command, check=False, env=os.environ)


if __name__ == "__main__":
    main()
