"""Comparison of placements: tag, mix, dedupe and ragged at the default one beside each fixed one, as ratios of runs that alternate.

Run ``python -m benchmarks.bench_placement --megabytes 20 275`` (text, from `benchmarks.repeated`; 2700 takes hours for ragged). Each command is a
whole process with its start-up; all placements of a verb run in turn, and the ratios are those of the medians. CPU is that of the whole process
tree, forked servers included, for which this process adopts orphans (Linux). ``--with-peers`` adds the Dolma toolkit where `benchmarks` has installed
it, and a plain loop over Hugging Face's tokenizer.
"""

import argparse
import ctypes
import gzip
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench_commands import DOLMA, MIX, nltk_data, ours
from benchmarks.bench_dedupe import DEDUPE
from benchmarks.corpus import BUILD
from benchmarks.harness import cpu_seconds, environment
from benchmarks.repeated import link_documents, tokenizer_path, write_documents

PLACEMENTS: dict[str, list[str]] = {
    "default": [],
    "synchronous": ["--scheduler", "synchronous"],
    "threads": ["--scheduler", "threads"],
    "processes": ["--scheduler", "processes"],
    "cluster": ["--scheduler", "cluster"],
}

ADOPT_ORPHANS = 36
"""Linux: PR_SET_CHILD_SUBREAPER."""

LOOP = """
import gzip, json, sys
from pathlib import Path
import numpy as np
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
for path in sorted(Path(sys.argv[2]).rglob("*.gz")):
    ids = [tokenizer.encode(json.loads(line)["text"]).ids for line in gzip.open(path)]
    np.concatenate([np.array(row, np.uint16) for row in ids]).tofile(sys.argv[3])
"""


def verbs(root: Path, scratch: Path) -> dict[str, list[str]]:
    """Return the words of each command over the dataset at `root`."""
    words = {
        "tag": ["tag", str(root), "--taggers", "gopher_v2"],
        "mix": ["mix", str(root), "--to", str(scratch / "v1"), "--where", "word_count >= 50"],
        "dedupe": ["dedupe", str(root)],
        "ragged": ["ragged", str(root), str(scratch / "tokens"), "--tokenizer", tokenizer_path(scratch)],
    }
    return {name: [ours(), *rest, "--overwrite", "--no-progress"] for name, rest in words.items()}


def peers(verb: str, root: Path, scratch: Path) -> dict[str, list[str]]:
    """Return what others make of the same documents."""
    if verb == "ragged":
        loop = [
            sys.executable,
            "-c",
            LOOP,
            tokenizer_path(scratch),
            str(root / "documents"),
            str(scratch / "loop.bin"),
        ]
        return {"tokenizers loop": loop}
    if not DOLMA.exists():
        return {}
    everywhere = f"{root}/documents/**/*.gz"
    if verb == "tag":
        return {
            "dolma": [
                str(DOLMA),
                "tag",
                "--documents",
                everywhere,
                "--taggers",
                "gopher_v2",
                "--processes",
                "2",
            ]
        }
    texts = (gzip.decompress(path.read_bytes()) for path in (root / "documents").rglob("*.gz"))
    filled = (MIX if verb == "mix" else DEDUPE).format(
        root=root, output=scratch / "out", scratch=scratch, documents=sum(text.count(b"\n") for text in texts)
    )
    config = scratch / f"{verb}.yaml"
    filled = filled.replace(f"{root}/documents/*.gz", everywhere)
    config.write_text(filled.replace("processes: 1", "processes: 2"))
    # what is there it would not make again
    made = shlex.join(
        ["rm", "-rf", str(scratch / "out"), str(scratch / "bloom.bin"), f"{root}/attributes/exact"]
    )
    return {"dolma": ["sh", "-c", f"{made}; exec {shlex.join([str(DOLMA), '-c', str(config), verb])}"]}


def call(words: Sequence[str]) -> tuple[float, float]:
    """Return CPU- and wall-seconds of a command and of all that it has started."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    done = subprocess.run(
        words,
        env={**environment(), "NLTK_DATA": str(nltk_data())},
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - wall
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: status {done.returncode}\n{done.stderr}")
    while True:
        try:
            os.wait()  # a server of processes ends after its command
        except ChildProcessError:
            return cpu_seconds() - cpu, wall


def compare(commands: dict[str, list[str]], repeats: int) -> dict[str, tuple[float, float]]:
    """Run commands in turn, once more than counted; return the medians."""
    runs = [{name: call(words) for name, words in commands.items()} for _ in range(repeats + 1)][1:]
    return {
        name: (
            statistics.median(run[name][0] for run in runs),
            statistics.median(run[name][1] for run in runs),
        )
        for name in commands
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, nargs="+", default=[20, 275])
    parser.add_argument("--verbs", nargs="+", default=["tag", "mix", "dedupe", "ragged"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--with-peers", action="store_true")
    given = parser.parse_args()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    BUILD.mkdir(parents=True, exist_ok=True)
    print(
        "| MB of text | verb | placement | CPU-s | wall s | CPU / synchronous | wall / best |\n|---|---|---|---|---|---|---|"
    )
    for megabytes in given.megabytes:
        scratch = Path(tempfile.mkdtemp(dir=BUILD))
        try:
            write_documents(scratch / "documents", megabytes)
            link_documents(scratch / "documents", scratch)
            root = scratch / "v0"
            for verb, words in verbs(root, scratch).items():
                if verb == "mix":
                    call([ours(), "tag", str(root), "--taggers", "gopher_v2", "--no-progress"])
                if verb not in given.verbs:
                    continue
                commands = {name: [*words, *more] for name, more in PLACEMENTS.items()}
                if given.with_peers:
                    commands |= peers(verb, root, scratch)
                found = compare(commands, given.repeats)
                best = min(found[name][1] for name in PLACEMENTS)
                for name, (cpu, wall) in found.items():
                    share = cpu / found["synchronous"][0]
                    print(
                        f"| {megabytes:g} | {verb} | {name} | {cpu:.1f} | {wall:.1f} | {share:.2f} | {wall / best:.2f} |",
                        flush=True,
                    )
        finally:
            shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
