"""Peak memory of the verbs over one shard: it must not grow with the file, nor with the row group of a table or how its values repeat.

Run ``python benchmarks/bench_memory.py``: 0.25 GB and 1 GB of JSON for each verb, about five minutes. Each number is that of a fresh
process which first does the same work on a tiny file, so that imports, compiled kernels and the tokenizer are not counted. With
``--verb tag --megabytes 60`` it measures one case and prints JSON, with ``--megabytes 40 120`` that of a process which goes on to a larger file; with
``--step`` and ``--folder`` it makes the files for some verbs, or measures one of them there (what the test of this law does). ``--shape`` is one of

- ``lines``: many documents in one gzip member (the default);
- ``line``: one document, in taggers that keep nothing per word;
- ``group``: a Parquet file with one row group;
- ``values``: a Parquet file of some kB whose rows share one value of 1 MB.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip
from tokenizers import Tokenizer, models, pre_tokenizers

import dolma_dask as dk
from dolma_dask.metering import peak_bytes
from dolma_dask.processes import WORKER_ENVIRONMENT
from dolma_dask.rules.thresholds import Thresholds

TAGGERS = ("char_length_v1", "whitespace_tokenizer_v1", "gopher_v2")
RULE = "gopher_v2__gopher_v2__word_count >= 50 and char_length_v1__char_length_v1__length < 1000000"
AS_WORKERS = {name: value for name, value in WORKER_ENVIRONMENT.items() if name.startswith("MALLOC")}
"""Memory is measured as in the workers of a LocalCluster, which keep what was freed."""

SHAPES = ("lines", "line", "group", "values")
VERBS = (
    "convert",
    "tag",
    "mix",
    "downsample",
    "ragged",
    "hdf5",
    "dedupe",
    "fuzzy",
    "quantiles",
    "filter",
    "validate",
    "attach",
    "signals",
    "read_dataframe",
)
TAGGED = ("mix", "downsample", "ragged", "hdf5", "quantiles", "filter", "validate", "read_dataframe")
"""Those that need attributes."""
PUBLISHED = ("attach", "signals")
"""Those that need ids of RedPajama-V2."""
SHARD = "2023-06/0000/en_head"
ENGLISH = "the of and to in a is that for it language people water history"
OTHERS = "naïve Straße 中文 window measure \u2028 …"
WORDS = [*ENGLISH.split(" "), *OTHERS.split(" ")]


def make_lines(size: int) -> bytes:
    """Return about `size` bytes of documents, 3 kB each; ids repeat, which no reader minds."""
    draw = random.Random(0)
    lines = []
    total = 0
    while total < min(size, 4_000_000):
        text = " ".join(draw.choices(WORDS, k=draw.randrange(10, 1000)))
        line = (
            json.dumps({"id": f"d{len(lines)}", "text": text, "source": "s"}, ensure_ascii=False).encode()
            + b"\n"
        )
        lines.append(line)
        total += len(line)
    return b"".join(lines) * max(1, round(size / total))


def make_dataset(root: Path, size: int, shape: str) -> None:
    """Write one shard of `size` bytes of JSON or text."""
    path = root / "documents" / ("shard.parquet" if shape in ("group", "values") else "shard.jsonl.gz")
    path.parent.mkdir(parents=True)
    if path.suffix == ".parquet":
        texts = [str(json.loads(line)["text"]) for line in make_lines(min(size, 4_000_000)).splitlines()]
        texts = (
            texts * max(1, size // 4_000_000) if shape == "group" else ["word " * 200_000] * (size // 10**6)
        )
        ids = [f"d{number}" for number in range(len(texts))]
        table = pa.table(
            {"id": ids, "text": pa.array(texts, pa.large_string()), "source": ["s"] * len(texts)}
        )
        pq.write_table(table, path, row_group_size=max(1, len(texts)), use_dictionary=shape == "values")
        return
    block = make_lines(size)
    if shape == "line":
        text = "".join(str(json.loads(line)["text"]) for line in block.splitlines())
        block = json.dumps({"id": "d", "text": text, "source": "s"}, ensure_ascii=False).encode() + b"\n"
    with igzip.IGzipFile(path, "wb", compresslevel=1) as out:
        out.write(block)


def make_tokenizer(path: Path) -> None:
    """Write a tokenizer that is quick: whole words, most of them known."""
    vocabulary = {word: index for index, word in enumerate(["?", *sorted(set(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path))


def run(verb: str, root: Path, work: Path, shape: str = "lines") -> None:
    """Run a verb on the dataset at `root`, in this process."""
    options = {"scheduler": "synchronous", "progress": False, "overwrite": True}
    if verb == "convert":
        dk.convert(f"{root}/documents", to=f"{root}-converted", **options)
    elif verb == "tag":
        dk.tag(str(root), TAGGERS[:2] if shape == "line" else TAGGERS, **options)
    elif verb == "mix":
        dk.mix(
            str(root),
            to=f"{root}-mixed",
            where=RULE if shape == "lines" else None,
            format="jsonl.gz",
            **options,
        )
    elif verb == "downsample":
        dk.mix(
            str(root), to=f"{root}-mixed", where=RULE, downsample=0.5, by="source", unit="bytes", **options
        )
    elif verb == "dedupe":
        dk.dedupe(str(root), **options)
    elif verb == "fuzzy":
        dk.dedupe(str(root), how="fuzzy", **options)
    elif verb == "quantiles":
        dk.quantiles(str(root), ["word_count", "median_word_length"], by="source", **options)
    elif verb == "filter":
        ends = {key: {"all": {"lower": 5}} for key in ("word_count", "median_word_length")}
        dk.filter(str(root), Thresholds.from_json({"bounds": ends}), **options)
    elif verb == "validate":
        dk.validate(str(root), attributes=TAGGERS, **options)
    elif verb == "attach":
        dk.attach(f"{root}/published", f"{root}/tables", name="rps", **options)
    elif verb == "signals":
        dk.signals(f"{root}/published", f"{root}/tables", **options)
    elif verb == "read_dataframe":
        df = dk.read_dataframe(str(root), ["id", "word_count"])
        df["gopher_v2__gopher_v2__word_count"].mean().compute(scheduler="synchronous")
    else:
        tokens = {"tokenizer": str(work / "tokenizer.json"), "eos": "?", "where": RULE}
        if verb == "hdf5":
            dk.hdf5(str(root), f"{root}-rows", pad="?", **tokens, **options)
        else:
            dk.ragged(str(root), f"{root}-tokens", **tokens, **options)


def resident() -> float:
    """Memory of this process now, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def measure(verb: str, work: Path, sizes: Sequence[int], shape: str) -> list[dict[str, float]]:
    """Warm up, run on files that grow, and return MB when warm and the most so far after each."""
    run(verb, work / "tiny", work, shape)
    warm, found = resident(), []
    for size in sizes:
        run(verb, work / str(size), work, shape)
        peak = peak_bytes() / 1e6
        found.append({"warm": warm, "peak": peak, "above": peak - warm})
    return found


