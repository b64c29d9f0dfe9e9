"""Hash all content that the commands write from a small fixed corpus, so that a change of the code can be proved to change no byte.

    python tools/same_content.py --check tools/same_content.txt            everything, exit status 1 and a diff if something differs
    python tools/same_content.py --check tools/same_content.txt --quick    in one process and without kills
    python tools/same_content.py --check tools/same_content.txt --only tag "mix *"
    python tools/same_content.py --write tools/same_content.txt            a new baseline, after a change that was meant

Only public commands and plain Python are used. A line is ``<case> | <path> | <sha256>``; ``<case> > <summary>`` is the exit status and what
``--json`` prints, without times, places and texts for people; texts for people are lines ``<case> " <text>``, compared with ``--wording`` only.
All commands run in one process with the scheduler ``synchronous``; a part of them again with threads, on a cluster of two workers, and with
SIGKILL at several moments and a second run: what these write must equal the first, which is checked here and not a matter of the baseline.
Journals, logs, reports and work folders are no content.
"""

import argparse
import contextlib
import difflib
import fnmatch
import gzip
import hashlib
import io
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

COMMON = """\
the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were all water people
history language curious window measure harbour reading seldom promise winter copper machine garden village"""
RARE = """\
naïve coöperation Straße İstanbul ﬁne ½ Ⅷ １２３ ٣٤٥ 中文字 日本語です 한국어 שלום مرحبا हिन्दी ไทยภาษา ẹ́ 👨\u200d👩\u200d👧 🇫🇷 … - • 3.14159 ------ ### a/b
https://example.org/?q=1&x=<y> {json:[1]} \\n "quoted" \u200b \x00 \x7f \U0010ffff \ufdd0"""
WORDS, WILD = COMMON.split(), RARE.split()
BREAKS = ("\n", "\n\n", "\r\n", "\u2028", "\t", "\u00a0", "\u3000")
EOS = "<|endoftext|>"


def make_text(draw: random.Random) -> str:
    """Return words of many scripts; one text in thirty is empty, some are long."""
    if draw.random() < 0.03:
        return ""
    known = WORDS if draw.random() < 0.7 else [*WORDS, *WILD]
    words = [known[int(draw.random() * len(known))] for _ in range(int(5 + draw.random() ** 3 * 250))]
    gaps = [BREAKS[int(draw.random() * len(BREAKS))] if draw.random() < 0.08 else " " for _ in words]
    text = "".join(word + gap for word, gap in zip(words, gaps, strict=True))
    return f"{text}mail{len(words)}@example.org and so on" if draw.random() < 0.1 else text


def make_documents(draw: random.Random, name: str, rows: int) -> list[dict[str, Any]]:
    """Return documents of three sources, some with metadata and further fields."""
    documents = []
    for row in range(rows):
        document: dict[str, Any] = {
            "id": f"{name}-{row}",
            "text": make_text(draw),
            "source": ("web", "wïki", "books")[row % 3],
        }
        if row % 4:
            document["metadata"] = {
                "language": ("de", "fr", "en")[row % 4 - 1],
                "n": row,
                "perplexity": row * 7 % 100 + 0.5,
            }
        if row % 5 == 0:
            document |= {"added": "2024-01-01T00:00:00.000Z", "big": 12345678901234567890, "é": [1.0, None]}
        documents.append(document)
    return documents


def json_line(value: Any, number: int = 0) -> bytes:
    """Return a value as a JSON line, written in one of the ways in which other tools write it."""
    return (
        json.dumps(
            value, ensure_ascii=number % 3 == 0, separators=((",", ":"), (", ", ": "))[number % 2]
        ).encode()
        + b"\n"
    )


def json_lines(values: Iterable[Any]) -> bytes:
    """Return values as JSON lines."""
    return b"".join(json_line(value, number) for number, value in enumerate(values))


def store(path: str, data: bytes, members: int = 1) -> None:
    """Write bytes compressed as the suffix says; gzip in some members, cut anywhere."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if path.endswith(".gz"):
        step = len(data) // members + 1
        data = b"".join(
            gzip.compress(data[at : at + step], 1, mtime=0) for at in range(0, max(len(data), 1), step)
        )
    elif path.endswith(".zst"):
        data = zstd(data)
    Path(path).write_bytes(data)


def zstd(data: bytes) -> bytes:
    """Return bytes as a zstd frame."""
    return bytes(pa.Codec("zstd", compression_level=3).compress(data, asbytes=True))


def store_table(path: str, rows: list[dict[str, Any]]) -> None:
    """Write a Parquet file of two row groups."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd", row_group_size=len(rows) // 2 + 1)


