"""What people should know of single documents whose text goes another way into an output than they may think: kinds, and the words for them."""

SPELLED = "documents_with_special_tokens"
"""Documents that spell special tokens of the tokenizer out; the name is that of their count."""

REFUSED = "documents_refused"
"""Documents that spell them out and were refused."""

LOST = "documents_with_lost_characters"
"""Documents with characters that the tokenizer drops."""

WORDS = {
    REFUSED: "spell out special tokens and are not in the output, but bad records in its _quarantine",
    SPELLED: "spell out special tokens, which became text: with --special-tokens-in-text refuse they are bad records, with encode control tokens",
    LOST: "have characters that the tokenizer does not know and drops: one with an unknown token or byte fallback keeps them",
}
"""What the documents of each kind do, for summaries."""

NAMED = 20
"""Documents of a shard and kind that its record names."""

SHOWN = 5
"""Documents of a kind that a summary names."""
