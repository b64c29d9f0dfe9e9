"""Tokens around a document: those that the user requests, those that the tokenizer itself adds, the end of a document, and the padding.

`ragged` adds nothing by default, as the original tool: boundaries are in ``len.npy`` alone, and a trainer that wants an end token adds it.
Requested, they are part of the document and count in its length; an empty document stays, with length 0 or its special tokens alone. Cost: 1
to 2 ns per token.

For `hdf5` a tokenizer JSON tells what `encode` adds (a beginning token, mostly) but not which token ends a document. That stands in
``tokenizer_config.json`` beside it, or is one of the names that published tokenizers use.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, Struct
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dolma_dask.errors import UsageError
from dolma_dask.formats.ragged import SpecialToken, TokenizerRecord, check_lengths
from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.engine import TokenEngine, build, load_tokenizer


@kernel
def _surround(ids, lengths, head, tail, out):  # type: ignore[no-untyped-def]
    source, target = 0, 0
    for document in range(len(lengths)):
        for token in head:
            out[target] = token
            target += 1
        for _ in range(lengths[document]):
            out[target] = ids[source]
            source += 1
            target += 1
        for token in tail:
            out[target] = token
            target += 1


def surround(tokens: Tokens, head: tuple[int, ...], tail: tuple[int, ...]) -> Tokens:
    """Put the same ids before and after every document; return the same tokens if there are none.

    Raises `DataError`: a document would have more than 2,147,483,647 tokens.
    """
    added = len(head) + len(tail)
    if not added or not tokens.lengths.size:
        return tokens
    lengths = tokens.lengths.astype(np.int64) + added
    checked = check_lengths(lengths)
    out = np.empty(int(lengths.sum()), tokens.ids.dtype)
    before, after = (np.array(ids, tokens.ids.dtype) for ids in (head, tail))
    _surround(tokens.ids, tokens.lengths, before, after, out)
    return Tokens(out, checked, tokens.findings)


def _resolve(engine: TokenEngine, option: str, requested: str | int | None) -> SpecialToken | None:
    if requested is None:
        return None
    if isinstance(requested, str):
        token_id = engine.token_id(requested)
        if token_id is not None:
            _check_is_text(engine, option, requested)
            return SpecialToken(requested, token_id)
        advice = f"did you mean one of {', '.join(map(repr, engine.near_tokens(requested)))}?"
    else:
        is_id = type(requested) is int and 0 <= requested <= engine.max_id
        name = engine.token(requested) if is_id else None
        if name is not None:
            return SpecialToken(name, int(requested))
        advice = f"expected an id from 0 to {engine.max_id} that has a name"
    raise UsageError(
        f"{option}={requested!r} is not in the vocabulary of {engine.file_name or 'the tokenizer'}; {advice}",
        option=option,
        token=requested,
    )


def _check_is_text(engine: TokenEngine, option: str, requested: str) -> None:
    """Refuse digits that are an ordinary token where an id was meant: texts end in the middle of their numbers then."""
    named = (
        engine.token(int(requested)) if requested.isdecimal() and int(requested) <= engine.max_id else None
    )
    if named is not None and requested not in engine.added_tokens():
        raise UsageError(
            f"{option}={requested!r} is the token of that number in texts; expected the text of a special token: the one with the id {requested} is {named!r}",
            option=option,
            token=requested,
        )


class Framing(Struct, frozen=True):
    """Beginning and end tokens as ids of one vocabulary."""

    # token before and after every document
    bos: SpecialToken | None = None
    eos: SpecialToken | None = None

    @classmethod
    def of(
        cls,
        engine: TokenEngine,
        bos: str | int | None = None,
        eos: str | int | None = None,
        *,
        has_end: bool = False,
    ) -> "Framing":
        """Look up tokens by name or id, ``none`` for none; with `has_end` the tokenizer's own token ends documents unless `eos` is given.

        Raises `UsageError`, which offers near names: the vocabulary has not what was named, or nothing says which token ends documents.
        """
        if eos is None and has_end:
            eos = _end(engine, read_config(engine), None, None)
        head, tail = (None if token == NO_TOKEN else token for token in (bos, eos))
        return cls(_resolve(engine, "bos", head), _resolve(engine, "eos", tail))

    def apply(self, tokens: Tokens) -> Tokens:
        """Put the special tokens around every document; see `surround`."""
        head, tail = (() if special is None else (special.id,) for special in (self.bos, self.eos))
        return surround(tokens, head, tail)

    def record(self, engine: TokenEngine) -> TokenizerRecord:
        """Return what a shard's sidecar says about the tokenizer and this framing."""
        return TokenizerRecord(
            engine.fingerprint,
            engine.file_name,
            engine.vocab_size,
            self.bos,
            self.eos,
            engine.distrusts or UNSET,
        )


