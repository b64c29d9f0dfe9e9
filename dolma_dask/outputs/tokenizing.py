"""Options that decide how texts become ids, of every output that has a tokenizer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, TypeVar

from dolma_dask.errors import EngineDiffersError, StageError
from dolma_dask.extras import require
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.options.base import Opt, Options
from dolma_dask.tokens.engine import TokenEngine, choose, refute
from dolma_dask.tokens.fast import Engine
from dolma_dask.tokens.spelled import InText

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class TokenizingOptions(Options):
    """Options of outputs that encode texts with their ``tokenizer``, which each of them declares."""

    special_tokens_in_text: Annotated[
        InText | None,
        Opt(
            "Special tokens that a text spells out, such as <|endoftext|>: become its characters (text), control tokens (encode), or make it a bad record "
            "(refuse). By default text."
        ),
    ] = None
    engine: Annotated[
        Engine,
        Opt(
            "Engine that makes the ids, which are the same: fastokens where it is installed (extra fast) and has proved equal for the tokenizer (auto), or tokenizers."
        ),
    ] = "auto"

    if TYPE_CHECKING:

        @property
        def tokenizer(self) -> str: ...

    @property
    def in_text(self) -> InText:
        """Treatment of special tokens that texts spell out."""
        return self.special_tokens_in_text or "text"

    def opened(self) -> TokenEngine:
        """Return the tokenizer, which treats them so, with the engine that makes its ids."""
        if self.engine == "fastokens":
            require("fastokens", "engine=fastokens")
        return choose(replace(open_tokenizer(self.tokenizer), in_text=self.in_text), self.engine)


@dataclass(frozen=True, kw_only=True)
class CountingOptions(TokenizingOptions):
    """A tokenizer whose ids are looked at and not written."""

    tokenizer: str


def by_definition_if_engines_differ(outputs: Sequence[TokenizingOptions], make: Callable[[], S]) -> S:
    """Run work that encodes texts; if the fast engine gives other ids than the definition, run it once more by this, with all that the other had made."""
    engines = [one.opened() for one in outputs]
    try:
        return make()
    except StageError as error:
        found = [one.message for one in error.failures if one.error == EngineDiffersError.__name__]
        refuted = [
            engine for engine in engines if engine.fast and any(engine.fingerprint in text for text in found)
        ]
        if not refuted or any(one.engine != "auto" for one in outputs):
            raise
        for engine in refuted:
            refute(engine, next(text for text in found if engine.fingerprint in text))
        return make()
