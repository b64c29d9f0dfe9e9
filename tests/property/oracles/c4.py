"""What the rules of C4 look at."""


def c4(text, has_javascript, bad_words=frozenset()):
    unended, short, start = [], [], 0
    lines = text.split("\n")
    for number, line in enumerate(lines):
        end = start + len(line) + (number < len(lines) - 1)
        span = {"start": start, "end": end, "score": 1.0}
        if not line.strip().endswith((".", "?", "!", '"')):
            unended.append(span)
        if len(line.split()) < 3:
            short.append(span)
        start = end
    lowered = text.lower()
    return {
        "lines_with_no_ending_punctuation": unended or None,
        "lines_with_too_few_words": short or None,
        "has_naughty_word": flag(
            any((one in lowered) if " " in one else (one in lowered.split()) for one in bad_words)
        ),
        "has_javascript": flag(has_javascript(lowered)),
        "has_lorem_ipsum": flag("lorem ipsum" in lowered),
        "has_curly_brace": flag("{" in text),
        "line_count": float(len(lines)),
    }


def flag(value):
    return 1.0 if value else None


def c4_v1(text, bad_words=frozenset()):
    return c4(text, lambda lowered: "javascript" in lowered.split(), bad_words)


def c4_v2(text, bad_words=frozenset()):
    return c4(text, lambda lowered: "javascript" in lowered, bad_words)


ORACLES = {"c4_v1": c4_v1, "c4_v2": c4_v2}
