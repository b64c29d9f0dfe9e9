"""A small tokenizer for the demo and the tests, trained on the spot: byte-level BPE, as GPT-2 and its successors use.

The same texts give the same file, byte for byte, in any order: the training sample is selected by the texts' hashes, and the trainer breaks
ties by token number. Cost: about 1 CPU-second for 8,000 tokens from 3 MB, and memory for the sample only.
"""

import heapq
from collections.abc import Iterable
from pathlib import Path

import xxhash
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dolma_dask.io.publish import publish

END_OF_TEXT = "<|endoftext|>"
"""The one special token; its id is 0."""

SAMPLE_BYTES = 3_000_000
"""UTF-8 bytes of text to train on: more changes few tokens of so small a vocabulary, and costs time."""


def train_tokenizer(texts: Iterable[str], path: str | Path, vocab_size: int = 8000) -> Tokenizer:
    """Train a byte-level BPE tokenizer and write it as a ``tokenizer.json``.

    Parameters
    ----------
    texts : iterable of str
        The corpus; only the `SAMPLE_BYTES` of those with the smallest hashes are held in memory, and trained on.
    path : str or Path
        The file to write; it appears when it is complete.
    vocab_size : int
        Number of tokens: 256 bytes, the special token, and merges; fewer if the texts do not hold enough pairs.

    Returns
    -------
    tokenizers.Tokenizer
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample_texts(texts, SAMPLE_BYTES), trainer)
    with publish(str(path)) as file:
        file.write(tokenizer.to_str(pretty=True).encode())
    return tokenizer


def sample_texts(texts: Iterable[str], max_bytes: int) -> list[str]:
    """Return the different texts with the smallest hashes, until `max_bytes` are reached, in the order of hashes.

    Every text has the same chance, whatever its position; the sample depends on the set of texts alone.
    """
    kept: list[tuple[int, str]] = []  # a heap with the largest hash first
    known: set[int] = set()
    size = 0
    for text in texts:
        data = text.encode()
        key = xxhash.xxh3_64_intdigest(data)
        if key in known or (kept and size >= max_bytes and key > -kept[0][0]):
            continue
        heapq.heappush(kept, (-key, text))
        known.add(key)
        size += len(data)
        while kept and (less := size - len(kept[0][1].encode())) >= max_bytes:
            known.discard(-heapq.heappop(kept)[0])
            size = less
    return [text for _, text in sorted(kept, reverse=True)]
