"""Options that decide how texts become ids, of every output that has a tokenizer."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.options.base import Opt, Options
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.spelled import InText


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

    if TYPE_CHECKING:

        @property
        def tokenizer(self) -> str: ...

    @property
    def in_text(self) -> InText:
        """Treatment of special tokens that texts spell out."""
        return self.special_tokens_in_text or "text"

    def opened(self) -> TokenEngine:
        """Return the tokenizer, which treats them so."""
        return replace(open_tokenizer(self.tokenizer), in_text=self.in_text)
