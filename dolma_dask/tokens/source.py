"""Origin of a tokenizer, and the one copy of it that each process holds.

A `TokenizerSource` is small and travels with every task; the `tokenizers.Tokenizer` behind it (0.1 to 1 s to build,
some 50 MB) is made once per process and looked up by the digest of its JSON. Truncation and padding that the file
may configure are switched off, because documents are never cut. A tokenizer that draws at random (BPE dropout,
Unigram sampling) is refused, because the same text must give the same bytes.

Threads: unless ``TOKENIZERS_PARALLELISM`` is set, importing this module sets it to ``false``. Parallelism belongs to
Dask, which runs one task per core; a thread pool below each task would only make them fight.
"""

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # read by the library at each call

import xxhash
from tokenizers import Tokenizer

from dolma_dask.errors import DolmaDaskError, SourceChangedError, UsageError

_EXPECTED = (
    "expected the JSON of the tokenizers library (a file tokenizer.json with the keys 'model', 'pre_tokenizer', ...),"
    " as Tokenizer.save or PreTrainedTokenizerFast.save_pretrained write it"
)


@dataclass(frozen=True)
class TokenizerSource:
    """A tokenizer by path and digest, or by its JSON text; equal if the digests are."""

    fingerprint: str  # xxh3-128 (hex) of the JSON bytes
    # absolute path of the file; each process reads it again and checks the fingerprint
    path: str | None = field(default=None, compare=False)
    json: str | None = field(default=None, compare=False, repr=False)  # the text itself, if there is no path
    origin: str | None = field(default=None, compare=False)  # where the text is from
    # what ``tokenizer_config.json`` beside it holds, if there is no path
    config: bytes | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.path or self.origin or "given as JSON text"

    @property
    def file_name(self) -> str | None:
        """Name of the file without folders, None for mere text."""
        file = self.path or self.origin
        return None if file is None else Path(file).name

    def read(self) -> str:
        """Return the JSON text; SourceChangedError if the file is not the one that was opened."""
        if self.path is None:
            return self.json or ""
        content = _find_file(self.path).read_bytes()
        if _fingerprint(content) != self.fingerprint:
            raise SourceChangedError(
                f"tokenizer {self.path} has fingerprint {_fingerprint(content)}, expected {self.fingerprint}: the file"
                " changed since it was opened, or this worker sees another one; start again, or pass the JSON text",
                tokenizer=self.path,
            )
        return content.decode("utf-8")


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer ready for use."""

    tokenizer: Tokenizer
    max_id: int  # largest id, added tokens included


def find_source(
    path_or_json: str | os.PathLike[str], origin: str | None = None, config: bytes | None = None
) -> TokenizerSource:
    """Tell JSON text (begins with ``{``, or has an `origin`) from a path, and take the digest."""
    text = os.fspath(path_or_json)
    if origin is not None or text.lstrip().startswith("{"):
        fingerprint = _fingerprint(text.encode("utf-8", "surrogatepass"))
        return TokenizerSource(fingerprint, json=text, origin=origin, config=config)
    path = _find_file(text)
    return TokenizerSource(_fingerprint(path.read_bytes()), path=str(path))


@lru_cache(maxsize=8)
def build(source: TokenizerSource) -> Vocabulary:
    """Make the tokenizer, once per process and digest."""
    try:
        tokenizer = Tokenizer.from_str(source.read())
    except DolmaDaskError:
        raise
    except Exception as error:  # the library raises nothing more precise
        raise UsageError(
            f"tokenizer {source.name} cannot be read: {error}; {_EXPECTED}", tokenizer=source.name
        ) from error
    _check_deterministic(tokenizer, source.name)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise UsageError(
            f"tokenizer {source.name} has an empty vocabulary; train it first", tokenizer=source.name
        )
    return Vocabulary(tokenizer, max(vocabulary.values()))


def _check_deterministic(tokenizer: Tokenizer, name: str) -> None:
    drawn = [key for key in ("dropout", "alpha", "nbest_size") if getattr(tokenizer.model, key, None)]
    if drawn:
        raise UsageError(
            f"tokenizer {name} sets {', '.join(drawn)} in its model: ids would be drawn at random and differ from run"
            " to run; set it to null",
            tokenizer=name,
            options=drawn,
        )


def _find_file(text: str) -> Path:
    if "://" in text and not text.startswith("file://"):
        raise UsageError(
            f"tokenizer {text} is not a local file; read it and pass the JSON text", tokenizer=text
        )
    path = Path(text.removeprefix("file://")).expanduser().absolute()
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.is_file():
        raise UsageError(
            f"tokenizer file {path} does not exist; {_EXPECTED}. Where workers cannot see the path, pass the JSON text",
            tokenizer=str(path),
        )
    return path


def _fingerprint(content: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(content)
