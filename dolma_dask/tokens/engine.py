"""From text to token ids, by the ``tokenizers`` library, in flat arrays.

``tokenizers`` is the definition: the ids of a document are those of
``Tokenizer.encode(text, add_special_tokens=False)`` without truncation or padding.

A `TokenEngine` is a name for a tokenizer, not the tokenizer: it travels with every task in a few hundred bytes (path and digest). The
`tokenizers.Tokenizer` behind it (0.1 to 1 s to build, some 50 MB) is made once per process, when first used. Truncation and padding that
the file may configure are switched off, because documents are never cut. A tokenizer that draws at random (BPE dropout, Unigram sampling)
is refused, because the same text must give the same bytes.

Threads: unless ``TOKENIZERS_PARALLELISM`` is set, importing this module sets it to ``false``. Parallelism belongs to Dask, which runs one
task per core; a thread pool below each task would only make them fight. Where one task is all there is, the library has its threads (`library_threads`).

Costs, GPT-NeoX vocabulary, English: encoding 700 to 900 ns per token (3 to 4 MB of text per CPU-second). The library hands ids out as
Python lists only; that is some 5 % of it.
Memory: see `dolma_dask.tokens.encoding`.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from msgspec import structs
from numpy.typing import NDArray
from tokenizers import Tokenizer

from dolma_dask.errors import DataError, DolmaDaskError, EngineDiffersError, SourceChangedError, UsageError
from dolma_dask.formats.findings import LOST, SPELLED
from dolma_dask.formats.ragged import check_lengths, token_dtype
from dolma_dask.tokens import fast
from dolma_dask.tokens.alphabet import Alphabet, find_alphabet
from dolma_dask.tokens.cuts import Cutter, find_cutter
from dolma_dask.tokens.encoding import (
    Finding,
    Tokens,
    check_texts,
    cut_long,
    encode_all,
    of_documents,
    replaced,
    rows_with,
)
from dolma_dask.tokens.fast import Engine, FastTokenizer, Proof, fast_version, keep, kept, proof_of
from dolma_dask.tokens.foreign import HEAD_BYTES, advice, advice_for_folder
from dolma_dask.tokens.lean import Lean, find_lean
from dolma_dask.tokens.spelled import AddedTokens, InText, as_text, find_added

_PARALLELISM = "TOKENIZERS_PARALLELISM"
"""Variable that the library reads at each call."""

_IS_OURS = _PARALLELISM not in os.environ
os.environ.setdefault(_PARALLELISM, "false")

_EXPECTED = (
    "expected the JSON of the tokenizers library (a file tokenizer.json with the keys 'model', 'pre_tokenizer', ...),"
    " as Tokenizer.save or PreTrainedTokenizerFast.save_pretrained write it"
)


_NAMED = 5
"""Special tokens of a document that are named."""


@dataclass(frozen=True)
class TokenEngine:
    """A tokenizer by path and digest, or by its JSON text, made with `load_tokenizer`; two are equal if their digests are."""

    fingerprint: str  # xxh3-128 (hex) of the JSON bytes
    # absolute path of the file; each process reads it again and checks the fingerprint
    path: str | None = field(default=None, compare=False)
    json: str | None = field(default=None, compare=False, repr=False)  # the text itself, if there is no path
    origin: str | None = field(default=None, compare=False)  # where the text is from
    # what ``tokenizer_config.json`` beside it holds, if there is no path
    config: bytes | None = field(default=None, compare=False, repr=False)
    # what becomes of special tokens that texts spell out; as the library, unless an output asks for something else
    in_text: InText = field(default="encode", compare=False)
    # versions of the engine that makes ids in its place (empty: none), and characters of documents that are not for it
    fast: str = field(default="", compare=False)
    avoid: str = field(default="", compare=False)
    # an engine that was used for the tokenizer until it gave other ids, and for which text
    distrusts: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.path or self.origin or "given as JSON text"

    @property
    def cost(self) -> str:
        """Name of what encoding costs, for `dolma_dask.placement`."""
        return "tokens-fast" if self.fast else "tokens"

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

    def params(self) -> dict[str, Any]:
        """Return what decides the ids of texts, for keys."""
        in_text = {} if self.in_text == "encode" else {"special_tokens_in_text": self.in_text}
        distrusts = {"distrusts": self.distrusts} if self.distrusts else {}  # all that it made is made anew
        return {"tokenizer": self.fingerprint, **in_text, **distrusts}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of it."""
        return (
            (f"{self.distrusts}; so tokenizers makes all ids, and what was made before is made anew",)
            if self.distrusts
            else ()
        )

    @property
    def max_id(self) -> int:
        """Largest id of the vocabulary, added tokens included."""
        return build(self).max_id

    @property
    def vocab_size(self) -> int:
        """Largest id + 1: what an embedding table must have. Not the number of names, there may be gaps."""
        return self.max_id + 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the ids, see `token_dtype`."""
        return token_dtype(self.max_id)

    def token_id(self, token: str) -> int | None:
        """Id of a token, None if the vocabulary has no such name."""
        token_id: int | None = build(self).tokenizer.token_to_id(token)
        return token_id

    def token(self, token_id: int) -> str | None:
        """Name of an id, None if no token has it."""
        if not 0 <= token_id <= self.max_id:
            return None
        token: str | None = build(self).tokenizer.id_to_token(token_id)
        return token

    def added_tokens(self) -> list[str]:
        """Texts of the tokens that were added to the vocabulary, such as those that end documents."""
        return [item.content for item in build(self).tokenizer.get_added_tokens_decoder().values()]

    def near_tokens(self, token: str, count: int = 5) -> list[str]:
        """Names that look like ``token``: added tokens first, then the vocabulary."""
        added = self.added_tokens()
        near = get_close_matches(token, added, count, 0.4)
        others = [name for name in build(self).tokenizer.get_vocab() if abs(len(name) - len(token)) <= 2]
        near += [name for name in get_close_matches(token, others, count, 0.7) if name not in near]
        return (near or [name for name in added if name.strip()])[:count]

    def encode(self, texts: pa.LargeStringArray) -> Tokens:
        """Turn documents (n_docs,), strings without nulls, into ids of type `dtype`.

        No special token is added (see `specials`). One that is spelled out in a text becomes its id, as in ``Tokenizer.encode``, or unless `in_text`
        is ``encode`` what its characters are without it; such documents are among the findings. Raises `SchemaError`: ``texts`` is not an array of
        strings. Raises `DataError`: a text is null, not UTF-8, or the tokenizer cannot encode it; the message names its row in the batch.
        """
        known = _encoded.get()
        if known is None:
            return self._encode(texts)
        key = (
            self.fingerprint,
            self.in_text == "encode",
            texts.offset,
            len(texts),
            *(None if part is None else part.address for part in texts.buffers()),
        )
        if key not in known:
            known[key] = (texts, self._encode(texts))  # the texts stay, so that no others get their address
        return known[key][1]

    def _encode(self, texts: pa.LargeStringArray) -> Tokens:
        check_texts(texts)
        vocabulary = build(self)
        tokens = self._fast_ids(texts) or encode_all(
            vocabulary.tokenizer, texts, self.dtype, vocabulary.cutter, lean=vocabulary.lean
        )
        if self.in_text != "encode" and vocabulary.added is not None:
            tokens = self._spelled_as_text(tokens, texts, vocabulary.added)
        if vocabulary.alphabet is None:
            return tokens
        return structs.replace(tokens, findings=(*tokens.findings, *self._losses(texts, vocabulary.alphabet)))

    def _fast_ids(self, texts: pa.LargeStringArray) -> Tokens | None:
        """Return ids by the fast engine; None if it is not used here, or cannot encode some text: the definition says which."""
        quick = build_fast(self) if self.fast else None
        if quick is None:
            return None
        vocabulary = build(self)
        try:
            parts, owners = cut_long(texts, vocabulary.cutter, vocabulary.tokenizer)
            ids, lengths = quick.encode(parts)
        except EngineDiffersError as error:
            refute(self, str(error))
            raise
        except Exception:  # noqa: BLE001  the library raises nothing more precise
            return None
        if owners is not None:
            lengths = np.bincount(owners, lengths, len(texts)).astype(np.int64)
        tokens = Tokens(ids.astype(self.dtype), check_lengths(lengths))
        return self._without_avoided(tokens, texts, quick.avoided(texts))

    def _without_avoided(self, tokens: Tokens, texts: pa.LargeStringArray, rows: NDArray[np.int64]) -> Tokens:
        """Encode some documents by the definition."""
        if not rows.size:
            return tokens
        known = build(self)
        some = encode_all(known.tokenizer, texts.take(pa.array(rows)), self.dtype, known.cutter, rows)
        ids = of_documents(some, np.arange(rows.size))
        return Tokens(*replaced(tokens, dict(zip(rows.tolist(), ids, strict=True))))

    def _losses(self, texts: pa.LargeStringArray, alphabet: Alphabet) -> Iterator[Finding]:
        """Yield the documents of which characters are lost."""
        for row, text in enumerate(texts):
            if lost := alphabet.lost(text.as_py(), self.in_text):
                yield Finding(row, LOST, alphabet.shown(lost))

    def _spelled_as_text(self, tokens: Tokens, texts: pa.LargeStringArray, added: AddedTokens) -> Tokens:
        """Encode documents again that spell special tokens out: their ids show which these are, so that the others cost nothing."""
        rows = rows_with(tokens, added, texts)
        if not rows.size:
            return tokens
        cutter = build(self).cutter
        plain = encode_all(build_plain(self), texts.take(pa.array(rows)), self.dtype, cutter, rows)
        before, now = of_documents(tokens, rows), of_documents(plain, np.arange(rows.size))
        changed = {
            int(row): new
            for row, old, new in zip(rows, before, now, strict=True)
            if not np.array_equal(old, new)
        }
        findings = [
            self._finding(int(row), old, changed[int(row)], added)
            for row, old in zip(rows, before, strict=True)
            if int(row) in changed
        ]
        return Tokens(*replaced(tokens, changed), tuple(findings))

    def _finding(
        self, row: int, old: NDArray[np.integer[Any]], new: NDArray[np.integer[Any]], added: AddedTokens
    ) -> Finding:
        if added.is_control[new].any():
            name = self.token(int(new[added.is_control[new]][0]))
            raise DataError(
                f"text of row {row} of the batch makes the special token {name} whether or not it is asked for. Drop the row, or accept such tokens: "
                "special_tokens_in_text=encode.",
                row=row,
            )
        spelled = dict.fromkeys(old[added.is_added[old] & ~np.isin(old, new)].tolist())
        numbers = list(spelled) if spelled or added.unknown is None else [added.unknown]
        names = [self.token(number) or "" for number in numbers]
        return Finding(row, SPELLED, " ".join(names[:_NAMED]))


_encoded: ContextVar[dict[tuple[object, ...], tuple[pa.Array, Tokens]] | None] = ContextVar(
    "encoded", default=None
)


@contextmanager
def encoding_once() -> Iterator[None]:
    """Within the block the same array of texts is encoded once by each tokenizer, for several writers of the same documents.

    Nobody may change the texts in place meanwhile; the ids of all of them are held until the block ends.
    """
    token = _encoded.set({})
    try:
        yield
    finally:
        _encoded.reset(token)


@contextmanager
def library_threads() -> Iterator[None]:
    """Let the library use all processors within the block, unless the environment says otherwise: for work that is one task after another."""
    if _IS_OURS:
        os.environ[_PARALLELISM] = "true"
    try:
        yield
    finally:
        if _IS_OURS:
            os.environ[_PARALLELISM] = "false"


def load_tokenizer(
    path_or_json: str | os.PathLike[str], origin: str | None = None, config: bytes | None = None
) -> TokenEngine:
    """Open a tokenizer of the ``tokenizers`` library: a local JSON file, a folder that holds ``tokenizer.json``, or the JSON text itself.

    A path must be readable by every worker; where it is not, give the text, and in `origin` where it is from: its last part is the name that
    goes into the files; `config` is the ``tokenizer_config.json`` beside it. Raises `UsageError`: no such file, not JSON, not a tokenizer, or
    one that draws at random.
    """
    text = os.fspath(path_or_json)
    if origin is not None or text.lstrip().startswith("{"):
        fingerprint = _fingerprint(text.encode("utf-8", "surrogatepass"))
        engine = TokenEngine(fingerprint, json=text, origin=origin, config=config)
    else:
        path = _find_file(text)
        engine = TokenEngine(_fingerprint(path.read_bytes()), path=str(path))
    build(engine)
    return engine


class Vocabulary(NamedTuple):
    """A tokenizer ready for use."""

    tokenizer: Tokenizer
    max_id: int  # largest id, added tokens included
    added: AddedTokens | None  # tokens that it cuts out of texts
    alphabet: Alphabet | None  # what it knows, if it drops all else
    cutter: Cutter | None  # where long texts may be cut
    lean: Lean | None  # the tokenizer with fewer steps


@lru_cache(maxsize=8)
def build(engine: TokenEngine) -> Vocabulary:
    """Return the tokenizer, made once per process and digest."""
    tokenizer, content = _made(engine, lambda content: content)
    _check_deterministic(tokenizer, engine.name)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise UsageError(
            f"tokenizer {engine.name} has an empty vocabulary; train it first", tokenizer=engine.name
        )
    max_id = max(vocabulary.values())
    added, alphabet = find_added(tokenizer, content, max_id + 1), find_alphabet(tokenizer, content)
    return Vocabulary(tokenizer, max_id, added, alphabet, find_cutter(content), find_lean(tokenizer))


def build_fast(engine: TokenEngine) -> FastTokenizer | None:
    """Return the fast engine for a tokenizer, made once per process; None where other versions are installed than those that were compared."""
    with _building:  # threads begin together
        return _built_fast(engine)


_building = threading.Lock()


@lru_cache(maxsize=8)
def _built_fast(engine: TokenEngine) -> FastTokenizer | None:
    if engine.fast != fast_version():
        return None
    return FastTokenizer(engine.read(), build(engine).tokenizer, engine.fingerprint, engine.avoid)


@lru_cache(maxsize=8)
def _proof(engine: TokenEngine) -> Proof:
    return proof_of(engine.fingerprint, engine.read(), build(engine).tokenizer)


def refute(engine: TokenEngine, message: str) -> None:
    """Remember that the fast engine, which was used for a tokenizer, gives other ids, as the message of `EngineDiffersError` says."""
    keep(
        engine.fingerprint,
        Proof(
            engine.fast,
            engine.avoid,
            message.removeprefix(f"{engine.fast} ").split(f" (tokenizer {engine.fingerprint})")[0],
            was_used=True,
        ),
    )
    _proof.cache_clear()


def choose(engine: TokenEngine, wanted: Engine) -> TokenEngine:
    """Return the tokenizer with the engine that makes its ids; see `dolma_dask.tokens.fast`.

    Raises `UsageError`: the fast engine is asked for by its name, and is not equal.
    """
    is_small = wanted == "auto" and engine.vocab_size < fast.LEAST_VOCABULARY
    is_slow = wanted == "tokenizers" or is_small or fast_version() is None
    proof = kept(engine.fingerprint) if is_slow else _proof(engine)
    if wanted == "fastokens" and proof is not None and proof.differs is not None:
        raise UsageError(
            f"engine=fastokens: for the tokenizer {engine.name} {proof.engine} {proof.differs}; expected engine=auto or tokenizers."
        )
    if proof is not None and proof.was_used:
        return replace(engine, distrusts=f"{proof.engine} {proof.differs}")
    if is_slow or proof is None or proof.differs is not None:
        return engine
    return replace(engine, fast=proof.engine, avoid=proof.avoid)


@lru_cache(maxsize=8)
def build_plain(engine: TokenEngine) -> Tokenizer:
    """Return the tokenizer for which special tokens in texts are text, made once per process when such a text is met; see `spelled`."""
    known = build(engine).tokenizer
    plain, _ = _made(engine, as_text)
    blank = {
        number: token.content
        for number, token in known.get_added_tokens_decoder().items()
        if token.content.isspace()
    }
    if any(plain.token_to_id(content) != number for number, content in blank.items()):
        raise UsageError(
            f"tokenizer {engine.name} cannot be read without its special tokens: ids of others would change; expected one as Tokenizer.save "
            "writes it. Accept special tokens in texts: special_tokens_in_text=encode.",
            tokenizer=engine.name,
        )
    return plain


def _made(engine: TokenEngine, change: Callable[[str], str]) -> tuple[Tokenizer, str]:
    """Return a tokenizer that never cuts or pads, made of the JSON as `change` leaves it, and this."""
    try:
        content = change(engine.read())
        tokenizer = Tokenizer.from_str(content)
    except DolmaDaskError:
        raise
    except Exception as error:  # the library raises nothing more precise
        raise UsageError(
            f"tokenizer {engine.name} cannot be read: {_foreign(engine) or error}; {_EXPECTED}",
            tokenizer=engine.name,
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, content


def _foreign(engine: TokenEngine) -> str | None:
    """Say what a file is that is no tokenizer of the library; None if that is not known."""
    head = (
        _find_file(engine.path).read_bytes()[:HEAD_BYTES]
        if engine.path
        else (engine.json or "").encode()[:HEAD_BYTES]
    )
    return advice(head, engine.name)


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
    try:
        path = Path(text.removeprefix("file://")).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"tokenizer {text}: {error}; expected a path.", tokenizer=text) from None
    others = ""
    if path.is_dir():
        others, path = advice_for_folder(path), path / "tokenizer.json"
    if not path.is_file():
        raise UsageError(
            f"tokenizer file {path} does not exist; {_EXPECTED}.{others} Where workers cannot see the path, pass the JSON text",
            tokenizer=str(path),
        )
    return path


def _fingerprint(content: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(content)