def measure_fresh(verb: str, sizes: Sequence[int], shape: str) -> list[dict[str, float]]:
    """`measure` in a process of its own; another one makes the files."""
    with tempfile.TemporaryDirectory() as folder:
        for step in ("make", "measure"):
            given = {"verb": verb, "step": step, "folder": folder, "shape": shape}
            words = [sys.executable, __file__, *(f"--{name}={value}" for name, value in given.items())]
            done = subprocess.run(
                [*words, "--megabytes", *map(str, sizes)],
                check=True, capture_output=True, text=True, env={**AS_WORKERS, **os.environ},
            )  # fmt: skip
        found: list[dict[str, float]] = json.loads(done.stdout)
        return found


def make(verbs: Sequence[str], work: Path, sizes: Sequence[int], shape: str) -> None:
    """Write the files that `measure` needs for some verbs."""
    make_tokenizer(work / "tokenizer.json")
    for name, length in (("tiny", 200_000), *((str(size), size * 10**6) for size in sizes)):
        make_dataset(work / name, length, "lines" if shape == "values" and name == "tiny" else shape)
        if shape == "lines" and not set(TAGGED).isdisjoint(verbs):
            run("tag", work / name, work)
        if not set(PUBLISHED).isdisjoint(verbs):
            publish(work / name)
        if "attach" in verbs:
            run("signals", work / name, work)


def publish(root: Path) -> None:
    """Write the documents of a dataset once more, with ids as RedPajama-V2 has them."""
    source = root / "documents/shard.jsonl.gz"
    target = root / f"published/documents/{SHARD}.jsonl.gz"
    target.parent.mkdir(parents=True)
    with igzip.open(source, "rb") as lines, igzip.open(target, "wb", compresslevel=1) as out:
        for row, line in enumerate(lines):
            out.write(b'{"id":"%s.json.gz/%d"%s' % (SHARD.encode(), row, line[line.index(b", ") :]))


def main() -> None:
    """Measure one case, or print a table of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verb", choices=VERBS, nargs="+", default=[])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[60])
    parser.add_argument("--shape", choices=SHAPES, default="lines")
    parser.add_argument("--step", choices=("make", "measure"))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.step == "make":
        make(given.verb, given.folder, given.megabytes, given.shape)
    elif given.step == "measure":
        print(json.dumps(measure(given.verb[0], given.folder, given.megabytes, given.shape)))
    elif given.verb:
        print(json.dumps(measure_fresh(given.verb[0], given.megabytes, given.shape)))
    else:
        print("verb            GB    warm MB    peak MB   above MB")
        for verb in VERBS:
            for size in (250, 1000):
                (found,) = measure_fresh(verb, [size], given.shape)
                print(
                    f"{verb:14} {size / 1e3:4.2f} {found['warm']:10.0f} {found['peak']:10.0f} {found['above']:10.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