EOS_NAMES = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|im_end|>")
"""Names of the end of a document in published tokenizers, where no config says it: GPT-2 and NeoX, T5 and Llama 2, Llama 3, Gemma, ChatML."""

PAD_NAMES = ("<|padding|>", "<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>")
"""Likewise for padding: NeoX first."""

NO_TOKEN = "none"
"""Value of `bos` and `eos` to have no token there, also where the vocabulary has a token of that name."""

GPT2_END = "<|endoftext|>"

CONFIG_NAME = "tokenizer_config.json"

_PROBE = "a"


class Specials(Struct, frozen=True):
    """Ids around a document, and behind the last."""

    eos_id: int | None  # stands behind every document
    pad_id: int  # fills a row that has fewer tokens
    # what the tokenizer itself puts around a text, such as a beginning token
    head: tuple[int, ...] = ()
    tail: tuple[int, ...] = ()


def find_specials(
    engine: TokenEngine,
    eos: str | None = None,
    pad: str | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    *,
    pads_with_eos: bool = False,
) -> Specials:
    """Look up what was requested by name or by id in a vocabulary, and what it has itself; ``none`` for `eos` means no token behind documents.

    With `pads_with_eos` an `eos_id` is the padding too unless a `pad_id` is given, whatever padding the tokenizer has: ModelZoo 2.2. Raises
    `UsageError`: a token is given by name and by id, there is no such token, or none is known that ends documents.
    """
    for option, name, number in (("eos", eos, eos_id), ("pad", pad, pad_id)):
        if name is not None and number is not None:
            raise UsageError(f"{option}={name!r} and {option}_id={number} were given; expected one of them.")
    config = read_config(engine)
    end = None if eos == NO_TOKEN else _end(engine, config, eos, eos_id)
    padding = _requested(engine, "pad", pad, pad_id)
    if padding is None and not (pads_with_eos and eos_id is not None):
        padding = _own(engine, config, "pad_token", PAD_NAMES)
    if padding is None:
        padding = 0 if end is None else end
    return Specials(end, padding, *added_by(engine))


def _end(engine: TokenEngine, config: Mapping[str, Any], name: str | None, number: int | None) -> int:
    token = _requested(engine, "eos", name, number)
    if token is None:
        token = _own(engine, config, "eos_token", EOS_NAMES)
    if token is None:
        near = "".join(f", such as {name!r}" for name in engine.near_tokens(GPT2_END)[:1])
        raise UsageError(
            f"{engine.file_name or 'the tokenizer'} does not say which token ends a document: it has none of {', '.join(EOS_NAMES)}, and no "
            f"{CONFIG_NAME} with an eos_token beside it. Name one with eos{near}, or eos='{NO_TOKEN}' for none."
        )
    return token


def _requested(engine: TokenEngine, option: str, name: str | None, number: int | None) -> int | None:
    token = _resolve(engine, option, name if number is None else number)
    return None if token is None else token.id


