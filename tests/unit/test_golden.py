"""The bytes of every stage, tagger and writer for a fixed input, beside their versions: output never changes unnoticed.

When a test here fails, it prints the line to write into `GOLDEN`. If the digest changed and no version did, raise the version first: finished work
is known by it, and without a new one old and new outputs would be mixed without a word.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import pre_tokenizers

import dolma_dask as dk
from dolma_dask.formats import ragged as ragged_format
from dolma_dask.formats import token_files
from dolma_dask.minhash import schemes
from dolma_dask.minhash.schemes import Scheme
from dolma_dask.outputs import cutting as mix_packing
from dolma_dask.outputs import dropped as mix_dropped
from dolma_dask.outputs import packed_tokens
from dolma_dask.outputs.hdf5 import job as hdf5_packing
from dolma_dask.reading.kept import transform as mix_transform
from dolma_dask.sinks.documents import open_writer
from dolma_dask.sources import base as sources
from dolma_dask.sources import functions
from dolma_dask.taggers.registry import built_in
from dolma_dask.testing.archives import warc_record
from dolma_dask.testing.taggers import can_be_called
from dolma_dask.verbs import attach, reshard, signals
from dolma_dask.verbs.block import job as block_run
from dolma_dask.verbs.convert import attributes as convert_attributes
from dolma_dask.verbs.convert import verb as convert
from dolma_dask.verbs.dedupe import job as dedupe_run
from dolma_dask.verbs.dedupe.bloom import filters as dedupe_bloom
from dolma_dask.verbs.dedupe.fuzzy import job as dedupe_fuzzy
from dolma_dask.verbs.dedupe.fuzzy.signatures import read_signatures
from dolma_dask.verbs.dedupe.paragraphs import job as dedupe_paragraphs
from dolma_dask.verbs.filter import job as filter_run
from dolma_dask.verbs.mix import downsampling
from dolma_dask.verbs.quantiles import job as quantile_run
from dolma_dask.verbs.tag import output as tag
from dolma_dask.verbs.transform import verb as transform
from dolma_dask.verbs.validate import shard as validation_shard


class Golden(NamedTuple):
    """Versions of an output, and its digest when they were last raised."""

    versions: dict[str, int | str]
    digest: str


GOLDEN = {
    "dedupe fuzzy": Golden(
        versions={"verbs.dedupe.fuzzy.job.VERSION": 2, "minhash.schemes.VERSION": 1},
        digest="2d936630240b3d3e283e2b58308f3cfe",
    ),
    "dedupe exact chosen": Golden(
        versions={"verbs.dedupe.job.VERSION": 3}, digest="f52f9d1dd8715199633ef954fc037a7c"
    ),
    "dedupe fuzzy chosen": Golden(
        versions={"verbs.dedupe.fuzzy.job.VERSION": 2, "minhash.schemes.VERSION": 1},
        digest="3a656a2182161f92467c521e0c817303",
    ),
    "signatures datasketch": Golden(
        versions={"minhash.schemes.VERSION": 1}, digest="4fc96f20fb62eaf10f568ae7578913ac"
    ),
    "signatures datasketch_legacy": Golden(
        versions={"minhash.schemes.VERSION": 1}, digest="9b0f2a30e4c8b73c775fe17bc663c358"
    ),
    "signatures dolma_dask": Golden(
        versions={"minhash.schemes.VERSION": 1}, digest="14a3503c2a98b0282ceb50972785ba7f"
    ),
    "signatures redpajama_v2": Golden(
        versions={"minhash.schemes.VERSION": 1}, digest="89489776465f2492a03420cc8d671b1c"
    ),
    "attach": Golden(versions={"verbs.attach.VERSION": 1}, digest="ef35002028d341e9caf5dcd74aef8c74"),
    "block": Golden(versions={"verbs.block.job.VERSION": 3}, digest="c1158d6674f273d6b49aa40e5dcfe699"),
    "convert lines": Golden(
        versions={"verbs.convert.verb.VERSION": 2, "sources.base.CONVERTER_VERSION": 2},
        digest="a43f2e126e07c65ccb95e0372f159d49",
    ),
    "convert others": Golden(
        versions={"verbs.convert.verb.VERSION": 2, "sources.base.CONVERTER_VERSION": 2},
        digest="f02858491e6b6988974c9a68c65b5975",
    ),
    "convert parquet": Golden(
        versions={"verbs.convert.verb.VERSION": 2, "sources.base.CONVERTER_VERSION": 2},
        digest="383bd3562771976e1a096633b9f5e336",
    ),
    "convert texts": Golden(
        versions={"verbs.convert.verb.VERSION": 2, "sources.base.CONVERTER_VERSION": 2},
        digest="f02360a4c531fba335813502e255da73",
    ),
    "convert_attributes": Golden(
        versions={"verbs.convert.attributes.VERSION": 2}, digest="3ce22343e1f4f9fd251f4c561897b7b9"
    ),
    "dedupe paragraphs": Golden(
        versions={"verbs.dedupe.paragraphs.job.VERSION": 2}, digest="bbeaca5dcb2ed4a121fde5498d029ac1"
    ),
    "bloom filter": Golden(
        versions={"verbs.dedupe.paragraphs.job.VERSION": 2, "verbs.dedupe.bloom.filters.VERSION": 1},
        digest="6a7b156ff8ebab3c94d262af7782a247",
    ),
    "dedupe": Golden(versions={"verbs.dedupe.job.VERSION": 3}, digest="b05514696f78a37094195c9537cd3dfb"),
    "filter": Golden(versions={"verbs.filter.job.VERSION": 1}, digest="39c144f83ac54c314a037182a804a06d"),
    "gzip members": Golden(
        versions={
            "verbs.convert.verb.VERSION": 2,
            "sources.base.CONVERTER_VERSION": 2,
            "verbs.tag.VERSION": 3,
            "reading.kept.transform.VERSION": 4,
        },
        digest="57e662a745a93e6ef592f1c987437b3c",
    ),
    "hdf5": Golden(versions={"outputs.hdf5.job.VERSION": 2}, digest="2bdac7b295d97cbb4b5bd9136861d11d"),
    "convert function": Golden(
        versions={
            "verbs.convert.verb.VERSION": 2,
            "sources.base.CONVERTER_VERSION": 2,
            "sources.functions.FUNCTION_VERSION": 1,
        },
        digest="3ebfab0fb7bc90b0db6a99e6106088a2",
    ),
    "transform": Golden(
        versions={"verbs.transform.verb.VERSION": 1, "reading.kept.transform.VERSION": 4},
        digest="db509292fa9c9a3fa7acc342197563e4",
    ),
    "mix": Golden(versions={"reading.kept.transform.VERSION": 4}, digest="8a4f48b2a4ac1a15840eb819e9e9907f"),
    "mix dropped": Golden(
        versions={"outputs.dropped.VERSION": 1, "reading.kept.transform.VERSION": 4},
        digest="3bf66b1440895e2a26c5e67e6a2897cb",
    ),
    "mix budgeted": Golden(
        versions={
            "reading.kept.transform.VERSION": 4,
            "outputs.cutting.PACKING_VERSION": 1,
            "verbs.mix.downsampling.VERSION": 1,
        },
        digest="f43db80bfd7a3f2a7d6efe6480540dbc",
    ),
    "mix packed": Golden(
        versions={"reading.kept.transform.VERSION": 4, "outputs.cutting.PACKING_VERSION": 1},
        digest="6619b9aecda8a39807e86173982acb26",
    ),
    "quantiles": Golden(
        versions={"verbs.quantiles.job.VERSION": 1, "verbs.quantiles.job.THRESHOLDS_VERSION": 2},
        digest="d8993da1e5015e60682a5b87cedf7e7c",
    ),
    "ragged": Golden(
        versions={"formats.token_files.FORMATS.numpy.version": 2, "formats.ragged.SIDECAR_VERSION": 1},
        digest="ded909763e8a4c2e3b2dd7c459810f34",
    ),
    "ragged datatrove": Golden(
        versions={"formats.token_files.FORMATS.datatrove.version": 2},
        digest="4968ecb80326c5b3773a9c32a7162a65",
    ),
    "ragged dolma": Golden(
        versions={"formats.token_files.FORMATS.dolma.version": 2}, digest="2af82a40bf2cf0a79cc3ef98e249abed"
    ),
    "ragged mds": Golden(
        versions={"formats.token_files.FORMATS.mds.version": 2}, digest="61fd040f6e12722cfb096115c230c458"
    ),
    "ragged megatron": Golden(
        versions={"formats.token_files.FORMATS.megatron.version": 2},
        digest="18f5b4df3879c3792edfed18af1b969a",
    ),
    "ragged shuffled": Golden(
        versions={"outputs.packed_tokens.VERSION": 2, "formats.token_files.FORMATS.dolma.version": 2},
        digest="238de8b2137125431bf775c89ad0f2cf",
    ),
    "reshard": Golden(versions={"verbs.reshard.VERSION": 2}, digest="0d30100385892d72d248d2afdefac335"),
    "signals": Golden(versions={"verbs.signals.VERSION": 1}, digest="91702512addeedd22cd13f2d42b816c3"),
    "validate": Golden(
        versions={"verbs.validate.shard.VERSION": 1}, digest="bb10989304d8bb9c755bd19fcfe206ae"
    ),
}

TAGGERS = Path(__file__).with_name("golden_taggers.json")
"""The same of each tagger shipped. ``GOLDEN=write`` in the environment adds those that are new or whose version was raised."""

GOLDEN |= {f"tag {name}": Golden(**golden) for name, golden in json.loads(TAGGERS.read_text("utf-8")).items()}


def current_versions() -> dict[str, dict[str, int | str]]:
    """Return the versions that decide each output, by the name that must be raised."""
    conversion = {
        "verbs.convert.verb.VERSION": convert.VERSION,
        "sources.base.CONVERTER_VERSION": sources.CONVERTER_VERSION,
    }
    tagging = {"verbs.tag.VERSION": tag.VERSION}
    return {
        "convert lines": conversion,
        "convert texts": conversion,
        "convert parquet": conversion,
        "convert others": conversion,
        **{
            f"tag {name}": {**tagging, f"{name}.version": known.version}
            for name, known in built_in().items()
            if can_be_called(name)
        },
        "convert_attributes": {"verbs.convert.attributes.VERSION": convert_attributes.VERSION},
        "attach": {"verbs.attach.VERSION": attach.VERSION},
        "signals": {"verbs.signals.VERSION": signals.VERSION},
        "dedupe": {"verbs.dedupe.job.VERSION": dedupe_run.VERSION},
        "dedupe paragraphs": {"verbs.dedupe.paragraphs.job.VERSION": dedupe_paragraphs.VERSION},
        "bloom filter": {
            "verbs.dedupe.paragraphs.job.VERSION": dedupe_paragraphs.VERSION,
            "verbs.dedupe.bloom.filters.VERSION": dedupe_bloom.VERSION,
        },
        "dedupe fuzzy": {
            "verbs.dedupe.fuzzy.job.VERSION": dedupe_fuzzy.VERSION,
            "minhash.schemes.VERSION": schemes.VERSION,
        },
        "dedupe exact chosen": {"verbs.dedupe.job.VERSION": dedupe_run.VERSION},
        "dedupe fuzzy chosen": {
            "verbs.dedupe.fuzzy.job.VERSION": dedupe_fuzzy.VERSION,
            "minhash.schemes.VERSION": schemes.VERSION,
        },
        **{
            f"signatures {scheme}": {"minhash.schemes.VERSION": schemes.VERSION}
            for scheme in get_args(Scheme)
        },
        "block": {"verbs.block.job.VERSION": block_run.VERSION},
        "quantiles": {
            "verbs.quantiles.job.VERSION": quantile_run.VERSION,
            "verbs.quantiles.job.THRESHOLDS_VERSION": quantile_run.THRESHOLDS_VERSION,
        },
        "filter": {"verbs.filter.job.VERSION": filter_run.VERSION},
        "validate": {"verbs.validate.shard.VERSION": validation_shard.VERSION},
        "mix": {"reading.kept.transform.VERSION": mix_transform.VERSION},
        "mix dropped": {
            "outputs.dropped.VERSION": mix_dropped.VERSION,
            "reading.kept.transform.VERSION": mix_transform.VERSION,
        },
        "mix packed": {
            "reading.kept.transform.VERSION": mix_transform.VERSION,
            "outputs.cutting.PACKING_VERSION": mix_packing.PACKING_VERSION,
        },
        "mix budgeted": {
            "reading.kept.transform.VERSION": mix_transform.VERSION,
            "outputs.cutting.PACKING_VERSION": mix_packing.PACKING_VERSION,
            "verbs.mix.downsampling.VERSION": downsampling.VERSION,
        },
        "transform": {
            "verbs.transform.verb.VERSION": transform.VERSION,
            "reading.kept.transform.VERSION": mix_transform.VERSION,
        },
        "convert function": {**conversion, "sources.functions.FUNCTION_VERSION": functions.FUNCTION_VERSION},
        "hdf5": {"outputs.hdf5.job.VERSION": hdf5_packing.VERSION},
        **{
            f"ragged {name}": {
                f"formats.token_files.FORMATS.{name}.version": token_files.FORMATS[name].version
            }
            for name in OF_TRAINERS
        },
        "ragged": {
            "formats.token_files.FORMATS.numpy.version": token_files.FORMATS["numpy"].version,
            "formats.ragged.SIDECAR_VERSION": ragged_format.SIDECAR_VERSION,
        },
        "ragged shuffled": {
            "outputs.packed_tokens.VERSION": packed_tokens.VERSION,
            "formats.token_files.FORMATS.dolma.version": token_files.FORMATS["dolma"].version,
        },
        "reshard": {"verbs.reshard.VERSION": reshard.VERSION},
        "gzip members": {**conversion, **tagging, "reading.kept.transform.VERSION": mix_transform.VERSION},
    }


OF_TRAINERS = [name for name in token_files.FORMATS if name not in ("numpy", "parquet")]
"""Formats of token files whose bytes are ours: Parquet names the release of its library."""

FIXED_TEXTS = (
    "",
    " ",
    "\n\n",
    "One sentence, with words and a full stop. And another one!",
    "- a list\n- of things\n* with bullets\n\u2022 of all kinds…\nand an ellipsis...\n",
    "the cat sat on the mat the cat sat on the mat the cat sat on the mat\nthe cat sat on the mat\n\nthe cat sat on the mat",
    "na\u00efve e\u0301 \u0130stanbul Stra\u00dfe \u4e2d\u6587\u5b57 \u65e5\u672c\u8a9e \u05e9\u05dc\u05d5\u05dd \u0e44\u0e17\u0e22 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "white\u00a0space\u2003of\u3000all\u2028kinds\u2029and\x85ends\x0b\x0c\x1c\r\nhere\tthere",
    'controls \x00 \x01 \x1b[0m \x7f \ufeff \ufffe \U0010ffff and \\ " / escapes \\u0041',
    "### $$$ {}[]() 12345 3.14 1e9 https://example.org/?a=1&b=<c> a_b-c",
)


def texts() -> list[str]:
    """Return the fixed texts and 200 made of the same words by a linear congruential generator."""
    words = " ".join(FIXED_TEXTS).split(" ")
    state, made = 12345, []
    for _ in range(200):
        chosen = []
        for _ in range(state % 90):
            state = (state * 1103515245 + 12345) % 2**31
            chosen.append(words[state % len(words)] + ("\n" if state % 11 == 0 else " "))
        state = (state * 1103515245 + 12345) % 2**31
        made.append("".join(chosen))
    return [*FIXED_TEXTS, *made]


def lines(number: int = 0) -> bytes:
    """Return documents as JSON lines, in the ways that others write them."""
    rows = []
    for row, text in enumerate(texts()):
        document = {"id": f"d{number}-{row}", "text": text, "source": ("web", "w\u00efki")[row % 2]}
        if row % 3 == 0:
            document |= {
                "added": "2024-01-01",
                "metadata": {"n": row, "big": 12345678901234567890, "x": [1.5, None]},
            }
        rows.append(
            json.dumps(document, ensure_ascii=row % 4 == 0, separators=((",", ":"), (", ", ": "))[row % 2])
            + "\n"
        )
    return "".join(rows).encode()


def write_tokenizer(path: Path) -> None:
    """Write a byte-level BPE tokenizer with two merges by hand: no library decides its bytes."""
    names = ["<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 0, "content": "<eos>", **flags}],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {name: index for index, name in enumerate(names)},
            "merges": [["t", "h"], ["th", "e"]],
        },
    }
    path.write_text(json.dumps(content, ensure_ascii=False, sort_keys=True), encoding="utf-8")


def write_raw(folder: Path) -> None:
    """Write raw files of several kinds."""
    for name in ("lines", "texts", "parquet", "others"):
        (folder / name).mkdir(parents=True)
    records = [
        {"url": f"u{row}", "text": text, "timestamp": "2020-01-01"} for row, text in enumerate(texts())
    ]
    (folder / "lines/c4.00000-of-00002.json").write_text(
        "".join(json.dumps(record) + "\n" for record in records)
    )
    for row, text in enumerate(texts()[:40]):
        (folder / f"texts/{row:03d}.txt").write_bytes(text.replace("\x00", "").encode())
    pq.write_table(
        pa.table({"id": [str(row) for row in range(50)], "text": texts()[:50], "n": [1.5] * 50}),
        folder / "parquet/p.parquet",
    )
    rows = [f'{row},"{text.replace(chr(34), "")}"\r\n' for row, text in enumerate(texts()[:20])]
    (folder / "others/t.csv").write_bytes("".join(["id,text\r\n", *rows]).replace("\x00", "").encode())
    head = (
        "From a Mon Jan  1 12:00:00 2024\nSubject: =?latin-1?q?caf=E9?=\nDate: Mon, 1 Jan 2024 12:00:00 +0100"
    )
    (folder / "others/l.mbox").write_text(f"{head}\n\n>From me\n\n{head}\nMessage-ID: <1@x>\n\nto you\n")
    known = {"content_type": "text/plain", "warc_target_uri": "http://www.a.org/?b=1&a=2"}
    record = warc_record("conversion", texts()[0].replace("\x00", "").encode(), **known)
    (folder / "others/w.wet").write_bytes(record + record)
    (folder / "others/latin.txt").write_bytes("a café of the west".encode("latin-1"))


def write_published(root: Path) -> None:
    """Write documents with published ids, their signals with some missing, and a table of duplicates."""
    ids = [f"2023-06/0000/en_head.json.gz/{row}" for row in range(30)]
    documents = [
        {"id": one, "text": text, "source": "web"} for one, text in zip(ids, texts()[:30], strict=True)
    ]
    signals = [
        {
            "id": one,
            "quality_signals": {
                "rps_doc_word_count": [[0, 9, row]],
                "rps_doc_ut1_blacklist": [[0, 9, None if row % 2 else 1.5]],
                "rps_lines_num_words": [[0, 4, row], [4, 9, 0.125]],
            },
        }
        for row, one in enumerate(ids)
        if row % 5
    ]
    for path, rows, suffix in (("rpv2/documents", documents, "jsonl"), ("tables", signals, "signals.json")):
        target = root / path / f"2023-06/0000/en_head.{suffix}"
        target.parent.mkdir(parents=True)
        target.write_text(
            "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows)
        )
    (root / "listed/2023-06/0000").mkdir(parents=True)
    pq.write_table(pa.table({"doc_id": ids[3::7]}), root / "listed/2023-06/0000/en_head.duplicates.parquet")


def _without_words(text: str) -> str | None:
    return text.replace("the ", "") if len(text) < 600 else None


def _halves(record):
    half = len(record["text"]) // 2
    record["created"] = record.pop("timestamp")
    return (
        []
        if half > 150
        else [record | {"text": record["text"][:half]}, {"text": record["text"][half:], "metadata": record}]
    )


@pytest.fixture(scope="module")
def outputs(once) -> dict[str, list[Path]]:
    """The files of each output; everything is run once."""
    return once("golden0", make_outputs)  # a name that a report holds


def make_outputs(root: Path) -> dict[str, list[Path]]:
    """Run everything; return the files of each output."""
    options = {"scheduler": "synchronous", "progress": False}
    write_raw(root / "raw")
    made = {}
    for name, more in (
        ("lines", {"mapping": "c4"}),
        ("texts", {"source": "s"}),
        ("parquet", {"source": "s"}),
        ("others", {"source": "s", "encoding": "auto"}),
    ):
        dk.convert(f"{root}/raw/{name}", to=f"{root}/{name}", format="jsonl", **more, **options)
        made[f"convert {name}"] = root / f"{name}/documents"
    for number in range(2):
        path = root / f"v0/documents/{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines(number))
    write_tokenizer(root / "tokenizer.json")
    taggers = [*filter(can_be_called, built_in())]
    dk.tag(f"{root}/v0", taggers, tokenizer=f"{root}/tokenizer.json", **options)
    made |= {f"tag {name}": root / f"v0/attributes/{name}" for name in taggers}
    dk.convert(f"{root}/v0", to=f"{root}/v0", attributes="gopher_v2", form="flat", rename="flat", **options)
    made["convert_attributes"] = root / "v0/attributes/flat"
    dk.dedupe(f"{root}/v0", keep="longest", **options)
    made["dedupe"] = root / "v0/attributes/exact"
    by_ngram = {"unit": "paragraph", "ngram": 2, "overlap": 0.3}
    dk.dedupe(f"{root}/v0", **by_ngram, bloom=f"{root}/filters/seen.bloom", **options)
    made |= {"dedupe paragraphs": root / "v0/attributes/paragraphs", "bloom filter": root / "filters"}
    dk.dedupe(f"{root}/v0", how="fuzzy", keep="longest", **options)
    made["dedupe fuzzy"] = root / "v0/attributes/fuzzy"
    for how in ("exact", "fuzzy"):
        choice = {"where": "source != 'web'", "within": "metadata.n", "keep": "newest", "rank": "added"}
        dk.dedupe(f"{root}/v0", how=how, **choice, name=f"chosen_{how}", **options)
        made[f"dedupe {how} chosen"] = root / f"v0/attributes/chosen_{how}"
    for scheme in get_args(Scheme):
        dk.dedupe(f"{root}/v0", how="fuzzy", scheme=scheme, ngram=3, name=scheme, **options)
        made[f"signatures {scheme}"] = root / "signed" / scheme
        (root / "signed" / scheme).mkdir(parents=True)
        for path in (root / "v0/signatures").glob(f"{scheme}-word3-*/*"):
            values = b"".join(values[valid].tobytes() for values, valid in read_signatures(str(path), 128))
            (root / "signed" / scheme / path.name).write_bytes(values)
    write_published(root)
    dk.attach(f"{root}/rpv2", f"{root}/tables", name="rps", **options)
    dk.attach(f"{root}/rpv2", f"{root}/listed", name="listed", **options)
    made["attach"] = root / "rpv2/attributes"
    dk.signals(f"{root}/rpv2", f"{root}/published", **options)
    made["signals"] = root / "published/2023-06"
    (root / "list.txt").write_text("d0-3\nweb\td1-4\nnobody\n")
    dk.block(f"{root}/v0", f"{root}/list.txt", name="takedown", **options)
    made["block"] = root / "v0/attributes/takedown"
    signals = ["gopher_v2__gopher_v2__word_count", "gopher_v2__gopher_v2__median_word_length"]
    both = {"word_count": "both"}
    dk.quantiles(
        f"{root}/v0", signals, by="source", level="regular", tails=both, attributes=["gopher_v2"], **options
    )
    made["quantiles"] = root / "v0/quantiles"
    dk.filter(f"{root}/v0", tails=both, attributes=["gopher_v2"], **options)
    made["filter"] = root / "v0/attributes/quality"
    (root / "checks").mkdir()
    found = dk.validate(f"{root}/{'lines'}", against=f"{root}/v0", to=f"{root}/checks/report.json", **options)
    assert found.exit_status == 1
    made["validate"] = root / "checks"
    rule = "gopher_v2__gopher_v2__word_count >= 10 and not source == 'web'"
    rule_of = {"where": rule, "attributes": ["gopher_v2"]}
    dk.mix(f"{root}/v0", to=f"{root}/v1", **rule_of, **options)
    made["mix"] = root / "v1/documents"
    dk.mix(f"{root}/v0", dropped=f"{root}/dropped", dropped_documents=True, **rule_of, **options)
    made["mix dropped"] = root / "dropped"
    dk.transform(f"{root}/v0", _without_words, to=f"{root}/rewritten", **rule_of, **options)
    made["transform"] = root / "rewritten/documents"
    dk.convert(
        f"{root}/raw/lines", to=f"{root}/made", function=_halves, source="s", format="jsonl", **options
    )
    made["convert function"] = root / "made/documents"
    dk.ragged(
        f"{root}/v0",
        f"{root}/tokens",
        tokenizer=f"{root}/tokenizer.json",
        **rule_of,
        bos="<eos>",
        eos="<eos>",
        **options,
    )
    made["ragged"] = root / "tokens"
    for name in OF_TRAINERS:
        to = root / f"tokens-{name}"
        dk.ragged(
            f"{root}/v0",
            to,
            tokenizer=f"{root}/tokenizer.json",
            **rule_of,
            eos="<eos>",
            format=name,
            **options,
        )
        made[f"ragged {name}"] = to
    shuffle = {
        "format": "dolma",
        "compat": "dolma-1.2",
        "shuffle": True,
        "max_size": 3000,
        "segment_before_tokenization": True,
    }
    dk.ragged(
        f"{root}/v0", root / "shuffled", tokenizer=f"{root}/tokenizer.json", eos="<eos>", **shuffle, **options
    )
    made["ragged shuffled"] = root / "shuffled"
    dk.reshard(root / "joined", sources=[f"{root}/shuffled"], rates=[1.5], max_size=7000, **options)
    made["reshard"] = root / "joined"
    packed = {
        "shuffle": True,
        "seed": 5,
        "max_size": 4000,
        "name": "part",
        "discard_fields": ["added"],
        "provenance": True,
    }
    cut = {"span": "$.attributes.exact", "min_score": 0.5, "replacement": "[{}]"}
    dk.mix(f"{root}/v0", to=f"{root}/packed", replace=[cut], attributes=["exact"], **packed, **options)
    made["mix packed"] = root / "packed/documents"
    epochs = {
        "budget": "web=80% w\u00efki=20%",
        "max_epochs": 3,
        "shuffle": True,
        "seed": 5,
        "max_size": 4000,
    }
    dk.mix(f"{root}/v0", to=f"{root}/budgeted", **epochs, **options)
    made["mix budgeted"] = root / "budgeted/documents"
    dk.hdf5(
        f"{root}/v0",
        f"{root}/h5",
        tokenizer=f"{root}/tokenizer.json",
        **rule_of,
        eos="<eos>",
        max_seq_length=64,
        max_rows_per_file=300,
        **options,
    )
    made["hdf5"] = root / "h5"
    with open_writer(str(root / "gz"), "x.jsonl.gz") as writer:
        for number in range(60):
            writer.write(pa.array(lines(number).splitlines(keepends=True), pa.large_binary()))
    made["gzip members"] = root / "gz"
    return {
        name: sorted(  # segments are Parquet, of which each version of pyarrow writes its own bytes
            path
            for path in folder.rglob("*")
            if not {"_journal", "_segments"} & set(path.parts) and path.is_file()
        )
        for name, folder in made.items()
    }


@pytest.mark.parametrize("name", sorted(current_versions()))
def test_output_changes_only_with_its_version(name, outputs):
    digest = hashlib.sha256()
    assert outputs[name]
    for path in outputs[name]:
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    versions = current_versions()[name]
    found = Golden(versions, digest.hexdigest()[:32])
    golden = GOLDEN.get(name)
    if golden is not None and golden.versions == versions and golden.digest != found.digest:
        pytest.fail(
            f"{name} writes other bytes than before: raise the version of what changed ({', '.join(versions)}; for a writer those of all "
            "stages that write through it), and run this test again."
        )
    if golden != found and name.startswith("tag ") and os.environ.get("GOLDEN") == "write":
        known = json.loads(TAGGERS.read_text("utf-8")) | {name.removeprefix("tag "): found._asdict()}
        TAGGERS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
    elif golden != found:
        pytest.fail(f"the versions of {name} changed; write into GOLDEN:\n    {name!r}: {found!r},")


def test_every_golden_output_is_made(outputs):
    known = {name for name in GOLDEN if can_be_called(name.removeprefix("tag "))}
    assert sorted(known) == sorted(outputs)
