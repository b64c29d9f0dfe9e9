"""Fuzzy duplicates by whole commands, ours and others, on the same .jsonl.gz: CPU of the process tree, in turn.

Run ``python -m benchmarks.bench_fuzzy --peers PYTHON``, where PYTHON is that of an environment with the tools (``pip install rensa daft scipy
datatrove[processing] spacy orjson``; their byte code compiled). Each tool writes the ids of duplicates; see `benchmarks.peers`. text-dedup alone writes
the documents that stay, and so do ``ours + mix``, two commands one after the other, and ``ours by run``, the same as one pipeline.

The corpus are the originals of `benchmarks.corpus` again and again. So that no repetition is a copy of another, each is spelled otherwise: letters
change places within their alphabet. Words, sentences and near copies are as they were.
"""

import argparse
import ctypes
import gzip
import itertools
import json
import random
import shlex
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from unicodedata import category

from benchmarks.bench_commands import ours
from benchmarks.bench_placement import ADOPT_ORPHANS, call
from benchmarks.corpus import BUILD, default_origin, original_lines

PEERS = Path(__file__).with_name("peers")
FILES = 8
BLOCK = 128
"""Code points of a block; letters change places with letters of their block and category, which take as many bytes."""

PIPELINE = """stages:
  - dedupe: {{dataset: {root}, how: fuzzy}}
  - mix: {{dataset: {root}, to: {survivors}, where: fuzzy is None}}
"""


