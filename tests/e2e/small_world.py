"""A small seeded world to run every verb in: raw files, a dataset to tag, a tagged dataset to mix and tokenize, and the commands."""

import gzip
import json
import random
import shutil
from html import escape
from itertools import islice
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from dolma_dask import cli
from dolma_dask.testing import Case, VerbLaws
from dolma_dask.testing.archives import response, warc_file
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.verbs.download.selection import COMPONENTS

TAGGERS = ("char_length_v1", "whitespace_tokenizer_v1", "gopher_v2")
RULE = "gopher_v2__gopher_v2__word_count >= 20 and char_length_v1__char_length_v1__length < 3000"
STRICTER = RULE.replace("3000", "500")
BOOKS = f'{RULE} and source == "books"'
"""A third of the documents: encoding takes longer than all else that a verb does with tokens."""

WILD = """\
naïve coöperation Straße İstanbul ﬁne ½ Ⅷ １２３ ٣٤٥ 中文字 日本語です 한국어 שלום مرحبا हिन्दी ไทยภาษา e\u0301̣ \u0301
👨\u200d👩\u200d👧 🇫🇷 \u200b \ufeff \x00 \x7f \x1b[0m \U0010ffff \ue000 \ufdd0 … - •
https://example.org/?q=1&x=<y> {json:[1]} \\n \\u0041 "quoted" 'single' a/b 3.14159 ------ ..... ###""".split()  # noqa: SIM905
ORDINARY = """\
the of and to in a is that for it as was with be by on not he his but at are this have from or had an
they which one you were all water people history language curious window measure harbour reading seldom
promise winter copper machine garden village""".split()  # noqa: SIM905
BREAKS = ("\n", "\n\n", "\r\n", "\u2028", "\t", "\u00a0", "\u3000")


def make_text(draw: random.Random) -> str:
    """Return words of many scripts; one text in fifty is empty, one in a hundred is long."""
    count = draw.choice((0, 5, 30, 80, 200, 600)) if draw.random() < 0.3 else draw.randrange(20, 120)
    count = 0 if draw.random() < 0.02 else count * (20 if draw.random() < 0.01 else 1)
    words = draw.choices(ORDINARY if draw.random() < 0.7 else WILD + ORDINARY, k=count)
    return "".join(word + (draw.choice(BREAKS) if draw.random() < 0.08 else " ") for word in words)


def make_lines(draw: random.Random, rows: int, name: str) -> list[bytes]:
    """Return documents as JSON lines, written in the ways that other tools write them."""
    lines = []
    for row in range(rows):
        document = {
            "id": f"{name}-{row}",
            "text": make_text(draw),
            "source": draw.choice(("web", "wïki", "books")),
        }
        if draw.random() < 0.5:
            document |= {
                "added": "2024-01-01",
                "metadata": {"n": row, "big": 12345678901234567890, "é": [1.0, None]},
                "x": "\u2028",
            }
        separators = draw.choice(((",", ":"), (", ", ": ")))
        lines.append(
            json.dumps(document, ensure_ascii=draw.random() < 0.3, separators=separators).encode() + b"\n"
        )
    return lines


