"""Takedown of 100 ids: bytes written beside those of the files that hold them, and CPU beside a plain copy of these files.

    TOKENIZER=tokenizer.json python benchmarks/bench_takedown.py FOLDER [SHARDS] [MB]

Makes shards of so many MB of text each, attributes and token arrays, and removes ids that lie in a tenth of the shards.
"""

import json
import os
import random
import resource
import shutil
import sys
from pathlib import Path

import dolma_dask as dk

WORDS = [f"w{number:04x}" for number in range(4000)]
HERE = {"progress": False, "scheduler": "synchronous"}


def write_shard(path: Path, number: int, size: int) -> list[str]:
    """Write documents of about `size` bytes as plain lines; return their ids."""
    draw, ids, done = random.Random(number), [], 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as out:
        while done < size:
            ids.append(f"d{number:03d}-{len(ids):07d}")
            text = " ".join(draw.choices(WORDS, k=draw.randrange(100, 700)))
            done += out.write(json.dumps({"id": ids[-1], "text": text, "source": "web"}) + "\n")
    return ids


def cpu() -> float:
    """Return the CPU-seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Make the world, take the documents down, and print the figures."""
    folder, shards, size = Path(sys.argv[1]), *(int(word) for word in (*sys.argv[2:], 20, 40)[:2])
    root = folder / "root"
    ids = [write_shard(folder / f"raw/{number:03d}.jsonl", number, size << 20) for number in range(shards)]
    dk.convert([str(folder / "raw")], to=str(root / "v0"), **HERE)
    shutil.rmtree(folder / "raw")
    dk.tag(str(root / "v0"), ["char_length_v1"], **HERE)
    dk.ragged(str(root / "v0"), str(root / "tokens"), tokenizer=os.environ["TOKENIZER"], **HERE)
    draw = random.Random(0)
    (folder / "ids.txt").write_text(
        "".join(f"{draw.choice(own)}\n" for own in ids[:: shards // 2] for _ in range(50))
    )
    (folder / "warm.txt").write_text("nobody\n")
    shutil.copytree(root, folder / "warm")
    dk.remove(str(folder / "warm"), ids=str(folder / "ids.txt"), **HERE)  # compiles
    before = {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}
    written, started = io_written(), cpu()
    done = dk.remove(str(root), ids=str(folder / "ids.txt"), **HERE)
    spent, written = cpu() - started, io_written() - written
    affected = [root / change.path for change in done.changes]
    bytes_of = sum(before[path] for path in affected)
    started = cpu()
    for path in affected:
        shutil.copyfile(path, folder / "copied")
    copying = cpu() - started
    started = cpu()
    again = dk.remove(str(root), ids=str(folder / "ids.txt"), **HERE)
    print(
        f"stored {sum(before.values()) / 1e6:.0f} MB in {len(before)} files; {len(affected)} affected, {bytes_of / 1e6:.1f} MB"
    )
    print(f"written {written / 1e6:.1f} MB: {written / bytes_of:.2f} of the affected files")
    print(
        f"CPU {spent:.2f} s; a copy of the affected files {copying:.2f} s; all documents {spent / (sum(before.values()) / 1e6) * 1000:.2f} s per GB stored"
    )
    print(f"again: {cpu() - started:.2f} s, {again.done} files")


def io_written() -> int:
    """Return the bytes that this process has handed to files."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


if __name__ == "__main__":
    main()
