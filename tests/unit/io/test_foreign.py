"""Tokenizers in other formats are named, with what makes a tokenizer.json of them."""

import pytest

from dolma_dask.errors import UsageError
from dolma_dask.io.publish import publish
from dolma_dask.io.tokenizer import open_tokenizer


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("m.gguf", b"GGUF\x03\x00\x00\x00", r"a GGUF file.*from_pretrained\('.*', gguf_file='m.gguf'\)"),
        ("tokenizer.model", b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02", r"model of SentencePiece.*from_pretrained\('.*'\)\.save"),
        ("x.tiktoken", b"IQ== 0\nIg== 1\n", r"ranks of tiktoken.*convert_tiktoken_to_fast"),
        ("x.json", b"[1]", "cannot be read"),
        ("x.bin", b"\xff", "cannot be read"),
    ],
)  # fmt: skip
def test_a_file_of_another_format(tmp_path, root, name, content, message) -> None:
    (tmp_path / name).write_bytes(content)
    with publish(f"{root}/{name}") as out:
        out.write(content)
    for place in (tmp_path / name, f"{root}/{name}"):
        with pytest.raises(UsageError, match=message):
            open_tokenizer(place)


def test_a_folder_with_files_of_another_format(tmp_path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(
        UsageError, match=r"It has tokenizer.model: convert them .*save_pretrained\('converted'\)"
    ):
        open_tokenizer(tmp_path)