def store(path: Path, lines: list[bytes], members: int = 1) -> None:
    """Write lines as the suffix says; gzip in so many members, cut anywhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(lines)
    if path.name.endswith(".gz"):
        step = len(data) // members + 1
        pieces = [data[start : start + step] for start in range(0, len(data), step)] or [b""]
        path.write_bytes(b"".join(gzip.compress(piece, 1, mtime=0) for piece in pieces))
    elif path.name.endswith(".zst"):
        path.write_bytes(pa.Codec("zstd").compress(data, asbytes=True))
    else:
        path.write_bytes(data)


def make_documents(root: Path, seed: int) -> None:
    """Write twelve shards, 0.8 MB in all: nested folders, all JSON suffixes, many members, an empty shard."""
    draw = random.Random(seed)
    for number in range(8):
        name = f"2019-{number:02d}/part_{number}"
        store(
            root / f"documents/{name}.jsonl.gz",
            make_lines(draw, draw.randrange(40, 200), name),
            1 + number % 4,
        )
    store(root / "documents/zst/a.jsonl.zst", make_lines(draw, 120, "zst"))
    store(root / "documents/plain.jsonl", make_lines(draw, 80, "plain"))
    store(root / "documents/other.json.gz", make_lines(draw, 40, "other"), 3)
    store(root / "documents/empty.jsonl.gz", [])


def make_raw(root: Path, seed: int) -> None:
    """Write eight raw files with other field names."""
    draw = random.Random(seed)
    for number in range(8):
        lines = []
        for row in range(draw.randrange(40, 160)):
            record = {"key": f"k{row}", "body": make_text(draw), "extra": {"n": row}}
            lines.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        store(root / f"dump/{number}.jsonl{('.gz', '.zst', '')[number % 3]}", lines, 2)


def make_crawl(root: Path, seed: int) -> None:
    """Write archives of pages, some with a licence."""
    root.mkdir()
    draw = random.Random(seed)
    licence = '<a href="https://creativecommons.org/licenses/by/4.0/">CC BY</a>'
    for number in range(6):
        texts = [escape(make_text(draw).replace("\x00", "")) + " the end " for _ in range(30)]
        records = [
            response(
                f"<p>{text}</p>{licence if draw.random() < 0.5 else ''}".encode(), f"https://a.org/{row}"
            )
            for row, text in enumerate(texts)
        ]
        (root / f"{number}.warc.gz").write_bytes(warc_file(records))


def make_served(root: Path, seed: int) -> None:
    """Write a tree as RedPajama-V2 is published, with listings."""
    draw = random.Random(seed)
    for language in ("en", "de"):
        shards = [
            f"2023-06/{number:04d}/{language}_{bucket}"
            for number in range(2)
            for bucket in ("head", "middle")
        ]
        (root / "listings").mkdir(parents=True, exist_ok=True)
        (root / f"listings/{language}-2023-06-head_middle.txt").write_text(
            "".join(f"{shard}\n" for shard in shards)
        )
        for shard in shards:
            for component, suffix in COMPONENTS.items():
                path = root / component / f"{shard}{suffix}"
                lines = make_lines(draw, draw.randrange(20, 60), shard)
                store(path, lines, 2)
                if path.suffix == ".parquet":
                    pq.write_table(pa.table({"id": [line.decode() for line in lines]}), path)


TOKENS = "--tokenizer WORLD/tokenizer.json"
ROWS = '"tokenizer": "WORLD/tokenizer.json", "max_seq_length": 64, "max_rows_per_file": 120'
SHUFFLE = "--shuffle --seed 3 --max-size 40000"
VSL = "--mode LMData_VSL --max-seq-length 64 --max-rows-per-file 120"
FIM = "--mode FIM --max-seq-length 64 --fim-prefix-tok '<|a|>' --fim-middle-tok '<|b|>' --fim-suffix-tok '<|c|>'"
PAIRS = "--max-seq-length 256 --prompt-key metadata.q --completion-key metadata.a --mode"
PREFERENCES = (
    "--mode DPO --max-seq-length 64 --prompt-key metadata.q --chosen-key metadata.a --rejected-key metadata.b"
)
FUNCTIONS = """\
def shorten(text: str) -> str | None:
    return None if text.startswith("the ") else text.replace("people ", "")
