"""What people should know of single documents whose text goes another way into an output than they may think: kinds, and the words for them."""

SPELLED = "documents_with_special_tokens"
"""Documents that spell special tokens of the tokenizer out; the name is that of their count."""

REFUSED = "documents_refused"
"""Documents that spell them out and were refused."""

LOST = "documents_with_lost_characters"
"""Documents with characters that the tokenizer drops."""

UNUSABLE = "records_unusable"
"""Records of which no sequence of tokens can be made: a field is missing, null, empty or of a wrong type."""

TOO_LONG = "records_too_long"
"""Records of which a sequence has more tokens than a row."""

TOO_SHORT = "records_too_short"
"""Records of which a sequence has fewer tokens than were requested."""

TRUNCATED = "records_truncated"
"""Records of which a sequence was cut to the tokens of a row."""

WORDS = {
    REFUSED: "spell out special tokens and are not in the output, but bad records in its _quarantine",
    SPELLED: "spell out special tokens, which became text: with --special-tokens-in-text refuse they are bad records, with encode control tokens",
    LOST: "have characters that the tokenizer does not know and drops: one with an unknown token or byte fallback keeps them",
    UNUSABLE: "lack a field that the mode reads, or have no usable value there, and are not in the output",
    TOO_LONG: "have more tokens than a row, all of which must be in one, and are left out: rows of more tokens (max_seq_length) keep them",
    TOO_SHORT: "have fewer tokens than min_sequence_len and are left out",
    TRUNCATED: "have more tokens than a row and lost the beginning of the prompt or the end of an answer: rows of more tokens (max_seq_length) keep them",
}
"""What the documents of each kind do, for summaries."""

NAMED = 20
"""Documents of a shard and kind that its record names."""

SHOWN = 5
"""Documents of a kind that a summary names."""
