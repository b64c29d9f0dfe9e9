"""Preferences (DPO): a prompt with the answer that people chose and one that they rejected, to two sequences of ids per record.

Both are the prompt, an answer and EOS; predicted are the answer and EOS. Both prompts are the same ids: those that the two dialogues and the
prompt alone begin with, so that a token which spans the boundary belongs to the answers. A record that does not fit into a row is cut: the
prompt to its last ``max_prompt_length`` ids (BOS stays, and counts), or to half a row where that would leave no answer; then each answer by
itself, before its EOS.

`PreferenceRecipe.like_modelzoo` repeats ModelZoo 2.2: what begins the answer (``[/INST]``) is predicted too, EOS stands in for a BOS that the
tokenizer lacks, texts are cleaned with what the template writes around them. Where that empties answers or loses their EOS, it does not.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.formats.documents import RAW
from dolma_dask.formats.findings import TRUNCATED
from dolma_dask.formats.hdf5 import PREFERENCE_FEATURES, TextCounts
from dolma_dask.text import compute as pc
from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.cleaning import Cleaning
from dolma_dask.tokens.dialogues import Dialogues, PreferenceFields, message
from dolma_dask.tokens.encoding import Finding, Tokens
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.filling import ID, UNPREDICTED
from dolma_dask.tokens.records import (
    Readings,
    Unusable,
    column,
    count_texts,
    encode_texts,
    findings_of,
    joined,
    pieces,
    read_each,
    read_records,
    with_findings,
)
from dolma_dask.tokens.specials import Specials
from dolma_dask.tokens.templates import LLAMA, PLACE, Control, Message, Template

Ids = NDArray[np.int32]

Texts = tuple[str, str, str]
"""The prompt as the template writes it, and both dialogues."""

DELIMITERS = ("[/INST]", "<|assistant|>")
"""Ends of a prompt that ModelZoo knows; the last one in a text counts."""

KNOWN_ROLES = frozenset({"user", "assistant", "system", "developer", "tool", "function", "observation"})
"""Roles that templates make special tokens of."""

_QUESTION = "question"

SHORTEST = 4
"""Tokens of the shortest row: two of a prompt, one of an answer, EOS."""


class PreferenceRecipe(Struct, frozen=True):
    """Way from records of preferences to ids.

    Raises `UsageError`: there is no EOS, a row is too short, roles are the same, or the template does not work or does not write the delimiter.
    """

    engine: TokenEngine  # the tokenizer
    specials: Specials  # what stands around texts
    cleaning: Cleaning = msgspec.field(default_factory=Cleaning)  # what happens to texts first
    # fields by dotted path: texts, or dialogues as lists of messages with role and content; without that of the prompt it is what both others begin with
    prompt_key: str | None = "prompt"
    chosen_key: str = "chosen"
    rejected_key: str = "rejected"
    # names of the roles in the data: of messages, and before turns in texts; a template gets user and assistant
    user_role: str = "user"
    assistant_role: str = "assistant"
    template: Template = LLAMA  # how dialogues are written
    # words of the template that end the prompt; None: it ends where the text of the answer begins
    response_delimiter: str | None = None
    length: int = 2048  # max_seq_length
    max_prompt_length: int = 512  # ids of a prompt where a record must be cut
    bos_id: int | None = None  # token before the prompt, if the tokenizer itself adds none
    like_modelzoo: bool = False  # do as ModelZoo 2.2

    def __post_init__(self) -> None:
        if self.specials.eos_id is None:
            raise UsageError("DPO without a token that ends an answer; expected one: eos.")
        if self.length < SHORTEST:
            raise UsageError(f"max_seq_length={self.length}; expected a number of tokens from {SHORTEST} on.")
        if self.user_role == self.assistant_role:
            raise UsageError(f"user_role and assistant_role are both {self.user_role!r}; expected two roles.")
        self._check_template()

    def _check_template(self) -> None:
        """Try the template on a dialogue, since one that fails there fails for all."""
        messages = [message(self._roles[0], _QUESTION), message(self._roles[1], "b")]
        try:
            if self.like_modelzoo:
                self._split(self._render(messages))
            elif _QUESTION not in self._prompt(messages).lower():
                raise Unusable("an answer that does not stand behind the prompt")
        except Unusable as error:
            roles = f"{self.user_role!r} and {self.assistant_role!r}"
            raise UsageError(
                f"a dialogue of {roles} cannot be written: found {error}; expected a chat_template for these roles, and a response_delimiter in it."
            ) from None

    @property
    def _fields(self) -> PreferenceFields:
        return PreferenceFields(
            self.prompt_key,
            self.chosen_key,
            self.rejected_key,
            self.user_role,
            self.assistant_role,
            as_given=self.like_modelzoo,
        )

    reads: ClassVar[str] = RAW
    has_marks: ClassVar[bool] = True
    locked: ClassVar[float] = 0.06

    def params(self) -> dict[str, Any]:
        """Return all that decides the sequences of given records."""
        parts = {"specials": asdict(self.specials), "cleaning": self.cleaning.params()}
        parts["template"] = {
            "source": self.template.source,
            "tokens": [list(one) for one in self.template.tokens],
        }
        own = {name: value for name, value in asdict(self).items() if name not in ("engine", *parts)}
        return {**self.engine.params(), **parts, "preferences": own}

    def value_bytes(self, records: pa.Array) -> NDArray[np.int64]:
        """Return the UTF-8 bytes of records (n,): they are not packed."""
        return np.asarray(pc.binary_length(records).to_numpy(zero_copy_only=False), np.int64)

    def encode(self, records: pa.Array) -> tuple[Tokens, TextCounts]:
        """Return two sequences for each usable JSON record (n_records,), chosen and rejected, and what was counted: the texts of both dialogues,
        as the template writes them if `like_modelzoo`.

        Findings name records: those of kind `UNUSABLE` have no sequences and are not counted, those of `TRUNCATED` were cut.
        """
        read = read_records(records, self._dialogues)
        texts, counts = self._texts_like_modelzoo(read) if self.like_modelzoo else self._texts(read)
        columns = (column(side) for side in zip(*texts.made, strict=True))
        parts = [encode_texts(Control(self.engine).encode, side) for side in columns]
        sides = read_each(zip(texts.rows, zip(*map(pieces, parts), strict=True), strict=False), self._sides)
        words, cut = [], []
        head, end = (np.array(ids, np.int32) for ids in (self._head, (self.specials.eos_id,)))
        for row, both in zip(sides.rows, sides.made, strict=True):
            fitting, what = self._fit(both)
            words += [(head | UNPREDICTED, prompt | UNPREDICTED, answer, end) for prompt, answer in fitting]
            cut += [Finding(row, TRUNCATED, what)] if what else []
        found = [*read.findings, *texts.findings, *sides.findings, *cut, *findings_of(parts, texts.rows)]
        tokens = replace(joined(words, found), owners=np.repeat(np.array(sides.rows, np.int64), 2))
        return tokens, with_findings(replace(counts, documents=len(sides.made)), tokens.findings)

    def _texts(self, read: Readings[Dialogues]) -> tuple[Readings[Texts], TextCounts]:
        """Return cleaned dialogues as the template writes them."""
        messages = [one for made in read.made for one in made.messages]
        contents = [one["content"] for one in messages]
        raw = column(contents)
        # before they meet the template, so that no repair makes a special token that is meant
        clean = self.cleaning.apply(raw)
        control = Control(self.engine)
        _put(messages, control.hide(contents if clean is raw else clean.to_pylist()))
        for one in messages:
            control.hide_others(one)
        expected: dict[Any, Any] = {}  # control tokens that the template writes, by the roles of a dialogue

        def written(made: Dialogues) -> Texts:
            prompt = self._prompt(made.chosen)
            texts = self._ended(made.chosen), self._ended(made.rejected)
            for turns, text in zip((made.chosen, made.rejected), texts, strict=True):
                if not text.startswith(prompt):
                    raise Unusable(
                        f"an answer that does not stand behind the prompt in what {self.template.name} writes"
                    )
                self._check_control(control, turns, text, expected)
            return prompt, *texts

        return read_each(zip(read.rows, read.made, strict=True), written), count_texts([raw], [clean])

    def _check_control(
        self, control: Control, turns: Sequence[Message], text: str, expected: dict[Any, Any]
    ) -> None:
        """Refuse a dialogue of which strings make a special token together, or with the template."""
        if not control.names:
            return
        roles = tuple((one["role"], bool(one["content"])) for one in turns)
        if any(role in name for role, _ in roles if role not in KNOWN_ROLES for name in control.names):
            raise Unusable("a role that is the name of a special token")
        if (found := control.found(text)) == expected.get(roles):
            return
        plain = [{**one, "content": "a" if one["content"] else ""} for one in turns]
        expected[roles] = control.found(self._ended(plain))
        if found != expected[roles]:
            raise Unusable(
                "a special token that strings of the dialogue spell out together, or with the template"
            )

    def _texts_like_modelzoo(self, read: Readings[Dialogues]) -> tuple[Readings[Texts], TextCounts]:
        """Clean what the template writes, not what it is given."""
        messages = [one for made in read.made for one in made.messages]
        _put(messages, Control(self.engine).hide([one["content"] for one in messages]))
        written = read_each(
            zip(read.rows, read.made, strict=True),
            lambda made: (self._render(made.chosen), self._render(made.rejected)),
        )
        raw = [column([both[side] for both in written.made]) for side in (0, 1)]
        clean = [self.cleaning.apply(texts) for texts in raw]
        both = zip(*(texts.to_pylist() for texts in clean), strict=True)
        texts = read_each(zip(written.rows, both, strict=True), lambda both: (self._split(both[0]), *both))
        texts.findings.extend(written.findings)
        return texts, count_texts(raw, clean)

    def _dialogues(self, record: dict[str, bytes]) -> Dialogues:
        """Return the dialogues of a record, with the roles that templates know."""
        made = self._fields.read(record)
        names = dict(zip((self.user_role, self.assistant_role), self._roles, strict=True))
        for one in made.messages:
            one["role"] = names.get(one["role"], one["role"])
        return made

    @property
    def _roles(self) -> tuple[str, str]:
        """Roles for the template; ModelZoo hands on what the data call them."""
        return (self.user_role, self.assistant_role) if self.like_modelzoo else ("user", "assistant")

    def _render(self, messages: Sequence[Message]) -> str:
        user, assistant = self._roles
        return self.template.render(messages, user_role=user, assistant_role=assistant)

    def _ended(self, messages: Sequence[Message]) -> str:
        """Return a dialogue without the white space that a template writes behind EOS: nobody is to predict it."""
        text, end = self._render(messages), self.engine.token(self.specials.eos_id or 0)
        bare = text.rstrip()
        return bare if end is not None and bare.endswith(end) else text

    def _prompt(self, messages: Sequence[Message]) -> str:
        """Return what the template writes before the text of the answer, or up to the end of the delimiter."""
        before, place, _ = self._render([*messages[:-1], {**messages[-1], "content": PLACE}]).partition(PLACE)
        if not place:
            raise Unusable(f"no answer in what {self.template.name} writes")
        if self.response_delimiter is not None:
            before = before[: self._last(before) + len(self.response_delimiter)]
        return before

    def _split(self, text: str) -> str:
        """Return what stands before the last delimiter, as ModelZoo has it."""
        return text[: self._last(text)]

    def _last(self, text: str) -> int:
        delimiters = DELIMITERS if self.response_delimiter is None else (self.response_delimiter,)
        at = max(text.rfind(delimiter) for delimiter in delimiters)
        if at < 0:
            raise Unusable(f"no {' or '.join(delimiters)} in what {self.template.name} writes")
        return at

    def _sides(self, ids: tuple[Ids, ...]) -> list[tuple[Ids, Ids]]:
        """Return prompt and answer of both dialogues, of the ids of the prompt and of both."""
        prompt, *dialogues = ids
        if self.like_modelzoo:
            ends = [prompt.size - (not np.array_equal(one[: prompt.size], prompt)) for one in dialogues]
        else:
            ends = [min(_common(prompt, one) for one in dialogues)] * 2
        sides = [(one[: max(end, 0)], one[max(end, 0) :]) for one, end in zip(dialogues, ends, strict=True)]
        if not self.like_modelzoo:
            sides = [self._bare(*side) for side in sides]
        if not all(answer.size for _, answer in sides):
            raise Unusable("an answer of which the tokenizer makes no tokens")
        return sides

    def _bare(self, prompt: Ids, answer: Ids) -> tuple[Ids, Ids]:
        """Return both without the BOS and EOS that a template writes."""
        head = np.array(self._head, np.int32)
        prompt = prompt[head.size :] if np.array_equal(prompt[: head.size], head) else prompt
        return prompt, answer[:-1] if answer[-1:].tolist() == [self.specials.eos_id] else answer

    @property
    def _head(self) -> tuple[int, ...]:
        """Ids before the prompt."""
        start = self.specials.eos_id if self.bos_id is None and self.like_modelzoo else self.bos_id
        return self.specials.head or (() if start is None else (start,))

    def _fit(self, sides: Sequence[tuple[Ids, Ids]]) -> tuple[Sequence[tuple[Ids, Ids]], str]:
        """Cut sides to a row if one of them needs it; return what people should know of it too."""
        around = len(self._head) + 1
        longest = max(prompt.size + answer.size for prompt, answer in sides) + around
        if longest <= self.length:
            return sides, ""
        limit = self.max_prompt_length if self.max_prompt_length <= self.length - 2 else self.length // 2
        cut = []
        for prompt, answer in sides:
            left = prompt[max(prompt.size - max(limit - len(self._head), 0), 0) :]
            cut.append((left, answer[: self.length - left.size - around]))
        return cut, f"{longest} tokens, at most {self.length}"


def _put(messages: Sequence[Message], contents: Sequence[str]) -> None:
    for one, content in zip(messages, contents, strict=True):
        one["content"] = content


def _common(one: Ids, other: Ids) -> int:
    """Return how many ids two texts begin with alike."""
    size = min(one.size, other.size)
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if different.size else size


@kernel
def _fill_preferences(words, starts, sizes, pad, eos, rows, counts):  # type: ignore[no-untyped-def]
    """Write every position of `rows`; count ids of each that are padding, count for the loss, and are an end."""
    for sequence in range(len(starts)):
        pads, losses, ends = 0, 0, 0
        row, first, size = sequence // 2, 3 * (sequence % 2), sizes[sequence]
        for at in range(rows.shape[2]):
            token = words[starts[sequence] + at] & ID if at < size else pad
            after = words[starts[sequence] + at + 1] if at + 1 < size else -1
            seen = after >= 0
            rows[row, first, at] = token
            rows[row, first + 1, at] = seen
            rows[row, first + 2, at] = after if seen else pad
            pads += at >= size
            losses += seen
            ends += at < size and token == eos
        counts[row, 0] += pads
        counts[row, 1] += losses
        counts[row, 2] += ends


def fill_preferences(
    words: Ids, starts: NDArray[np.int64], sizes: NDArray[np.int64], length: int, pad: int, eos: int = -1
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Make rows (n, 6, `length`) of 2 n sequences of staged words, chosen and rejected in turn; labels are padding where nothing is predicted.

    All tokens of a sequence are seen, EOS too. Counts (n, 3) are of both: padding, positions that count for the loss, and ends.
    """
    rows = np.empty((len(starts) // 2, len(PREFERENCE_FEATURES), length), np.int32)
    counts = np.zeros((len(rows), 3), np.int64)
    _fill_preferences(np.ascontiguousarray(words, np.int32), starts, sizes, pad, eos, rows, counts)
    return rows, counts