"""
CHOICE = "--where 'length < 3000' --within source --keep newest --rank added"


class Verbs(VerbLaws):
    """Every verb in the small world; a new one adds a line to `cases`."""

    cases: ClassVar = {
        "convert": Case(
            "convert WORLD/raw --to WORLD/converted --id key --text body --source web --shard-bytes 24000",
            ["converted"], others=["--source other"], asks=True, redone=1,
        ),
        "archives": Case(
            "convert WORLD/crawl --to WORLD/crawled --source cc --pre-taggers cc_re --post-taggers char_length_v1 gopher_v2",
            ["crawled"], others=["--pre-skip", "--post-taggers char_length_v1"], asks=True, redone=1,
        ),
        "combined": Case("convert WORLD/served/documents --to WORLD/combined --mapping redpajama_v2 --text text --combine bucket --shard-bytes 1", ["combined"], others=["--source other"], asks=True, redone=2, repeats=True),
        "download": Case("download WORLD/served --to WORLD/fetched --snapshots 2023-06 --languages en de --refresh", ["fetched"], redone=2),
        "tag": Case(f"tag WORLD/untagged --taggers {' '.join(TAGGERS)}", ["untagged/attributes"], others=["--source other"], redone=2),
        "contamination": Case("tag WORLD/compared --taggers contamination --against WORLD/items.txt", ["compared/attributes"], others=["--ngram 5"], redone=2, repeats=True),
        "quantiles": Case("quantiles WORLD/v0 --signals word_count char_length_v1__length --by source --level regular", ["v0/quantiles"], others=["--by none"], passes=True, replaces=False, asks=True),
        "filter": Case("filter WORLD/v0 --thresholds WORLD/v0/bounds.json", ["v0/attributes/quality"], others=["--nulls keep"], passes=True),
        "dedupe": Case("dedupe WORLD/v0 --keep longest", ["v0/attributes/exact"], others=["--by id"], passes=True),
        "paragraphs": Case("dedupe WORLD/v0 --unit paragraph --ngram 2 --overlap 0.5 --bloom WORLD/seen.bloom", ["v0/attributes/paragraphs", "seen.bloom"], others=["--overlap 0.2"], passes=True),
        "fuzzy": Case("dedupe WORLD/near --how fuzzy --keep longest", ["near/attributes", "near/clusters"], others=["--num-bands 5 --rows-per-band 20"], passes=True),
        "ranged": Case("dedupe WORLD/ranged --how fuzzy --verify none --merge-bytes 1000", ["ranged/attributes", "ranged/clusters"], others=["--num-bands 5 --rows-per-band 20"], passes=True),
        "together": Case("dedupe WORLD/pair/a --how fuzzy --others WORLD/pair/b --merge-bytes 500", ["pair/a/attributes", "pair/a/clusters", "pair/b/attributes"], others=["--keep longest"], passes=True),
        "indexed": Case("dedupe WORLD/indexed/b --how fuzzy --index WORLD/indexed/index --merge-bytes 500", ["indexed/b/attributes", "indexed/b/clusters", "indexed/index"], others=["--keep longest"], passes=True),
        "known": Case("dedupe WORLD/known/b --index WORLD/known/index", ["known/b/attributes", "known/index"], others=["--keep longest"], passes=True, repeats=True),
        "chosen": Case(f"dedupe WORLD/chosen --how fuzzy {CHOICE}", ["chosen/attributes/fuzzy", "chosen/clusters"], others=["--within id"], passes=True, repeats=True),
        "sign": Case("""sign WORLD/published WORLD/signed --where 'source != "web"'""", ["signed"], others=["""--where 'source == "web"'"""], asks=True, redone=2),
        "tables": Case("sign WORLD/published WORLD/resigned --signatures WORLD/tables", ["resigned"], others=["""--where 'source == "web"'"""], asks=True, redone=2, repeats=True),
        "signals": Case("""signals WORLD/published WORLD/signalled --where 'source != "web"'""", ["signalled"], others=["""--where 'source == "web"'"""], asks=True, redone=2, repeats=True),
        "attach": Case("attach WORLD/published WORLD/signals --name rps", ["published/attributes/rps"], others=["--source other"], redone=2),
        "published": Case("dedupe WORLD/published --how fuzzy --scheme redpajama_v2 --signatures WORLD/tables", ["published/attributes/fuzzy", "published/clusters"], others=["--similarity 0.7"], passes=True, repeats=True),
        "block": Case("block WORLD/v0 WORLD/list.txt --name takedown", ["v0/attributes/takedown"], passes=True),
        "validate": Case("validate WORLD/v0 --attributes gopher_v2 --to WORLD/report.json", ["report.json"], passes=True, replaces=False),
        "mix": Case(f"mix WORLD/v0 --to WORLD/v1 --where '{RULE}'", ["v1"], others=[f"--where '{STRICTER}'"], asks=True, redone=2),
        "transform": Case(f"transform WORLD/v0 --function WORLD/clean.py:shorten --to WORLD/rewritten --where '{RULE}'", ["rewritten"], others=[f"--where '{STRICTER}'"], asks=True, redone=2, repeats=True),
        "packed": Case(f"mix WORLD/v0 --to WORLD/packed --where '{RULE}' --max-size 40000", ["packed"], others=["--max-size 120000", "--max-size 16000", "--format jsonl.zst"], asks=True, passes=True, replaces=False, repeats=True),
        "shuffled": Case(f"mix WORLD/v0 --to WORLD/shuffled --where '{RULE}' {SHUFFLE}", ["shuffled"], others=["--seed 4", "--max-size 120000", "--format jsonl.zst"], asks=True, passes=True, replaces=False),
        "downsampled": Case(f"mix WORLD/v0 --to WORLD/drawn --where '{RULE}' --downsample books=20000 web=0.3 --by source --unit bytes --shuffle --seed 3 --shards 5", ["drawn"], others=["--seed 4", "--shards 2", "--downsample 28000", "--unit documents"], asks=True, passes=True, replaces=False, repeats=True),
        "budgeted": Case(
            f"""mix WORLD/v0 --to WORLD/budgeted/v1 --where '{RULE}' --budget 'books=60% web=40%' --tokens 60K --max-epochs 4 --shuffle --seed 3 --max-size 40000"""
            """ --ragged '{"to": "WORLD/budgeted/tokens", "tokenizer": "WORLD/tokenizer.json", "eos": 0}'""",
            ["budgeted"], others=["--seed 4", "--tokens 50K", "--budget books=70% web=30%", "--max-size 120000"], asks=True, passes=True, replaces=False, repeats=True,
        ),
        "ragged": Case(f"ragged WORLD/v0 WORLD/tokens {TOKENS} --eos '<|endoftext|>' --where '{BOOKS}'", ["tokens"], others=["--bos '<|endoftext|>'"], asks=True, redone=2),
        "ragged parquet": Case(f"ragged WORLD/v0 WORLD/token_rows {TOKENS} --format parquet --where '{BOOKS}'", ["token_rows"], others=["--eos '<|endoftext|>'"], asks=True, redone=2, repeats=True),
        "ragged dolma": Case(f"ragged WORLD/v0 WORLD/dolma {TOKENS} --format dolma --where '{BOOKS}'", ["dolma"], others=["--eos none"], asks=True, redone=2, repeats=True),
        "ragged megatron": Case(f"ragged WORLD/v0 WORLD/megatron {TOKENS} --format megatron --where '{BOOKS}'", ["megatron"], others=["--eos none"], asks=True, redone=2, repeats=True),
        "ragged datatrove": Case(f"ragged WORLD/v0 WORLD/datatrove {TOKENS} --format datatrove --where '{BOOKS}'", ["datatrove"], others=["--eos none"], asks=True, redone=2, repeats=True),
        "ragged mds": Case(f"ragged WORLD/v0 WORLD/mds {TOKENS} --format mds --where '{BOOKS}'", ["mds"], others=["--eos '<|endoftext|>'"], asks=True),
        "hdf5": Case(f"hdf5 WORLD/v0 WORLD/rows {TOKENS} --max-seq-length 64 --max-rows-per-file 120 --where '{BOOKS}'", ["rows"], others=["--eos-id 7 --pad-id 7"], asks=True, passes=True),
        "vsl": Case(f"hdf5 WORLD/v0 WORLD/whole {TOKENS} {VSL} --shuffle --shuffle-seed 3 --where '{BOOKS}'", ["whole"], others=["--shuffle-seed 4", "--packing next_fit", "--max-rows-per-file 40"], asks=True, passes=True),
        "fim": Case(f"hdf5 WORLD/v0 WORLD/filled {TOKENS} {FIM} --seed 5 --where '{BOOKS}'", ["filled"], others=["--seed 6"], asks=True, passes=True, repeats=True),
        "ragged shuffled": Case(f"ragged WORLD/v0 WORLD/drawn_tokens {TOKENS} --format dolma --compat dolma-1.2 {SHUFFLE} --where '{RULE}'", ["drawn_tokens"], others=["--seed 4", "--max-size 10000", "--segment-before-tokenization"], asks=True, passes=True, replaces=False),
        "reshard": Case("reshard WORLD/joined --sources WORLD/parts --rates 1.5 --max-size 90000", ["joined"], others=["--seed 3", "--max-size 200000"], asks=True),
        "pairs": Case(f"hdf5 WORLD/chat WORLD/answers {TOKENS} {PAIRS} Summarization", ["answers"], others=["--completion-prefix '<|endoftext|>'"], asks=True, passes=True, repeats=True),
        "dialogues": Case(f"hdf5 WORLD/chat WORLD/dialogues {TOKENS} {PAIRS} Summarization_VSL --packing modelzoo --max-chunk-size 2", ["dialogues"], others=["--max-chunk-size 4"], asks=True, passes=True, repeats=True),
        "preferences": Case(f"hdf5 WORLD/chat WORLD/preferences {TOKENS} {PREFERENCES} --shuffle", ["preferences"], others=["--max-prompt-length 40"], asks=True, passes=True, repeats=True),
        "remove": Case("remove WORLD/takedown --ids WORLD/list.txt --reason request", ["takedown"], replaces=False, in_place=True),
        "mix to tokens": Case(
            f"""mix WORLD/v0 --to WORLD/mixed/v1 --ragged '{{"to": "WORLD/mixed/tokens", "tokenizer": "WORLD/tokenizer.json"}}'"""
            f""" --hdf5 '{{"to": "WORLD/mixed/rows", {ROWS}}}' --where '{BOOKS}' --dropped WORLD/mixed/dropped --dropped-documents""",
            ["mixed"], others=["--discard-fields x"], asks=True,
        ),
    }  # fmt: skip

    @classmethod
    def make_world(cls, world):
        """Raw files, twelve shards, one that repeats rows of the others, and a large one of which no rule keeps a row: its size makes a shuffle use two buckets."""
        make_raw(world / "raw", 7)
        make_served(world / "served", 6)
        make_crawl(world / "crawl", 4)
        make_documents(world / "untagged", 8)
        make_documents(world / "compared", 8)
        make_documents(world / "v0", 8)
        train_tokenizer(ORDINARY + WILD, world / "tokenizer.json", 300)
        add_tokens(world / "tokenizer.json", ["<|a|>", "<|b|>", "<|c|>"])
        make_chats(world / "v0", world / "chat")
        draw = random.Random(5)
        lines = gzip.decompress((world / "v0/documents/2019-03/part_3.jsonl.gz").read_bytes()).splitlines()
        copies = [dict(json.loads(draw.choice(lines)), id=f"copy-{number}") for number in range(120)]
        store(world / "v0/documents/zzz.jsonl.gz", [json.dumps(copy).encode() + b"\n" for copy in copies])
        make_documents(world / "near", 9)
        near = [{**copy, "text": f"{copy['text']} and one more"} for copy in copies]
        store(world / "near/documents/zzz.jsonl.gz", [json.dumps(copy).encode() + b"\n" for copy in near])
        shutil.copytree(world / "near", world / "ranged")
        shutil.copytree(world / "near", world / "chosen")
        name_rows(world / "near", world / "published")
        make_signals(world / "published", world / "signals")
        shutil.copytree(world / "near", world / "pair/a", ignore=shutil.ignore_patterns("2019-0[4-7]", "zst"))
        shutil.copytree(
            world / "near",
            world / "pair/b",
            ignore=shutil.ignore_patterns("2019-0[0-2]", "2019-0[5-7]", "zzz*"),
        )
        for name, how in (("indexed", ["--how", "fuzzy"]), ("known", [])):
            shutil.copytree(world / "pair", world / name)
            assert run_here(["dedupe", f"{world}/{name}/a", *how, "--index", f"{world}/{name}/index"]) == 0
        padding = {
            "id": "p",
            "text": "padding",
            "source": "padding",
            "metadata": {"padding": "x" * 900_000},
        }
        lines = [json.dumps(dict(padding, id=f"p{row}")).encode() + b"\n" for row in range(10)]
        store(world / "v0/documents/padding.jsonl", lines)
        listed = [f"copy-{number}" for number in range(0, 120, 7)] + ["2019-01/part_1-5", "nobody"]
        ends = {
            "char_length_v1__char_length_v1__length": (100, 900),
            "gopher_v2__gopher_v2__word_count": (20, None),
        }
        bounds = {name: {"all": {"lower": low, "upper": high}} for name, (low, high) in ends.items()}
        (world / "v0/bounds.json").write_text(json.dumps({"bounds": bounds}))
        (world / "clean.py").write_text(FUNCTIONS)
        (world / "items.txt").write_text(
            "".join(f"{' '.join(copy['text'].split()[:30])}\n" for copy in copies)
        )
        (world / "list.txt").write_text("".join(f"{identity}\n" for identity in listed))
        cls.tag(world)

    @classmethod
    def tag(cls, world):
        assert run_here(["tag", f"{world}/v0", "--taggers", *TAGGERS]) == 0
        assert run_here(["tag", f"{world}/chosen", "--taggers", "char_length_v1"]) == 0
        assert run_here(["sign", f"{world}/published", f"{world}/tables"]) == 0
        tokens = ["--tokenizer", f"{world}/tokenizer.json", "--format", "dolma"]
        assert run_here(["tag", f"{world}/v0", "--taggers", "tokens", *tokens[:2]]) == 0
        assert run_here(["ragged", f"{world}/v0", f"{world}/parts", *tokens]) == 0

        make_takedown(world)

    @classmethod
    def change(cls, world):
        """One letter in two shards of each dataset, and in one raw file."""
        for root in (
            "untagged",
            "compared",
            "v0",
            "chat",
            "near",
            "ranged",
            "chosen",
            "published",
            "pair/a",
            "pair/b",
            "indexed/b",
            "known/b",
        ):
            change_same_size(world / root / "documents/plain.jsonl")
            change(world / root / "documents/2019-03/part_3.jsonl.gz")
        change(world / "raw/dump/3.jsonl.gz")
        change(world / "crawl/2.warc.gz")
        for shard in ("0000/en_head", "0001/de_middle"):
            change(world / f"served/documents/2023-06/{shard}.json.gz")
        cls.tag(world)


def make_takedown(world: Path) -> None:
    """Make a root with a small dataset, attributes, another version, token files and rows of it."""
    root = world / "takedown"
    for name in ("2019-01/part_1.jsonl.gz", "plain.jsonl", "zst/a.jsonl.zst"):
        place = root / "v0/documents" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(world / "v0/documents" / name, place)
    tokens = ["--tokenizer", f"{world}/tokenizer.json"]
    rows = ["--max-seq-length", "64", "--max-rows-per-file", "500"]
    for words in (
        ["tag", f"{root}/v0", "--taggers", "char_length_v1"],
        ["mix", f"{root}/v0", "--to", f"{root}/v1", "--where", "length < 3000"],
        ["ragged", f"{root}/v1", f"{root}/tokens", *tokens],
        ["hdf5", f"{root}/v1", f"{root}/rows", *tokens, *rows],
    ):
        assert run_here(words) == 0


def add_tokens(path: Path, names: list[str]) -> None:
    """Add special tokens to a tokenizer."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(names)
    tokenizer.save(str(path))


