"""Rule signals of RedPajama-V2 by `dolma-dask tag`, beside datatrove's Gopher filters: whole commands on the same .jsonl.gz, in turn.

Run ``python -m benchmarks.bench_gopher --peers PYTHON``, where PYTHON is that of an environment with datatrove (``pip install
datatrove[processing] spacy orjson``; its byte code compiled). datatrove judges and writes nothing; ours write attributes as Parquet. The corpus are
the originals of `benchmarks.corpus` again and again, all of them taken for English.
"""

import argparse
import ctypes
import gzip
import itertools
import json
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.bench_commands import ours
from benchmarks.bench_fuzzy import FILES, PEERS
from benchmarks.bench_placement import ADOPT_ORPHANS, call
from benchmarks.corpus import BUILD, default_origin, original_lines

SIGNALS = ["redpajama_v2_doc", "redpajama_v2_lines", "redpajama_v2_ccnet"]
OURS = {"doc": SIGNALS[:1], "doc lines ccnet": SIGNALS, "gopher_v2": ["gopher_v2"]}


def make_corpus(megabytes: float) -> tuple[Path, float, int]:
    """Return a dataset, its MB of text and its documents."""
    originals = [json.loads(line) for line in original_lines(default_origin())]
    documents, size = [], 0.0
    for count, document in enumerate(itertools.cycle(originals)):
        documents.append({**document, "id": f"{document['id']}-{count // len(originals)}"})
        size += len(document["text"].encode()) / 1e6
        if size >= megabytes:
            break
    root = BUILD / f"gopher-{megabytes:g}"
    (root / "documents").mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        rows = documents[number::FILES]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        (root / "documents" / f"part-{number}.jsonl.gz").write_bytes(gzip.compress(lines, 6, mtime=0))
    return root, size, len(documents)


def commands(root: Path, peers: str, scratch: Path) -> dict[str, list[str]]:
    """Return the command of each tool."""
    made = shlex.join(["rm", "-rf", str(root / "attributes"), str(root / "_journal")])
    tag = [ours(), "tag", str(root), "--format", "parquet", "--no-progress", "--taggers"]
    known = {name: ["sh", "-c", f"{made}; exec {shlex.join(tag + names)}"] for name, names in OURS.items()}
    if peers:
        judge = str(PEERS / "gopher_datatrove.py")
        known["datatrove"] = [peers, judge, str(root / "documents"), str(scratch / "datatrove")]
    return known


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", default="", metavar="PYTHON", help="of an environment with datatrove")
    given = parser.parse_args()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    root, text_mb, documents = make_corpus(given.megabytes)
    print(f"{documents:,} documents, {text_mb:.1f} MB of text, {default_origin()}", flush=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        known = commands(root, given.peers, Path(folder))
        spent: dict[str, list[tuple[float, float]]] = {tool: [] for tool in known}
        for _ in range(given.repeats):
            for tool, words in known.items():
                spent[tool].append(call(words))
                cpu, wall = spent[tool][-1]
                print(f"{tool}: {cpu:.2f} CPU-s, {wall:.2f} s", file=sys.stderr, flush=True)
        print_table(spent, text_mb)
        if given.peers:
            print("documents that datatrove keeps:", (Path(folder) / "datatrove").read_text().strip())


def print_table(spent: dict[str, list[tuple[float, float]]], text_mb: float) -> None:
    """Print medians."""
    medians = {
        tool: [statistics.median(column) for column in zip(*runs, strict=True)]
        for tool, runs in spent.items()
    }
    peer = medians.get("datatrove", [float("nan")])[0]
    print("| | CPU-s | wall s | MB per CPU-s | datatrove's CPU / its own |\n|---|---|---|---|---|")
    for tool, (cpu, wall) in medians.items():
        print(f"| {tool} | {cpu:.1f} | {wall:.1f} | {text_mb / cpu:.2f} | {peer / cpu:.1f} |")


if __name__ == "__main__":
    main()
