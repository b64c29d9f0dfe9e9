"""Special tokens that texts spell out, such as ``<|endoftext|>`` in a page about tokenizers: control tokens to the library, text to a reader.

`tokenizers` cuts its added tokens out of a text before the model sees it, so that an author can end a document within a document. `as_text` makes
the same tokenizer without them, in which they are characters like any other. All added tokens are meant, special or not, except those of nothing
but white space: runs of spaces (GPT-NeoX) are ordinary vocabulary. An added token that is no special one and a word of the model too (a user's
``add_tokens(["cat"])``) stays that word.

Removing a token from the file is not enough: a Unigram model has ``</s>`` among its pieces, with the best score of all, and a WordLevel model among
its words. Ids are places in these lists, so names are replaced there, by names that no text has.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from tokenizers import Tokenizer

InText = Literal["text", "encode", "refuse"]
"""Treatment of special tokens that a text spells out: as text, as ``Tokenizer.encode`` has it, or such documents are bad records."""

_HIDDEN = "\U0010fffe\U0010ffff" * 8
"""Beginning of names that stand in place of others: noncharacters, which Unicode keeps out of texts. Whoever writes them all the same gets an error."""


class ModelFacts(Struct):
    """Facts of a model that the library does not tell for all kinds."""

    type: str = "BPE"
    unk_token: str | None = None
    unk_id: int | None = None  # of Unigram


class _File(Struct):
    model: ModelFacts


_read_file = msgspec.json.Decoder(_File).decode


class AddedTokens(Struct, frozen=True):
    """Tokens of one tokenizer that it cuts out of texts, by their ids."""

    is_added: NDArray[np.bool_]  # (vocab_size,) tokens that texts may spell out
    is_control: NDArray[
        np.bool_
    ]  # (vocab_size,) the special ones; not the unknown token, which stands for ordinary text too
    unknown: int | None  # id of the unknown token, if it is one of them
    unknown_name: str = ""  # its spelling; empty: it may be spelled in several ways


def find_added(tokenizer: Tokenizer, content: str, vocab_size: int) -> AddedTokens | None:
    """Return the added tokens of a tokenizer, whose JSON is `content`; None if it has none but white space."""
    added = {
        number: token
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if not token.content.isspace()
    }
    if not added:
        return None
    model = _read_file(content).model
    unknown = model.unk_id
    if unknown is None and model.unk_token is not None:
        unknown = tokenizer.token_to_id(model.unk_token)
    is_added, is_control = np.zeros(vocab_size, np.bool_), np.zeros(vocab_size, np.bool_)
    is_added[list(added)] = True
    is_control[[number for number, token in added.items() if token.special and number != unknown]] = True
    if unknown not in added:
        return AddedTokens(is_added, is_control, None)
    token = added[unknown]
    return AddedTokens(is_added, is_control, unknown, "" if token.normalized else token.content)


def as_text(content: str) -> str:
    """Return the JSON of the tokenizer for which special tokens in a text are text; ids are those of `content`."""
    known = msgspec.json.decode(content)
    model, added = known["model"], known.get("added_tokens", [])
    words = _words(model)
    hidden = {
        token["content"]: f"{_HIDDEN}{token['id']}"
        for token in added
        if not token["content"].isspace() and (token["special"] or token["content"] not in words)
    }
    plain = {"normalized": False, "special": False, "lstrip": False, "rstrip": False, "single_word": False}
    known["added_tokens"] = [
        {**token, **plain, "content": hidden[token["content"]]} if token["content"] in hidden else token
        for token in added
        if token["content"].isspace() or token["content"] in hidden
    ]
    known["post_processor"] = None  # may name tokens, and nothing is asked of it
    _rename(model, hidden)
    return msgspec.json.encode(known).decode()


def _words(model: Mapping[str, Any]) -> set[str]:
    vocab = model["vocab"]
    return set(vocab) if isinstance(vocab, Mapping) else {piece for piece, _ in vocab}


def _rename(model: dict[str, Any], hidden: Mapping[str, str]) -> None:
    """Rename words of a model; merges that make them or are made of them go."""
    vocab = model["vocab"]
    if isinstance(vocab, Mapping):
        model["vocab"] = {hidden.get(word, word): number for word, number in vocab.items()}
    else:
        model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in vocab]
    if model.get("unk_token") is not None:
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        prefix = model.get("continuing_subword_prefix") or ""
        model["merges"] = [
            merge for merge in model["merges"] if hidden.keys().isdisjoint(_made(merge, prefix))
        ]


def _made(merge: str | list[str], prefix: str) -> tuple[str, str, str]:
    """Return both sides of a merge of BPE, and what it makes."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right, left + right.removeprefix(prefix)
