"""Files that hold a tokenizer in another format, known by their first bytes, and how each becomes a tokenizer.json."""

import re
from pathlib import Path

HEAD_BYTES = 4096
"""Bytes by which a file is known."""

_TIKTOKEN = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
_SENTENCEPIECE = re.compile(rb"\n[\x01-\x7f]\n[\x01-\x7f](?:<unk>|<pad>|<s>|</s>|\xe2\x96\x81)", re.DOTALL)
_SAVE = "python -c \"from transformers import AutoTokenizer; AutoTokenizer.from_pretrained({}).save_pretrained('converted')\""

NAMES = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "*.tiktoken", "*.gguf", "*.model")
"""Files of tokenizers that a folder may have in place of tokenizer.json."""


def advice(head: bytes, name: str) -> str | None:
    """Say what a file is whose first bytes are `head`, and how to convert it; None if it is no tokenizer that is known."""
    folder, file = repr(str(Path(name).parent)), repr(Path(name).name)
    if head.startswith(b"GGUF"):
        how = _SAVE.format(f"{folder}, gguf_file={file}")
        return f"it is a GGUF file; take tokenizer.json of the model that it was made from, or convert it (packages transformers, gguf): {how}"
    if _SENTENCEPIECE.match(head):
        how = _SAVE.format(folder)
        return f"it is a model of SentencePiece; convert it (packages transformers, sentencepiece, protobuf): {how}"
    if _TIKTOKEN.match(head):
        return (
            "it has the ranks of tiktoken without the pattern that splits texts; convert the encoding that they belong to (packages transformers, tiktoken, blobfile): "
            "transformers.integrations.tiktoken.convert_tiktoken_to_fast(encoding, 'converted')"
        )
    return None


def advice_for_folder(folder: Path) -> str:
    """Say what a folder without tokenizer.json has, and how it becomes one."""
    found = sorted({path.name for name in NAMES for path in folder.glob(name)})
    if not found:
        return ""
    how = _SAVE.format(repr(str(folder)))
    return (
        f" It has {', '.join(found)}: convert them (packages transformers, sentencepiece, protobuf), {how}."
    )
