"""Dialogues in records of preferences, in all the ways in which published data sets write them.

The prompt, the chosen answer and the rejected one are three texts; or dialogues as lists of messages with ``role`` and ``content``, whole or the
answer alone; or two texts ``user: ... assistant: ...`` without a prompt of their own, which is then what both begin with.
"""

import os.path
import re
from typing import Any

import msgspec
from msgspec import Struct

from dolma_dask.formats.json.exact import kind_of, parse_object
from dolma_dask.tokens.records import Unusable, find_value, list_of, text_of
from dolma_dask.tokens.templates import RESERVED, Message


class Dialogues(Struct, frozen=True):
    """Dialogues of a record, which differ in their last turns, the answers."""

    chosen: list[Message]
    rejected: list[Message]

    @property
    def messages(self) -> list[Message]:
        """Turns of both."""
        return [*self.chosen, *self.rejected]


class PreferenceFields(Struct, frozen=True):
    """Fields of a record, by dotted path, and the names of roles."""

    prompt_key: str | None  # None: the prompt is what both others begin with
    chosen_key: str
    rejected_key: str
    user_role: str
    assistant_role: str
    as_given: bool = False  # texts are one turn each, whatever they hold, as in ModelZoo

    def read(self, record: dict[str, bytes]) -> Dialogues:
        """Return what a record holds; raises `Unusable`."""
        keys = (self.chosen_key, self.rejected_key)
        values = [find_value(record, key) for key in keys]
        if not any(map(_is_dialogue, values)) and self._is_whole(record, values):
            return self._from_texts(*map(text_of, values, keys))
        prompt = [] if self.prompt_key is None else self._prompt(record, self.prompt_key)
        answers = [
            self._messages(value, key, self.assistant_role) for value, key in zip(values, keys, strict=True)
        ]
        chosen, rejected = (self._whole(prompt, messages) for messages in answers)
        for key, messages in zip(keys, (chosen, rejected), strict=True):
            if (
                len(messages) < 2
                or messages[-1]["role"] != self.assistant_role
                or not messages[-1]["content"]
            ):
                raise Unusable(f"no answer of {self.assistant_role!r} to a prompt at the end of {key!r}")
        if chosen[:-1] != rejected[:-1]:
            raise Unusable(f"different prompts in {keys[0]!r} and {keys[1]!r}")
        return Dialogues(chosen, rejected)

    def _is_whole(self, record: dict[str, bytes], values: list[bytes]) -> bool:
        """Tell whether both answers, which are texts, are dialogues that begin with the prompt."""
        if self.prompt_key is None:
            return True
        prompt = find_value(record, self.prompt_key)
        if self.as_given or _is_dialogue(prompt):
            return False
        text = text_of(prompt, self.prompt_key)
        texts = map(text_of, values, (self.chosen_key, self.rejected_key))
        return all(one.startswith(text) and self._turns(one) for one in texts)

    def _turns(self, text: str) -> list[Message]:
        """Return the turns of a text whose lines begin with the names of roles; the last as it is."""
        names = "|".join(map(re.escape, (self.user_role, self.assistant_role)))
        before, *parts = re.split(rf"(?:\A|\n)\s*({names}):[ \t]?", text)
        if before.strip() or len(parts) < 4 or parts[0] != self.user_role:
            return []
        *earlier, last = zip(parts[::2], parts[1::2], strict=True)
        return [*(message(role, said.strip()) for role, said in earlier), message(*last)]

    def _from_texts(self, chosen: str, rejected: str) -> Dialogues:
        """Return the dialogues of two texts with the names of roles in them."""
        both = [] if self.as_given else [self._turns(chosen), self._turns(rejected)]
        if both and all(both):
            if both[0][:-1] != both[1][:-1]:
                raise Unusable(f"different prompts in {self.chosen_key!r} and {self.rejected_key!r}")
            if any(turns[-1]["role"] != self.assistant_role or not turns[-1]["content"] for turns in both):
                raise Unusable(
                    f"no answer of {self.assistant_role!r} at the end of {self.chosen_key!r} or {self.rejected_key!r}"
                )
            return Dialogues(*both)
        same = os.path.commonprefix([chosen, rejected])  # noqa: RUF071  texts, not paths
        mark = f"{self.assistant_role}: "
        at = same.rfind(mark)
        prompt = same[: max(at, 0)].strip().removeprefix(f"{self.user_role}: ")
        answers = [text[at + len(mark) :] for text in (chosen, rejected)]
        if at < 0 or not prompt or not all(answers):
            raise Unusable(
                f"no prompt that ends in {mark!r} before answers in {self.chosen_key!r} and {self.rejected_key!r}"
            )
        turns = ([message(self.user_role, prompt), message(self.assistant_role, one)] for one in answers)
        return Dialogues(*turns)

    def _prompt(self, record: dict[str, bytes], key: str) -> list[Message]:
        return self._messages(find_value(record, key), key, self.user_role)

    def _messages(self, value: bytes, where: str, role: str) -> list[Message]:
        """Return a dialogue, or a text as one turn of a role."""
        if not _is_dialogue(value):
            return [message(role, text_of(value, where))]
        return [_read_message(item, f"{where}.{number}") for number, item in enumerate(list_of(value, where))]

    def _whole(self, prompt: list[Message], messages: list[Message]) -> list[Message]:
        """Put the prompt before a dialogue that is an answer alone."""
        if messages[0]["role"] != self.assistant_role or messages[: len(prompt)] == prompt:
            return messages
        return [*map(dict, prompt), *messages]


def message(role: str, content: str) -> Message:
    """Return a turn of a dialogue.

    Raises `Unusable`: it has characters that stand for something else here.
    """
    if any(mark in content for mark in RESERVED):
        raise Unusable(f"a noncharacter of Unicode in a text of {role!r}")
    return {"role": role, "content": content}


def _is_dialogue(value: bytes) -> bool:
    """Tell whether a value is a list of objects, by the first."""
    return kind_of(value) == "an array" and value[1:].lstrip(b" \t\r\n").startswith(b"{")


def _read_message(item: bytes, where: str) -> Message:
    if kind_of(item) != "an object":
        raise Unusable(f"{kind_of(item)} in {where!r}")
    fields = parse_object(item)
    role, content = (find_value(fields, key, where) for key in ("role", "content"))
    text = "" if content == b'""' else text_of(content, f"{where}.content")
    return {
        **{key: _plain(value, where) for key, value in fields.items()},
        **message(text_of(role, f"{where}.role"), text),
    }


def _plain(value: bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:  # a number that fits no double
        raise Unusable(f"a value in {where!r} that cannot be read: {error}") from None
