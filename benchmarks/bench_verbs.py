"""The verbs on whole files, in one process, past start-up: .jsonl.gz in, .jsonl.gz (or .npy) out."""

import os
from pathlib import Path
from typing import Any

import dolma_dask as dk
from benchmarks.corpus import Corpus, shared_folder
from benchmarks.harness import Goal, Job, benchmark

TAGGERS = ["char_length_v1", "whitespace_tokenizer_v1", "gopher_v2"]
OPTIONS: dict[str, Any] = {"scheduler": "synchronous", "overwrite": True, "progress": False}
WORDS = "gopher_v2__gopher_v2__word_count >= 50"
LENGTH = "char_length_v1__char_length_v1__length >= 300"


def linked(job: Job, name: str, times: int = 1) -> str:
    """Return a new dataset with the documents of `name`, `times` over, without attributes: hard links in the scratch folder."""
    root = job.scratch / f"{name}-{times}"
    for path in map(Path, job.corpus.files(name)):
        for copy in range(times):
            target = (
                root / "documents" / f"copy-{copy}" / path.name
                if times > 1
                else root / "documents" / path.name
            )
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)
    return str(root)


@benchmark("convert", beside="convert-same")
def convert(job: Job) -> None:
    """Records with other field names to documents, one Python record each."""
    _convert(
        job,
        job.corpus.dataset("raw"),
        id="doc_id",
        text="content",
        source_field="meta.set",
        created="timestamp",
    )


@benchmark("convert-same")
def convert_same(job: Job) -> None:
    """Records that are documents already."""
    _convert(job, job.corpus.dataset("all/documents"))


def _convert(job: Job, folder: str, **mapping: Any) -> None:
    dk.convert(f"{folder}/part-0.jsonl.gz", to=str(job.scratch / "warm"), **mapping, **OPTIONS)
    with job.measured(job.corpus.text_mb):
        done = dk.convert(folder, to=str(job.scratch / "v0"), **mapping, **OPTIONS)
    assert done.counts["documents_out"] == job.corpus.documents


@benchmark("tag", goal=Goal("speed", 50))
def tag(job: Job) -> None:
    """char_length_v1, whitespace_tokenizer_v1 and gopher_v2, an attribute file for each."""
    _tag(job)


@benchmark("tag-one-set", goal=Goal("speed", 50))
def tag_one_set(job: Job) -> None:
    """The same into one attribute file."""
    _tag(job, experiment="all")


def _tag(job: Job, **options: Any) -> None:
    warm, dataset = linked(job, "warm"), linked(job, "all")
    dk.tag(warm, TAGGERS, **options, **OPTIONS)
    with job.measured(job.corpus.text_mb):
        done = dk.tag(dataset, TAGGERS, **options, **OPTIONS)
    assert done.counts["documents_in"] == job.corpus.documents


def tagged(job: Job, name: str) -> str:
    """Return a dataset of the corpus with its attributes; they are made once."""
    root = job.corpus.dataset(name)
    dk.tag(root, TAGGERS, scheduler="synchronous", progress=False)
    return root


@benchmark("mix", goal=Goal("speed", 80))
def mix(job: Job) -> None:
    """One rule over an attribute set with 19 keys (gopher_v2)."""
    _mix(job, WORDS)


@benchmark("mix-one-key", goal=Goal("speed", 80))
def mix_one_key(job: Job) -> None:
    """One rule over an attribute set with one key (char_length_v1)."""
    _mix(job, LENGTH)


def _mix(job: Job, where: str) -> None:
    warm, dataset = tagged(job, "warm"), tagged(job, "all")
    dk.mix(warm, to=str(job.scratch / "warm"), where=where, **OPTIONS)
    with job.measured(job.corpus.text_mb):
        done = dk.mix(dataset, to=str(job.scratch / "v1"), where=where, **OPTIONS)
    assert done.counts["documents_in"] == job.corpus.documents > done.counts["documents_out"] > 0