def spelling(characters: Iterable[str], number: int) -> dict[int, int]:
    """Return what each letter becomes in a repetition: another letter of its block and category that occurs; in the first, itself."""
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for character in sorted(characters):
        if character.isalpha():
            groups[ord(character) // BLOCK, category(character)].append(ord(character))
    spelled = {}
    for codes in groups.values():
        others = codes.copy()
        if number:
            random.Random(number).shuffle(others)  # alike for small and capital letters
        spelled.update(zip(codes, others, strict=True))
    return spelled


def repetitions(megabytes: float) -> Iterator[list[dict[str, object]]]:
    """Yield the originals, with other ids and letters each time, up to so many MB of text."""
    originals = [json.loads(line) for line in original_lines(default_origin())]
    characters = set().union(*(document["text"] for document in originals))
    for number in itertools.count():
        spelled = spelling(characters, number)
        documents = []
        for document in originals:
            if megabytes <= 0:
                break
            text = document["text"].translate(spelled)
            documents.append({**document, "id": f"{document['id']}-{number}", "text": text})
            megabytes -= len(text.encode()) / 1e6
        yield documents
        if megabytes <= 0:
            return


def make_corpus(megabytes: float) -> tuple[Path, dict[str, float]]:
    """Return a dataset and its size; it is made once."""
    root = BUILD / f"spelled-{megabytes:g}"
    known = BUILD / f"{root.name}.json"
    if known.exists():
        return root, json.loads(known.read_text())
    documents = [document for part in repetitions(megabytes) for document in part]
    (root / "documents").mkdir(parents=True, exist_ok=True)
    each = -(-len(documents) // FILES)
    for number in range(FILES):
        rows = documents[number * each : (number + 1) * each]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        (root / "documents" / f"part-{number}.jsonl.gz").write_bytes(gzip.compress(lines, 6, mtime=0))
    text = sum(len(str(document["text"]).encode()) for document in documents) / 1e6
    size = {"documents": len(documents), "text_mb": text}
    known.write_text(json.dumps(size))
    return root, size


def own_commands(root: Path, scratch: Path) -> dict[str, list[str]]:
    """Return our commands: flags alone, and the documents that stay too. What they have made before is removed, or it would be used again."""
    survivors, pipeline = scratch / "survivors", scratch / "pipeline.yaml"
    pipeline.write_text(PIPELINE.format(root=root, survivors=survivors))
    dedupe = [ours(), "dedupe", str(root), "--how", "fuzzy", "--no-progress"]
    mix = [ours(), "mix", str(root), "--to", str(survivors), "--where", "fuzzy is None", "--no-progress"]
    calls = {
        "ours": [dedupe],
        "ours + mix": [dedupe, mix],
        "ours by run": [[ours(), "run", str(pipeline), "--no-progress"]],
    }
    made = ["find", str(root), "-mindepth", "1", "-maxdepth", "1", "!", "-name", "documents"]
    clear = [[*made, "-exec", "rm", "-r", "{}", "+"], ["rm", "-rf", str(survivors)]]
    return {
        name: ["sh", "-c", " && ".join(map(shlex.join, [*clear, *words]))] for name, words in calls.items()
    }


def commands(root: Path, peers: str, text_dedup: str, scratch: Path) -> dict[str, list[str]]:
    """Return the command of each tool, whose ids lie in the file of its name."""
    known = own_commands(root, scratch)
    if peers:
        known |= {
            name: [
                peers,
                str(PEERS / f"fuzzy_{script}.py"),
                str(root / "documents"),
                str(scratch / name),
                *more,
            ]
            for name, (script, *more) in {
                "rensa": ["rensa"],
                "rensa pairs": ["rensa", "pairs"],
                "daft": ["daft"],
                "daft raw": ["daft", "raw"],
                "datatrove": ["datatrove"],
            }.items()
        }
    if text_dedup:
        read = [
            "--path",
            "json",
            "--data_files",
            f"{root}/documents/*.gz",
            "--split",
            "train",
            "--column",
            "text",
        ]
        written = ["--cache_dir", str(scratch / "cache"), "--output", str(scratch / "out"), "--num_proc", "2"]
        shape = ["--ngram", "5", "--num_perm", "128", "--b", "14", "--r", "8"]
        known["text-dedup"] = [text_dedup, "-m", "text_dedup.minhash", *read, *written, *shape]
    return known


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--peers", default="", metavar="PYTHON", help="of an environment with the other tools"
    )
    parser.add_argument(
        "--text-dedup", default="", metavar="PYTHON", help="of one with text-dedup, which needs its own"
    )
    parser.add_argument(
        "--tools", nargs="+", default=["ours", "ours + mix", "ours by run", "rensa", "daft", "datatrove"]
    )
    given = parser.parse_args()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    root, size = make_corpus(given.megabytes)
    print(
        f"{size['documents']:,} documents, {size['text_mb']:.1f} MB of text, {default_origin()}", flush=True
    )
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        scratch = Path(folder)
        known = commands(root, given.peers, given.text_dedup, scratch)
        spent: dict[str, list[tuple[float, float]]] = {tool: [] for tool in given.tools}
        for _ in range(given.repeats + 1):  # the first one warms up
            for tool in given.tools:
                spent[tool].append(call(known[tool]))
                print(
                    f"{tool}: {spent[tool][-1][0]:.2f} CPU-s, {spent[tool][-1][1]:.2f} s",
                    file=sys.stderr,
                    flush=True,
                )
        print_table(spent, scratch, size["text_mb"])


def print_table(spent: dict[str, list[tuple[float, float]]], scratch: Path, text_mb: float) -> None:
    """Print medians of all but the first run; ratios to each tool of others are medians run by run."""
    counted = {tool: runs[1:] or runs for tool, runs in spent.items()}
    others = [tool for tool in counted if not tool.startswith("ours")]
    print(
        f"| tool | CPU-s | wall s | MB per CPU-s |{''.join(f' of {other} |' for other in others)} ids |"
        f"\n|{'---|' * (5 + len(others))}"
    )
    for tool, runs in counted.items():
        cpu, wall = (statistics.median(column) for column in zip(*runs, strict=True))
        ratios = [
            statistics.median(
                own / theirs for (own, _), (theirs, _) in zip(runs, counted[other], strict=True)
            )
            for other in others
        ]
        cells = [f"{cpu:.2f}", f"{wall:.1f}", f"{text_mb / cpu:.1f}", *(f"{ratio:.2f}" for ratio in ratios)]
        ids = len((scratch / tool).read_text().splitlines()) if (scratch / tool).exists() else ""
        print(f"| {' | '.join([tool, *cells])} | {ids} |")


if __name__ == "__main__":
    main()