def make_dataset(draw: random.Random) -> None:
    """Write ``v0`` with nested folders, all suffixes, copies of texts and of ids; with attributes of another tool."""
    parts = {
        "web/part-0.jsonl.gz": 90,
        "web/part-1.json.gz": 60,
        "web/2021/deep/part-2.jsonl.zst": 70,
        "books/plain.jsonl": 50,
        "table.parquet": 40,
        "empty.jsonl.gz": 0,
    }
    everything: list[dict[str, Any]] = []
    for number, (path, rows) in enumerate(parts.items()):
        documents = make_documents(draw, path.split(".")[0], rows)
        if path.endswith("parquet"):
            documents = [
                {
                    "id": item["id"],
                    "text": item["text"],
                    "source": item["source"],
                    "metadata": item.get("metadata"),
                }
                for item in documents
            ]
            store_table(f"v0/documents/{path}", documents)
        else:
            store(f"v0/documents/{path}", json_lines(documents), 1 + number)
        store_spans(
            f"v0/attributes/pii/{path.removesuffix('.parquet')}{'.jsonl.gz' * path.endswith('.parquet')}",
            documents,
        )
        everything += documents
    copies = [everything[int(draw.random() * len(everything))] for _ in range(80)]
    copies = [dict(item, id=item["id"] if row % 4 == 0 else f"copy-{row}") for row, item in enumerate(copies)]
    store("v0/documents/zz/copies.jsonl.gz", json_lines(copies))
    store_spans("v0/attributes/pii/zz/copies.jsonl.gz", copies)
    listed = [item["id"] for item in everything[::17]]
    store(
        "lists/takedown.txt", "".join(f"{item}\n" for item in [*listed, "nobody", "nothing\there"]).encode()
    )
    rows = "".join(f"{item['id']},{item['source']}\n" for item in everything[5::23])
    for name in ("pairs", "blocked"):
        store(f"lists/{name}.csv.gz", f"id,source\n{rows}copy-1,nowhere\n".encode())
    store("lists/allowed.jsonl", json_lines({"id": item["id"]} for item in everything[::2]))


def store_spans(path: str, documents: Sequence[dict[str, Any]]) -> None:
    """Write where addresses stand, in the form of the Dolma toolkit."""
    rows = []
    for document in documents:
        text, spans = document["text"], []
        at = text.find("@example.org")
        if at >= 0:
            spans.append([text.rindex("mail", 0, at), at + len("@example.org"), 0.25 + len(text) % 3 / 4])
        rows.append({"id": document["id"], "source": document["source"], "attributes": {"pii__EMAIL": spans}})
    store(path, json_lines(rows))


