"""Prompts and their completions, and dialogues of them, to sequences of ids of which only the completions count for the loss.

A turn is ``prompt_prefix prompt [eos] [sep] completion_prefix completion eos``; predicted are the completion and the EOS behind it. What the
tokenizer itself puts before a text (BOS) stands before the first prompt of a sequence alone. Nothing is ever cut: a sequence that does not
fit into a row is left out and named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace as with_fields
from itertools import chain, islice
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats.documents import RAW
from dolma_dask.formats.findings import TOO_LONG, TOO_SHORT, UNUSABLE
from dolma_dask.formats.hdf5 import TextCounts
from dolma_dask.formats.json.exact import kind_of, parse_object
from dolma_dask.tokens.cleaning import Cleaning
from dolma_dask.tokens.encoding import Finding, Tokens
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.filling import UNPREDICTED
from dolma_dask.tokens.records import (
    Unusable,
    column,
    count_texts,
    encode_texts,
    find_text,
    find_value,
    findings_of,
    joined,
    list_of,
    pieces,
    read_records,
    text_of,
    with_findings,
)
from dolma_dask.tokens.specials import Specials

Pieces = Sequence[NDArray[np.int32]]
"""Staged words of a turn or a sequence, in parts."""

Turn = tuple[str, str]
"""A prompt and its completion."""


ROLES = ("role", "from")
"""Fields of a turn that say who speaks."""

ASKING = frozenset({"user", "human", "prompter"})
ANSWERING = frozenset({"assistant", "gpt", "model", "bot", "chatgpt"})
ASIDE = frozenset({"system", "developer", "tool", "function", "observation"})
"""Roles in published dialogues, in lower case."""


class PairRecipe(Struct, frozen=True):
    """Way from records of pairs or dialogues to ids.

    Raises `UsageError`: no field is named that has the texts, or a limit is no number of tokens.
    """

    engine: TokenEngine  # the tokenizer
    specials: Specials  # what stands around texts
    cleaning: Cleaning = msgspec.field(default_factory=Cleaning)  # what happens to texts first
    # fields of the texts of a pair, by dotted path
    prompt_key: str | None = None
    completion_key: str | None = None
    multi_turn_key: str | None = (
        None  # field of a dialogue, in place of both: a list, prompts and completions in turn
    )
    multi_turn_content_key: str | None = None  # field of the text of its items; None: they are texts
    # words before each prompt and each completion; special tokens in them are meant
    prompt_prefix: str | None = None
    completion_prefix: str | None = None
    sep_id: int | None = None  # token behind each prompt
    eos_after_prompt: bool = False  # EOS behind each prompt
    length: int = 2048  # max_seq_length
    least: int = 10  # min_sequence_len
    by_position: bool = (
        False  # turns are prompts and answers in turn, whatever role they name, as in ModelZoo
    )
    joins_turns: bool = (
        False  # a dialogue is one sequence (Summarization_VSL); else each pair is (Summarization)
    )

    def __post_init__(self) -> None:
        if self.multi_turn_key is None and None in (self.prompt_key, self.completion_key):
            raise UsageError(
                f"prompt_key={self.prompt_key!r}, completion_key={self.completion_key!r}; expected the fields of both, or multi_turn_key, that of "
                "dialogues."
            )

    reads: ClassVar[str] = RAW
    has_marks: ClassVar[bool] = True
    locked: ClassVar[float] = 0.02

    def params(self) -> dict[str, Any]:
        """Return all that decides the sequences of given records."""
        own = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("engine", "specials", "cleaning")
        }
        parts = {"specials": asdict(self.specials), "cleaning": self.cleaning.params(), "pairs": own}
        return {**self.engine.params(), **parts}

    def value_bytes(self, records: pa.Array) -> NDArray[np.int64]:
        """Return the UTF-8 bytes of the texts of each record, 0 of one that cannot be used."""
        read = read_records(records, self._turns)
        sizes = np.zeros(len(records), np.int64)
        sizes[read.rows] = [
            sum(len(text.encode()) for text in chain.from_iterable(turns)) for turns in read.made
        ]
        return sizes

    def encode(self, records: pa.Array) -> tuple[Tokens, TextCounts]:
        """Return the sequences of JSON records (n_records,), and what was counted: dialogues if turns are joined, else pairs.

        Findings name records: those of kind `UNUSABLE` have no sequences and are not counted, of `TOO_LONG` and `TOO_SHORT` ones some were left out.
        """
        read = read_records(records, self._turns)
        rows = [row for row, turns in zip(read.rows, read.made, strict=True) for _ in turns]
        words, found, counts = self._encode_turns(list(chain.from_iterable(read.made)), rows)
        kept: list[Pieces] = []
        found += read.findings
        owners: list[int] = []
        documents = 0
        for row, turns in zip(read.rows, read.made, strict=True):
            own = list(islice(words, len(turns)))
            if not all(prompt.size and completion.size for _, prompt, _, completion, _ in own):
                found.append(Finding(row, UNUSABLE, "a text of which the tokenizer makes no tokens"))
                continue
            sequences = self._sequences(own)
            problems = [self._problem(row, sequence) for sequence in sequences]
            whole = [one for one, problem in zip(sequences, problems, strict=True) if problem is None]
            kept += whole
            owners += [row] * len(whole)
            found += [problem for problem in problems if problem is not None]
            documents += len(sequences)
        tokens = replace(joined(kept, found), owners=np.array(owners, np.int64))
        counts = replace(counts, documents=documents, empty=documents - len(kept))
        return tokens, with_findings(counts, tokens.findings)

    def _turns(self, record: dict[str, bytes]) -> list[Turn]:
        if self.multi_turn_key is None:
            return [(find_text(record, self.prompt_key or ""), find_text(record, self.completion_key or ""))]
        key = self.multi_turn_key
        items = list_of(find_value(record, key), key)
        if not self.by_position:
            _check_roles(items, key)
        if not items or len(items) % 2:
            count = counted(len(items), "item")
            raise Unusable(f"{count} in {key!r}, no pairs of a prompt and a completion")
        texts = [self._content(item, f"{key}.{number}") for number, item in enumerate(items)]
        return list(zip(texts[::2], texts[1::2], strict=True))

    def _content(self, item: bytes, where: str) -> str:
        """Return the text of an item of a dialogue."""
        if self.multi_turn_content_key is None:
            if kind_of(item) == "an object":
                raise Unusable(f"an object in {where!r}, whose text multi_turn_content_key can name")
            return text_of(item, where)
        if kind_of(item) != "an object":
            raise Unusable(f"{kind_of(item)} in {where!r}")
        return find_text(parse_object(item), self.multi_turn_content_key, where)

    def _encode_turns(
        self, turns: Sequence[Turn], rows: Sequence[int]
    ) -> tuple[Iterator[Pieces], list[Finding], TextCounts]:
        """Return the words of each turn, what was found in its texts, by record, and counts of the texts."""
        raw = [column([turn[side] for turn in turns]) for side in (0, 1)]
        clean = [self.cleaning.apply(texts) for texts in raw]
        prompts, completions = (encode_texts(self.engine.encode, texts) for texts in clean)
        end = _words(*self._eos)
        before = self._prefix(self.prompt_prefix)
        separator = () if self.sep_id is None else (self.sep_id,)
        between = _words(*(self._eos if self.eos_after_prompt else ()), *separator)
        between = np.concatenate([between, self._prefix(self.completion_prefix)])
        words = (
            (before | UNPREDICTED, prompt | UNPREDICTED, between | UNPREDICTED, completion, end)
            for prompt, completion in zip(pieces(prompts), pieces(completions), strict=True)
        )
        return words, findings_of((prompts, completions), rows), count_texts(raw, clean)

    @property
    def _eos(self) -> tuple[int, ...]:
        return () if self.specials.eos_id is None else (self.specials.eos_id,)

    def _prefix(self, text: str | None) -> NDArray[np.int32]:
        """Encode the user's own words, whose special tokens are meant."""
        if not text:
            return _words()
        return with_fields(self.engine, in_text="encode").encode(column([text])).ids.astype(np.int32)

    def _sequences(self, turns: Sequence[Pieces]) -> list[Pieces]:
        head = _words(*self.specials.head) | UNPREDICTED
        if self.joins_turns:
            return [(head, *chain.from_iterable(turns))]
        return [(head, *turn) for turn in turns]

    def _problem(self, row: int, sequence: Pieces) -> Finding | None:
        """Return why a sequence is left out, if it is; a dialogue is measured in predictions, one less than its tokens, as ModelZoo has it."""
        size = sum(part.size for part in sequence) - self.joins_turns
        if size > self.length:
            return Finding(row, TOO_LONG, f"{size} tokens, at most {self.length}")
        if size < self.least:
            return Finding(row, TOO_SHORT, f"{size} tokens, at least {self.least}")
        return None


def _check_roles(items: Sequence[bytes], key: str) -> None:
    """Refuse (`Unusable`) a dialogue in which somebody else speaks than its place says; roles of other names are not known."""
    for number, item in enumerate(items):
        is_answer = bool(number % 2)
        role, others = _role_of(item), ASKING if is_answer else ANSWERING
        if role.lower() in others | ASIDE:
            place = "an answer" if is_answer else "a prompt"
            raise Unusable(
                f"a turn of {role!r} in '{key}.{number}', the place of {place}: turns alternate, and what a system says belongs into a prompt"
            )


def _role_of(item: bytes) -> str:
    fields = parse_object(item) if kind_of(item) == "an object" else {}
    value = next((fields[name] for name in ROLES if name in fields), b"")
    return text_of(value, "role") if value.startswith(b'"') and value != b'""' else ""


def _words(*ids: int) -> NDArray[np.int32]:
    return np.array(ids, np.int32)
