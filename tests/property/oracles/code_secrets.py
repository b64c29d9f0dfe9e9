"""Secrets in code: the package itself, on every line in which any of its rules could find something."""

import re

from hypothesis import strategies as st

WORTH = re.compile(r"[\w+/\\=-]{9}|://|pwd|pass|key|secret|contrase", re.IGNORECASE)


def secrets(text):
    found = {}
    for number, (line, start) in enumerate(lines_of(text), 1):
        for kind, secret in scan(number, text) if WORTH.search(line) else ():
            at = start + line.index(secret)
            found.setdefault((kind, secret), (at, kind, at + len(secret)))
    spans = [
        {"label": kind, "start": start, "end": end, "score": 1.0}
        for start, kind, end in sorted(found.values())
    ]
    words = len(text.split())
    return {"secret": spans or None, "doc": len(spans) / words if words else -1.0}


def lines_of(text):
    start = 0
    for line in text.splitlines(keepends=True):
        yield line, start
        start += len(line)


def scan(number, text):
    from detect_secrets.core.scan import _process_line_based_plugins
    from detect_secrets.settings import default_settings

    lines = list(enumerate(text.splitlines(), 1))[:number]
    blank = [(at, line if at >= number - 1 else "") for at, line in lines]
    with default_settings():
        return [
            ("SECRET_" + secret.type.replace(" ", "_"), secret.secret_value)
            for secret in _process_line_based_plugins(blank, "code_str.yml")
            if secret.line_number == number
        ]


LINES = [
    "password = hunter2hunter2",
    'my_password: "hunter2hunter2"',
    "'AKIAIOSFODNN7EXAMPLE'",
    "url = http://user:passw0rd@host.example/x",
    "x = 'deadbeef0123456789abcdef76543210'",
    "-----BEGIN RSA PRIVATE KEY-----",
    "'s3cr3tvalue' == secret",
    "# pragma: allowlist nextline secret",
    "key = get_password()",
    "a plain line",
]
TEXTS = {
    "code_secrets_v1": st.lists(
        st.tuples(st.sampled_from(LINES), st.sampled_from(["\n", "\r\n", "\u2028", " "])), max_size=3
    ).map(lambda pairs: "".join(map("".join, pairs)))
}
ORACLES = {"code_secrets_v1": secrets}