def make_raw(draw: random.Random) -> None:
    """Write raw files of every form: C4's, records with other names, texts, an archive, a table, and some with bad records."""
    for number in range(2):
        rows: list[dict[str, Any]] = [
            {
                "text": make_text(draw),
                "timestamp": "2019-04-25T12:57:54Z",
                "url": f"https://e.org/{number}/{row}",
            }
            for row in range(40)
        ]
        store(f"raw/c4/c4-train.{number:05d}-of-00002.json.gz", json_lines(rows))
    for number in range(4):
        rows = [
            {"key": f"k{number}-{row}", "body": make_text(draw), "extra": {"n": row}}
            for row in range(30 + 20 * number)
        ]
        store(
            f"raw/pages/{'nested/' * (number % 2)}{number}.jsonl{('.gz', '.zst', '')[number % 3]}",
            json_lines(rows),
            2,
        )
    for number in range(7):
        store(
            f"raw/texts/{'sub/' * (number % 2)}text-{number}.{'md' if number == 3 else 'txt'}",
            make_text(draw).replace("\x00", "").encode(),
        )
    Path("raw/tar").mkdir(parents=True)
    with tarfile.open("raw/tar/topics.jsonl.zst.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(2):
            data = zstd(
                json_lines(
                    {"content": {"title": f"t{number}-{row}", "body": make_text(draw)}} for row in range(25)
                )
            )
            member = tarfile.TarInfo(f"topics-{number}.jsonl.zst")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    rows = [
        {"key": f"r{row}", "docstring": make_text(draw), "where": {"module": f"m{row % 3}", "line": row}}
        for row in range(40)
    ]
    store_table("raw/table/api.parquet", rows)
    bad = [
        b'{"id":"x1","text":"cut of',
        b"[]",
        b'{"id":"x2","source":"web"}',
        b'{"id":"x3","text":"\xff","source":"web"}',
        b'{"id":3,"text":"t","source":"web"}',
    ]
    for path in (
        "raw/broken/a.jsonl",
        "raw/broken/b.jsonl.gz",
        "bad/documents/a.jsonl",
        "bad/documents/b.jsonl.zst",
    ):
        lines = json_lines(make_documents(draw, path, 30)).splitlines()
        store(path, b"\n".join([*lines[:10], *bad[:3], *lines[10:], *bad[3:]]) + b"\n")
    store("bad/documents/good.jsonl.gz", json_lines(make_documents(draw, "good", 30)))


def make_published() -> None:
    """Write documents with the ids of RedPajama-V2, their quality signals with some rows and values missing, and tables of duplicates."""
    draw = random.Random(20231030)
    for shard in ("2022-49/0000/de_head", "2023-06/0000/en_head", "2023-06/0001/en_middle"):
        documents = [
            document
            | {
                "id": f"{shard}.json.gz/{row}",
                "metadata": {"language": shard[13:15], "url": f"https://e.org/{row}"},
            }
            for row, document in enumerate(make_documents(draw, shard, 40))
        ]
        store(f"rpv2/documents/{shard}.jsonl.gz", json_lines(documents), 2)
        rows = [
            {
                "id": document["id"],
                "id_int": row,
                "metadata": {},
                "quality_signals": signals_of(row, document),
            }
            for row, document in enumerate(documents)
            if row % 9
        ]
        store(f"tables/signals/{shard}.signals.json.gz", json_lines(rows), 2)
        listed = [{"shard_id": f"{shard}.json.gz", "doc_id": document["id"]} for document in documents[3::7]]
        store_table(f"tables/duplicates/{shard}.duplicates.parquet", listed)


def signals_of(row: int, document: dict[str, Any]) -> dict[str, Any]:
    """Return quality signals of a document: an integer, a number, one that is missing now and then, and lines."""
    size = len(document["text"])
    return {
        "ccnet_length": [[0, size, float(size)]],
        "rps_doc_word_count": [[0, size, len(document["text"].split())]],
        "rps_doc_mean_word_length": [[0, size, row / 7]],
        "rps_doc_ut1_blacklist": [[0, size, row if row % 3 else None]],
        "rps_lines_num_words": [[at, at + 1, at] for at in range(row % 4)],
    }


def make_tokenizer(path: str) -> None:
    """Write a byte-level BPE tokenizer whose tokens are bytes, beginnings of common words, and two special ones."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) for byte in printable] + [chr(256 + number) for number in range(len(others))]
    tokens, merges = [EOS, "<|padding|>", *letters], []
    for word in WORDS:
        for size in range(2, len(word) + 2):
            piece = f"Ġ{word}"[:size]
            if piece not in tokens:
                tokens.append(piece)
                merges.append(f"{piece[:-1]} {piece[-1]}")
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
    }
    model |= {
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": merges,
    }
    added = [{"id": number, "content": tokens[number], **special} for number in (0, 1)]
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None}
    whole |= {"pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model}
    Path(path).write_text(json.dumps(whole))


MIXER = """\
streams:
  - name: toolkit
    documents: [v0/documents/web/*.gz, v0/documents/books/*]
    output: {path: toolkit/documents, max_size_in_bytes: 40000, min_text_length: 5, discard_fields: [big]}
    attributes: [exp, pii]
    filter:
      include: ["$.attributes[?(@.exp__char_length_v1__length[0][2] < 1000)]"]
      exclude: ["$.attributes[?(@.exp__gopher_v2__word_count[0][2] < 12)]"]
    span_replacement:
      - {span: "$.attributes.pii__EMAIL", min_score: 0.5, replacement: "|||EMAIL|||"}
processes: 1
"""
MODELZOO = """\
setup: {input_dir: raw/pages, output_dir: zoo, processes: 1}
processing: {tokenizer_type: NeoXTokenizer, encoder_file: tokenizer.json, eos_id: 0, pad_id: 1, max_seq_length: 64, seed: 0}
dataset: {use_ftfy: True, ftfy_normalizer: NFC, jsonl_key: body, pack_sequences: True}
"""
FUNCTIONS = """\
def halves(record):
    body = record["body"]
    parts = [body[: len(body) // 2], body[len(body) // 2 :]]
    if body:
        yield {"text": parts[0], "metadata": {"key": record["key"]}}
    if len(body) > 400:
        yield {**record, "text": parts[1]}


def shorten(text: str) -> str | None:
    return None if text.startswith("the ") else text.replace("people ", "")


def without_language(document):
    (document.get("metadata") or {}).pop("language", None)
    return None if document["source"] == "books" else document
"""
PIPELINE = """\
variables: {out: pipe}
stages:
  - convert: {inputs: raw/pages, to: "${out}/v0", id: key, text: body, source: web}
  - tag: {dataset: "${out}/v0", taggers: [gopher_v2, char_length_v1]}
  - dedupe: {dataset: "${out}/v0"}
  - quantiles: {dataset: "${out}/v0", signals: [word_count, length], by: none, level: regular, tails: {word_count: both, length: both}}
  - name: keep
    mix: {dataset: "${out}/v0", to: "${out}/v1", where: exact is None, thresholds: "${out}/v0/quantiles/quantiles.regular.json"}
  - ragged: {dataset: "${out}/v1", to: "${out}/tokens", tokenizer: tokenizer.json, name: pages}
  - hdf5: {dataset: "${out}/v1", to: "${out}/h5", tokenizer: tokenizer.json, max_seq_length: 64, eos: <|endoftext|>}
  - validate: {dataset: "${out}/v1", against: "${out}/v0"}
report: {dataset: "${out}/v1", to: "${out}/report.html"}
"""


def make_world() -> None:
    """Write everything that the cases read into the current folder."""
    draw = random.Random(20240101)
    make_dataset(draw)
    make_raw(draw)
    make_published()
    make_tokenizer("tokenizer.json")
    for path, text in {
        "clean.py": FUNCTIONS,
        "mixer.yaml": MIXER,
        "zoo.yaml": MODELZOO,
        "pipeline.yaml": PIPELINE,
    }.items():
        Path(path).write_text(text)


EMAIL = '{"span": "$.attributes.pii__EMAIL", "min_score": 0.5, "replacement": "<{}>"}'
ARRAYS = '{"to": "FOLDER/tokens", "tokenizer": "tokenizer.json", "eos": "<|endoftext|>"}'
ROWS = '{"to": "FOLDER/h5", "tokenizer": "tokenizer.json", "eos": "<|endoftext|>", "max_seq_length": 48, "max_rows_per_file": 200}'
SHORT = {
    "@rule": "'@count >= 12 and @length < 1000'",
    "@signals": "--signals @count @length gopher_v2__gopher_v2__median_word_length",
    "@taggers": "--taggers char_length_v1 whitespace_tokenizer_v1 gopher_v2",
    "@count": "gopher_v2__gopher_v2__word_count",
    "@length": "char_length_v1__char_length_v1__length",
    "@tokenizer": "--tokenizer tokenizer.json",
    "@rows": "--eos '<|endoftext|>' --pad '<|padding|>' --max-seq-length",
    "@budget": "--on-bad-record quarantine --max-bad-fraction 0.5",
    "@quarantine": "--on-bad-record quarantine",
    "@email": f"'{EMAIL}'",
    **{
        f"@outputs={folder}": f"--ragged '{ARRAYS}' --hdf5 '{ROWS}'".replace("FOLDER", folder)
        for folder in ("side", "alone", "stirred", "drawn", "epochs")
    },
}
"""Values of the words in the commands below."""


@dataclass(frozen=True)
class Case:
    """A command, and what must have run before it."""

    command: str
    needs: str = ""  # cases whose output it reads
    everywhere: bool = False  # runs with threads and on a cluster too
    kills: tuple[int, ...] = ()  # numbers of new files after which it is killed, in a run of its own

    @property
    def words(self) -> list[str]:
        """Words of the command."""
        line = self.command
        for name, text in SHORT.items():
            line = line.replace(name, text)
        return shlex.split(line)

    @property
    def needed(self) -> list[str]:
        """Names of the cases that it needs."""
        return [name for name in self.needs.split(", ") if name]


# fmt: off
CASES = {
    "convert c4": Case("convert raw/c4 --to c4 --mapping c4"),
    "convert pages": Case("convert raw/pages --to pages --id key --text body --source web --shard-bytes 9000", everywhere=True, kills=(3, 9)),
    "convert texts": Case("convert raw/texts --to many --under texts --source texts"),
    "convert tar": Case("convert raw/tar --to many --under tar --id content.title --text content.body --source tar --format jsonl.zst"),
    "convert table": Case("convert raw/table --to many --under table --id key --text docstring --source table --metadata where.module where.line --format parquet"),
    "convert ids": Case("convert raw/c4 --to numbered --text text --created timestamp --source c4 --generated-id '{path}#{row}' --format jsonl"),
    "convert combined": Case("convert rpv2/documents --to combined --mapping redpajama_v2 --id id --text text --combine language", everywhere=True, kills=(1, 2)),
    "convert bad": Case("convert raw/broken --to broken @budget", everywhere=True),
    "convert bad refused": Case("convert raw/broken --to refused"),
    "tag": Case("tag v0 @taggers", everywhere=True, kills=(2, 8)),
    "tag experiment": Case("tag v0 --taggers gopher_v2 char_length_v1 --experiment exp"),
    "tag zstd": Case("tag v0 --taggers gopher_v2 --experiment zst --format jsonl.zst"),
    "tag parquet": Case("tag v0 @taggers --experiment columns --format parquet", everywhere=True),
    "tag plain": Case("tag many --taggers gopher_v2 --format jsonl", needs="convert texts, convert tar, convert table"),
    "tag bad": Case("tag bad --taggers char_length_v1 gopher_v2 @quarantine"),
    "tag again": Case("tag v0 @taggers", needs="tag"),
    "convert attributes": Case("convert v0 --to v0 --attributes zst --form flat", needs="tag zstd", everywhere=True),
    "convert attributes back": Case("convert v0 --to v0 --attributes zst-flat --form nested --rename back", needs="convert attributes"),
    "tag redpajama": Case("tag rpv2 --taggers redpajama_v2_doc redpajama_v2_lines redpajama_v2_ccnet --experiment rps", everywhere=True),
    "signals": Case("signals rpv2 out/signals", everywhere=True, kills=(1, 4)),
    "attach signals": Case("attach rpv2 tables/signals --name published", everywhere=True, kills=(1, 4)),
    "attach signals parquet": Case("attach rpv2 tables/signals --name columns --format parquet", everywhere=True),
    "attach duplicates": Case("attach rpv2 tables/duplicates --name exact --only '2023-06*'"),
    "quantiles": Case("quantiles v0 @signals", needs="tag", everywhere=True),
    "quantiles level": Case("quantiles v0 @signals --by metadata.language --level regular --name language --tails word_count=both length=both", needs="tag", everywhere=True),
    "quantiles some": Case("quantiles v0 @signals --by source metadata.language --where 'gopher_v2__gopher_v2__word_count > 5' --level strict word_count=regular web/en=strictest --nulls keep --name some --tails word_count=both length=both", needs="tag", everywhere=True),
    "quantiles all signals": Case("quantiles v0 --attributes gopher_v2 whitespace_tokenizer_v1 --by none --probabilities 0 0.25 0.5 1 --name all", needs="tag"),
    "quantiles sampled": Case("quantiles v0 @signals metadata.perplexity --sample 0.4 --seed 3 --level strict --name sampled --tails word_count=both length=both", needs="tag"),
    "quantiles attribute": Case("quantiles v0 --signals metadata.n --by columns__whitespace_tokenizer_v1__length --only books --name attribute", needs="tag parquet"),
    "filter": Case("filter v0 --tails word_count=both length=both", needs="quantiles", everywhere=True),
    "filter groups": Case("filter v0 --quantiles language --tails word_count=lower length=both --nulls keep --name language --format parquet", needs="quantiles level", everywhere=True),
    "mix levels": Case("mix v0 --to mix/levels --where 'quality.level >= 2 and language.word_count >= 1'", needs="filter, filter groups"),
    "dedupe": Case("dedupe v0", everywhere=True, kills=(2, 7, 14)),
    "dedupe id": Case("dedupe v0 --by id --name same_id"),
    "dedupe longest": Case("dedupe v0 --by metadata.language --keep longest --name longest --format parquet", everywhere=True),
    "dedupe rank": Case("dedupe v0 --by text --keep highest --rank metadata.perplexity --name ranked"),
    "dedupe attribute": Case("dedupe v0 --by @length --keep lowest --rank @count --name lengths --format jsonl.zst", needs="tag"),
    "dedupe bad": Case("dedupe bad @quarantine"),
    "dedupe fuzzy": Case("dedupe v0 --how fuzzy", everywhere=True, kills=(3, 9, 20)),
    "dedupe fuzzy rpv2": Case("dedupe v0 --how fuzzy --scheme redpajama_v2 --ngram 3 --name rpv2 --keep longest --format parquet"),
    "dedupe fuzzy ngrams": Case("dedupe v0 --how fuzzy --verify ngrams --unit char --similarity 0.5 --name chars"),
    "block": Case("block v0 lists/takedown.txt"),
    "block exchange": Case("block v0 lists/takedown.txt --name exchanged --exchange", everywhere=True),
    "block pairs": Case("block v0 lists/pairs.csv.gz --name pairs --format parquet", everywhere=True),
    "block pairs exchange": Case("block v0 lists/pairs.csv.gz --name pairs2 --exchange"),
    "mix": Case("mix v0 --to v1 --where @rule", needs="tag", everywhere=True),
    "mix parquet": Case("""mix v0 --to mix/parquet --where "columns__gopher_v2__word_count >= 12 and metadata.n < 40 or source == 'books'" --format parquet""", needs="tag parquet"),
    "mix zstd": Case("mix v0 --to mix/zstd --where 'columns__gopher_v2__word_count < 100 and not (metadata.n in (1, 2, 3))' --format jsonl.zst", needs="tag parquet"),
    "convert function": Case("convert raw/pages --to made --function clean.py:halves --source web", everywhere=True),
    "transform": Case("transform v0 --function clean.py:shorten --to rewritten --where @rule", needs="tag", everywhere=True),
    "transform documents": Case("transform v0 --function clean.py:without_language --to changed --format parquet"),
    "mix packed": Case("mix v0 --to mix/packed --where @rule --max-size 20000 --format jsonl.gz", needs="tag", everywhere=True),
    "mix packed zstd": Case("mix v0 --to mix/packed_zstd --max-size 30000 --format jsonl.zst --name piece"),
    "mix shuffled": Case("mix v0 --to mix/shuffled --shuffle --seed 3 --max-size 20000 --format jsonl.gz", everywhere=True, kills=(2, 8, 15)),
    "mix filters": Case("""mix v0 --to mix/jsonpath --include '$.attributes[?(@.@count[0][2] > 20)]' '$.metadata[?(@.n < 9)]' --exclude "$.metadata[?(@.language == 'fr')]" --attributes gopher_v2""", needs="tag"),
    "mix jq": Case("""mix v0 --to mix/jq --syntax jq --include '.attributes.@count[0][2] > 20' --exclude '.metadata.language == "fr"' --attributes gopher_v2""", needs="tag"),
    "mix replaced": Case("mix v0 --to mix/replaced --replace @email --attributes pii --min-text-length 20 --discard-fields big --provenance", everywhere=True),
    "mix merged": Case("mix v0 --to mix/merged --merge-attributes --attributes char_length_v1 pii --where '@length < 700'", needs="tag"),
    "mix sampled": Case("mix v0 --to mix/sampled --sample 2.5 --seed 1"),
    "mix sampled less": Case("mix v0 --to mix/less --sample 0.3 --where \"source != 'web'\""),
    "mix downsampled": Case("mix v0 --to mix/drawn --where @rule --downsample books=0.4 web=6000 --by source --unit bytes --seed 2", needs="tag", everywhere=True),
    "mix downsampled tokens": Case("mix v0 --to mix/tokens --downsample 2000 --by metadata.language --unit tokens --shards 3 --format jsonl.gz @outputs=drawn"),
    "mix budgeted": Case("mix v0 --to mix/budgeted --where @rule --budget web=70% books=30% --max-epochs 3 --unit bytes --seed 2 @outputs=epochs", needs="tag", everywhere=True),
    "mix block": Case("mix v0 --to mix/blocked --block lists/blocked.csv.gz --allow lists/allowed.jsonl"),
    "mix duplicates": Case("mix v0 --to mix/unique --where 'exact is None and takedown is None'", needs="dedupe, block"),
    "mix thresholds": Case("mix v0 --to mix/bounds --thresholds v0/quantiles/language.regular.json", needs="quantiles level"),
    "mix bad": Case("mix bad --to mix/bad --where '@length > 100' @budget", needs="tag bad", everywhere=True),
    "mix side": Case("mix v0 --to side/v1 --where @rule @outputs=side", needs="tag", everywhere=True),
    "mix tokens only": Case("""mix v0 --where "source != 'books'" @outputs=alone"""),
    "mix shuffled side": Case("mix v0 --to stirred/v1 --format jsonl.gz --shuffle @outputs=stirred", everywhere=True),
    "mix toolkit": Case("-c mixer.yaml mix", needs="tag experiment", everywhere=True),
    "ragged": Case("ragged v0 tokens/ragged @tokenizer --eos '<|endoftext|>' --where @rule", needs="tag", everywhere=True),
    "ragged c4": Case("ragged c4 tokens/c4 @tokenizer --bos '<|padding|>'", needs="convert c4"),
    "ragged name": Case("ragged many tokens/many @tokenizer --name many", needs="convert texts, convert tar, convert table"),
    "ragged bad": Case("ragged bad tokens/bad @tokenizer @budget"),
    "hdf5": Case("hdf5 v0 h5/packed @tokenizer @rows 48 --max-rows-per-file 100", everywhere=True, kills=(2, 7, 14)),
    "hdf5 unpacked": Case("""hdf5 v0 h5/unpacked @tokenizer @rows 32 --no-pack-sequences --min-sequence-len 6 --short-seq-prob 0.1 --where "source == 'web'" --seed 5""", everywhere=True),
    "hdf5 cleaned": Case("hdf5 many h5/cleaned @tokenizer @rows 64 --use-ftfy --wikitext-detokenize --split-text-to-tokenize --chunk-len-to-split 200 --tail drop --inverted-mask", needs="convert texts, convert tar, convert table"),
    "hdf5 modelzoo": Case("hdf5 c4 h5/modelzoo @tokenizer @rows 40 --compat modelzoo-2.2 --short-seq-prob 0.2 --no-pack-sequences", needs="convert c4"),
    "hdf5 raw": Case("hdf5 LMData --params zoo.yaml", everywhere=True),
    "hdf5 raw unpacked": Case("hdf5 LMData --params zoo.yaml --input_dir raw/texts --output_dir zoo2 --pack_sequences False --max_seq_length 32 --jsonl_key text"),
    "hdf5 bad": Case("hdf5 bad h5/bad @tokenizer @rows 48 @budget"),
    "validate": Case("validate pages", needs="convert pages", everywhere=True),
    "validate against": Case("validate v1 --against v0", needs="mix"),
    "validate problems": Case("validate v0 --attributes pii"),
    "validate sampled": Case("validate v0 --sample 0.5 --seed 2 --attributes gopher_v2", needs="tag"),
    "validate bad": Case("validate bad", needs="tag bad, dedupe bad"),
    "run": Case("run pipeline.yaml", everywhere=True),
    "report": Case("report v1 --to reports/v1.html", needs="mix"),
}
# fmt: on


class Session:
    """A process that calls the console script's function once per command, with a folder of its own as the current one."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        folder.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, __file__, "--session"]
        self._process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )

    def run(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Return the exit status, standard output and standard error of a command."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([*words, *self.options, "--json"]).encode() + b"\n")
        self._process.stdin.flush()
        status, out, err = json.loads(self._process.stdout.readline())
        return status, out, err

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def environment(**more: str) -> dict[str, str]:
    """Return the environment of commands: no colours and no narrow terminal."""
    return {**os.environ, "COLUMNS": "400", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore", **more}


def serve() -> None:
    """Run the commands that come as JSON lines on standard input (the process behind `Session`)."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    (script,) = entry_points(group="console_scripts", name="dolma-dask")
    command = script.load()
    for line in sys.stdin:
        sys.argv = ["dolma-dask", *json.loads(line)]
        out, err, status = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = command() or 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(bool(end.code))
        answers.write(json.dumps([status, out.getvalue(), err.getvalue()]) + "\n")
        answers.flush()


def hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of every content file below a folder."""
    found = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name == "_quarantine" or name[0] not in "_"]
        for name in names:
            path = Path(where, name)
            found[path.relative_to(folder).as_posix()] = hash_of(path, folder)
    return dict(sorted(found.items()))


def hash_of(path: Path, folder: Path) -> str:
    """Return the sha256 of a file, with the place of the whole world left out of it; of a report only that it is there."""
    if "report" in path.as_posix().removeprefix(folder.as_posix()):
        return "(there)"
    data = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        data = data.replace(str(folder).encode(), b"{here}")
    return hashlib.sha256(data).hexdigest()


TIMES = ("seconds", "started", "ended", "line")
TEXTS = ("notes", "message", "expected", "found")


def split_summary(value: Any, texts: list[str]) -> Any:
    """Return a summary without times, and put the texts for people that stand in it into `texts`."""
    if isinstance(value, dict):
        if value.get("verb") == "report":  # a page is no content
            return {"verb": "report"}
        for key in TEXTS:
            found = value.get(key) or []
            texts += [found] if isinstance(found, str) else [str(item) for item in found]
        return {
            key: split_summary(item, texts)
            for key, item in value.items()
            if key not in TEXTS and key not in TIMES
        }
    if isinstance(value, list):
        return [split_summary(item, texts) for item in value]
    return value


def lines_of(name: str, session: Session, before: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Run a case; return its lines, and the hashes of all files after it."""
    status, out, err = session.run(CASES[name].words)
    out = out.replace(str(session.folder), "{here}")
    texts: list[str] = []
    try:
        summary = split_summary(json.loads(out), texts)
    except ValueError:
        summary = None
        texts += out.splitlines()
    if status not in (0, 1) or summary is None:
        texts += err.replace(str(session.folder), "{here}").splitlines()
    after = hashes(session.folder)
    lines = [f"{name} > exit {status} {json.dumps(summary, ensure_ascii=False, sort_keys=True)}"]
    lines += [f"{name} | {path} | {digest}" for path, digest in after.items() if before.get(path) != digest]
    lines += [f"{name} | {path} | removed" for path in before if path not in after]
    return lines + [f'{name} " {" ".join(text.split())}' for text in dict.fromkeys(texts)], after


def with_needs(names: Iterable[str]) -> list[str]:
    """Return cases and those that they need, in the order of `CASES`."""
    wanted: set[str] = set()

    def add(name: str) -> None:
        for other in CASES[name].needed:
            add(other)
        wanted.add(name)

    for name in names:
        add(name)
    return [name for name in CASES if name in wanted]


def run_cases(session: Session, names: Sequence[str]) -> dict[str, list[str]]:
    """Run cases in a fresh world; return the lines of each."""
    subprocess.run([sys.executable, __file__, "--make-world"], cwd=session.folder, check=True)
    before, lines = hashes(session.folder), {}
    for name in with_needs(names):
        lines[name], before = lines_of(name, session, before)
    session.close()
    return lines


SLOW_DISK = "import os, time\nfsync = os.fsync\ndef slow(file):\n    time.sleep(0.04)\n    fsync(file)\nos.fsync = slow\n"


def kill_and_resume(root: Path, name: str) -> tuple[list[str], int]:
    """Run a case in a fresh world, killed several times, then to its end; return its lines, and how many runs were killed before theirs."""
    session = Session(root / name.replace(" ", "_") / "world", "--scheduler", "synchronous")
    (root / "slow").mkdir(exist_ok=True)
    (root / "slow/sitecustomize.py").write_text(SLOW_DISK)
    subprocess.run([sys.executable, __file__, "--make-world"], cwd=session.folder, check=True)
    before, killed = hashes(session.folder), 0
    script = str(Path(sys.executable).with_name("dolma-dask"))
    for files in CASES[name].kills:
        known = set(walk(session.folder))
        seen: set[str] = set()
        process = subprocess.Popen(
            [script, *CASES[name].words, *session.options],
            cwd=session.folder,
            env=environment(PYTHONPATH=str(root / "slow")),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while process.poll() is None and len(seen) < files:
            seen |= set(walk(session.folder)) - known
            time.sleep(0.002)
        killed += process.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = lines_of(name, session, before)[0]
    session.close()
    return lines, killed


def walk(folder: Path) -> Iterator[str]:
    """Yield the paths of all files below a folder."""
    for where, _, names in os.walk(folder):
        yield from (f"{where}/{name}" for name in names)


def of_kind(kinds: str, lines: Iterable[str]) -> list[str]:
    """Return the lines of some kinds: ``|`` names a file, ``>`` is a summary, ``"`` a text for people."""
    return [line for line in lines if line[re.search(r' [|>"] ', line).start() + 1] in kinds]  # type: ignore[union-attr]


def compare(found: dict[str, list[str]], expected: dict[str, list[str]], place: str, kinds: str) -> list[str]:
    """Return what differs between two places, as lines of a diff."""
    differences = []
    for name in found.keys() & expected.keys():
        ours, theirs = of_kind(kinds, found[name]), of_kind(kinds, expected[name])
        names = (f"{name}, synchronous", f"{name}, {place}")
        differences += difflib.unified_diff(theirs, ours, *names, lineterm="", n=0)
    return differences


def run_elsewhere(root: Path, names: Sequence[str], expected: dict[str, list[str]]) -> list[str]:
    """Run a part of the cases with threads, on a cluster, and killed; return what differs from the synchronous run."""
    some = [name for name in names if CASES[name].everywhere]
    killed = [name for name in names if CASES[name].kills]
    differences: list[str] = []
    if some:
        threads = run_cases(Session(root / "threads/world", "--scheduler", "threads", "--workers", "2"), some)
        differences += compare(threads, expected, "threads", "|>")
        differences += compare(run_on_cluster(root, some), expected, "cluster", "|>")
    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda name: kill_and_resume(root / "killed", name), killed)
        for name, (lines, times) in zip(killed, runs, strict=True):
            differences += compare({name: lines}, expected, f"killed {times} times", "|")
            if not times:
                differences.append(f"{name}: every run ended before it was killed; the disk must be slower")
    return differences


def run_on_cluster(root: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Run cases on two worker processes that all of them share; a pipeline starts a cluster of its own."""
    from distributed import LocalCluster

    own = [name for name in names if name == "run"]
    shared = [name for name in names if name not in own]
    lines = {}
    if own:
        session = Session(root / "cluster/own/world", "--scheduler", "cluster", "--workers", "2")
        lines |= run_cases(session, own)
    if shared:
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            session = Session(root / "cluster/world", "--scheduler", cluster.scheduler_address)
            lines |= run_cases(session, shared)
    return lines


def main() -> int:
    """Return the exit status of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the lines there")
    parser.add_argument("--check", type=Path, metavar="FILE", help="compare with these lines")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="CASE", help="cases, as shell patterns")
    parser.add_argument("--quick", action="store_true", help="without threads, cluster and kills")
    parser.add_argument("--wording", action="store_true", help="compare texts for people too")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="an empty folder for the files, to look at them"
    )
    parser.add_argument("--session", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--make-world", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.session:
        serve()
        return 0
    if options.make_world:
        make_world()
        return 0
    names = [name for name in CASES if any(fnmatch.fnmatchcase(name, pattern) for pattern in options.only)]
    with contextlib.ExitStack() as stack:
        root = (options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        first = run_cases(Session(root / "synchronous/world", "--scheduler", "synchronous"), names)
        differences = [] if options.quick else run_elsewhere(root, names, first)
    lines = [line for name in names for line in first[name]]
    if options.write:
        options.write.write_text("".join(f"{line}\n" for line in lines))
    elif options.check:
        starts = tuple(f"{name} {kind} " for name in names for kind in '|>"')
        baseline = [line for line in options.check.read_text().splitlines() if line.startswith(starts)]
        if not options.wording:
            baseline, lines = of_kind("|>", baseline), of_kind("|>", lines)
        differences = [
            *difflib.unified_diff(baseline, lines, str(options.check), "now", lineterm="", n=0),
            *differences,
        ]
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    counted = f"{len(names)} cases, {len(of_kind('|', lines))} files: no difference"
    sys.stderr.write("\n".join(differences or [counted]) + "\n")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