@benchmark("mix-budget", beside="mix")
def mix_budget(job: Job) -> None:
    """A budget of words by the counts of gopher_v2: all documents are read twice, and each is written about once."""
    warm, dataset = tagged(job, "warm"), tagged(job, "all")
    more: dict[str, Any] = {"by": "source", "unit": WORDS.partition(" ")[0]}
    dk.mix(warm, to=str(job.scratch / "warm"), tokens=100, **more, **OPTIONS)
    there = dk.mix(dataset, to=str(job.scratch / "counted"), downsample=1.0, **more, **OPTIONS)
    assert there.downsampled is not None
    total = sum(group.of for group in there.downsampled.groups.values())
    with job.measured(job.corpus.text_mb):
        done = dk.mix(dataset, to=str(job.scratch / "v1"), tokens=total - 1, **more, **OPTIONS)
    assert 0.9 * job.corpus.documents < done.counts["documents_out"] < job.corpus.documents


@benchmark("stat")
def stat(job: Job) -> None:
    """Scores and lengths of 19 keys (gopher_v2), with the toolkit's bins; MB of text."""
    dk.stat(tagged(job, "warm"), attributes=["gopher_v2"], scheduler="synchronous", progress=False)
    dataset = tagged(job, "all")
    with job.measured(job.corpus.text_mb):
        found = dk.stat(dataset, attributes=["gopher_v2"], scheduler="synchronous", progress=False)
    assert max(one.total for one in found.series) == job.corpus.documents


@benchmark("ragged", beside="ragged-loop")
def ragged(job: Job) -> None:
    """Documents to token ids and lengths in .npy (two of the eight files)."""
    _ragged(job)


@benchmark("ragged-shuffled", beside="ragged")
def ragged_shuffled(job: Job) -> None:
    """The same in files of one size, in a random order, as the Dolma toolkit's tokens."""
    _ragged(job, format="dolma", compat="dolma-1.2", shuffle=True, max_size=4_000_000)


def _ragged(job: Job, **more: Any) -> None:
    options = {"tokenizer": tokenizer_path(job.corpus), **more, **OPTIONS}
    dk.ragged(job.corpus.dataset("warm"), str(job.scratch / "warm"), **options)
    with job.measured(job.corpus.few_mb):
        done = dk.ragged(job.corpus.dataset("few"), str(job.scratch / "out"), **options)
    without_text = done.counts.get("documents_without_text", 0)
    assert done.counts["documents_out"] + without_text == job.corpus.few_documents


@benchmark("ragged-loop")
def ragged_loop(job: Job) -> None:
    """The same with gzip, json and tokenizers in a loop over batches of 1,000."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(tokenizer_path(job.corpus))
    encoder.encode_batch(["warm up"])
    with job.measured(job.corpus.few_mb):
        for path in job.corpus.files("few"):
            _encode_file(encoder, path, job.scratch)


def _encode_file(encoder: Any, path: str, folder: Path) -> None:
    import gzip
    import json

    import numpy as np

    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    parts = (texts[start : start + 1000] for start in range(0, len(texts), 1000))
    ids = [item.ids for part in parts for item in encoder.encode_batch(part, add_special_tokens=False)]
    np.save(folder / "data.npy", np.concatenate([np.array(document, np.uint16) for document in ids]))
    np.save(folder / "len.npy", np.array([len(document) for document in ids]))


def tokenizer_path(corpus: Corpus) -> str:
    """Return GPT-NeoX's tokenizer where the reference data is, else one trained on the corpus."""
    path = shared_folder() / "tokenizers" / "neox-encoder.json"
    if corpus.origin == "shared" and path.exists():
        return str(path)
    path = Path(corpus.root, "tokenizer.json")
    if not path.exists():
        from dolma_dask.io.documents import DocumentFile
        from dolma_dask.testing.tokenizer import train_tokenizer

        blocks = (block for file in corpus.files("few") for block in DocumentFile(file, ["text"]))
        train_tokenizer((text for block in blocks for text in block.batch.column(0).to_pylist()), path)
    return str(path)