def _own(engine: TokenEngine, config: Mapping[str, Any], field: str, names: tuple[str, ...]) -> int | None:
    """Return the id of the token that the config names, else of the first of the usual names that there is."""
    given = config.get(field)
    name = given.get("content") if isinstance(given, Mapping) else given
    if isinstance(name, str):
        token_id = engine.token_id(name)
        if token_id is None:
            raise UsageError(
                f"{CONFIG_NAME} beside {engine.file_name} names the {field} {name!r}, which the vocabulary has not; expected files that belong "
                "together."
            )
        return token_id
    ids = (engine.token_id(name) for name in names)
    return next((number for number in ids if number is not None), None)


def read_config(engine: TokenEngine) -> Mapping[str, Any]:
    """Return the content of ``tokenizer_config.json`` beside the tokenizer's file; empty if there is none.

    Raises `UsageError`: it is not a JSON object.
    """
    where, content = _config(engine)
    if content is None:
        return {}
    try:
        config = json.loads(content)
    except ValueError as error:
        raise UsageError(
            f"{where} is not JSON ({error}); expected the config of the tokenizer beside it."
        ) from error
    if not isinstance(config, dict):
        raise UsageError(f"{where} holds {type(config).__name__}; expected a JSON object.")
    return config


def _config(engine: TokenEngine) -> tuple[str, bytes | None]:
    """Return where the config is, and what it holds if there is one."""
    if engine.path is None:
        return f"{CONFIG_NAME} beside {engine.name}", engine.config
    path = Path(engine.path).with_name(CONFIG_NAME)
    return str(path), path.read_bytes() if path.is_file() else None


def added_by(engine: TokenEngine) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that the tokenizer puts before and after a text by itself."""
    tokenizer = build(engine).tokenizer
    plain = tokenizer.encode(_PROBE, add_special_tokens=False).ids
    framed = tokenizer.encode(_PROBE, add_special_tokens=True).ids
    for start in range(len(framed) - len(plain) + 1):
        if framed[start : start + len(plain)] == plain:
            return tuple(framed[:start]), tuple(framed[start + len(plain) :])
    return (), ()


def find_bos(engine: TokenEngine) -> int | None:
    """Return the id of the beginning token that the config beside a tokenizer names."""
    return _own(engine, read_config(engine), "bos_token", ())


def with_token(engine: TokenEngine, name: str) -> tuple[TokenEngine, int]:
    """Return a tokenizer that knows a special token, and its id: the first behind the vocabulary, if it is new.

    Raises `UsageError`: the name is empty, or the vocabulary has gaps, where the library would put it.
    """
    if not name:
        raise UsageError("sep_token='' is no token; expected one such as <sep>, or none: leave it out.")
    known = engine.token_id(name)
    if known is not None:
        return engine, known
    number = engine.vocab_size
    content = json.loads(engine.read())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": number, "content": name, **flags, "special": True}
    content["added_tokens"] = [*(content.get("added_tokens") or ()), token]
    _, config = _config(engine)
    grown = load_tokenizer(json.dumps(content, ensure_ascii=False), engine.name, config)
    if grown.token_id(name) != number:
        raise UsageError(
            f"{name!r} cannot be added to {engine.name}: there are ids below {number} without a token; expected a token of the vocabulary, such "
            f"as one of {', '.join(map(repr, engine.near_tokens(name)))}."
        )
    return replace(grown, in_text=engine.in_text), number


def load_gpt2(vocab_file: str, encoder_file: str) -> TokenEngine:
    """Make GPT-2's tokenizer from its merges (``vocab.bpe``) and the ids of its tokens (``encoder.json``).

    ``<|endoftext|>`` in a text is text: the files name no special tokens. Raises `UsageError`: a file is missing, or not what it should be.
    """
    for path in (vocab_file, encoder_file):
        if not Path(path).is_file():
            raise UsageError(
                f"tokenizer file {path} does not exist; expected the merges in vocab_file and the ids in encoder_file."
            )
    try:
        vocabulary, merges = models.BPE.read_file(encoder_file, vocab_file)
    except Exception as error:  # the library raises nothing more precise
        raise UsageError(
            f"{encoder_file} and {vocab_file} cannot be read: {error}; expected GPT-2's encoder.json and vocab.bpe."
        ) from error
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return load_tokenizer(tokenizer.to_str())