def make_chats(root: Path, to: Path) -> None:
    """Write every third document of the gzipped and plain shards of a dataset with a question and two answers in their metadata, cut from the texts of long documents; without the one character that dialogues may not have."""
    for path in sorted(root.rglob("*.jsonl*")):
        if path.suffix == ".zst":
            continue
        data = path.read_bytes()
        rows = map(json.loads, (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines())
        chats = [
            {
                "metadata": {"q": text[:90], "a": text[90:200], "b": f"no {text[150:260]}"},
                "id": row["id"],
                "source": "chat",
                "text": "",
            }
            for row in islice(rows, 0, None, 3)
            if len(text := row["text"].replace("\U0010ffff", "")) > 100
        ]
        store(to / path.relative_to(root), [json.dumps(chat).encode() + b"\n" for chat in chats])


def name_rows(root: Path, to: Path) -> None:
    """Write the gzipped and plain shards of a dataset with ids as RedPajama-V2 has them."""
    for path in sorted(root.rglob("*.jsonl*")):
        name, data = path.relative_to(root), path.read_bytes()
        if path.suffix == ".zst":
            continue
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
        rows = [dict(json.loads(line), id=f"{name}/{row}") for row, line in enumerate(lines)]
        store(to / name, [json.dumps(row).encode() + b"\n" for row in rows])


def make_signals(root: Path, to: Path) -> None:
    """Write a table of quality signals for each shard of a dataset; every ninth document has no row, and every seventh value is missing."""
    for path in sorted((root / "documents").rglob("*.jsonl*")):
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
        rows = []
        for number, document in enumerate(map(json.loads, lines)):
            size = len(document["text"])
            signals = {
                "rps_doc_word_count": [[0, size, len(document["text"].split())]],
                "rps_doc_ut1_blacklist": [[0, size, number if number % 7 else None]],
                "rps_lines_num_words": [[0, 1, number], [1, size, 0.25]] if size else [],
            }
            rows.append({"id": document["id"], "id_int": number, "quality_signals": signals})
        name = path.relative_to(root / "documents").as_posix().partition(".")[0]
        compact = [json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows]
        store(to / f"{name}.signals.json.gz", [line for row, line in enumerate(compact) if row % 9], 2)


def run_here(words: list[str]) -> int:
    """Run a command in this process, without Dask's processes; return its exit status."""
    return cli.main([*words, "--scheduler", "synchronous", "--no-progress"])


def change_same_size(path: Path) -> None:
    """Change one letter in a text of a document file, keeping its stored size."""
    data = bytearray(path.read_bytes())
    at = data.index(b" the ") + 1
    data[at : at + 3] = b"teh"
    path.write_bytes(data)


def change(path: Path) -> None:
    """Change one letter in a gzipped document or attribute file."""
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(
        gzip.compress(
            text.replace(b" the ", b" teh ", 1) if b" the " in text else text.replace(b"[[0", b"[[ 0", 1),
            mtime=0,
        )
    )
