"""The tagger ``code_secrets_v1``: passwords, keys and tokens in code, as the package detect-secrets finds them. Source: ``code_taggers.py`` of the Dolma toolkit, release 1.2.1.

The package looks at each line with some thirty plug-ins, which takes milliseconds. Here one pattern finds the lines in which one of them can find anything: it has what each of their
patterns cannot do without, and so belongs to one version of their rules, `RULES`, which the extra pins.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from threading import Lock

from dolma_dask.errors import UsageError
from dolma_dask.extras import require
from dolma_dask.taggers.base import LABELLED_SPANS, NUMBER, Part, ViewTagger, each_text

RULES = "1.5"
"""Version of detect-secrets."""

LONGEST_LINE, MOST_SIGNS = 2000, 20
"""Characters, and signs of a secret, of the longest line that is looked at: patterns of the plug-ins take a time that rises with the product of both."""

_SIGNS = re.compile(
    "|".join(
        (
            # keywords; and what is assigned to a name with key, password or token
            "(?i:(?:api|auth|service|account|db|database|priv|private|client)_?key|(?:db|database|key)_?pass|passw(?:or)?d|pwd|secret|contrase[ñn]a)",
            "(?i:[a-z0-9_-]{44})",
            "(?i:cl(?:ou(?:dant)?)?[_-]?(?:api)?(?:key|pw|pass|token))",
            "(?i:cloudant[.]com|hooks[.]slack[.]com|xox[abpors]-)",
            # strings of high entropy, which have as many different characters
            """["'][0-9a-fA-F]{9,}["']""",
            r"""(?i:["'][0-9a-z+/\\_=-]{23,}["'])""",
            # a password in an address
            r"""://[^:/?#\[\]@!$&'\s]+:[^:/?#\[\]@!$&'\s]+@""",
            # beginnings and middles of tokens
            r"AKC[a-zA-Z0-9]{10}|AP[\dA-F][a-zA-Z0-9]{8}|A(?:3T[A-Z0-9]|BIA|CCA|KIA|SIA)[0-9A-Z]{16}",
            r"[MNO][a-zA-Z\d_-]{23,25}[.][a-zA-Z\d_-]{6}[.]|gh[pousr]_|gl[a-z]{2,5}-|GR1348941|eyJ[A-Za-z0-9_=-]+[.]",
            "[0-9a-z]{32}-us[0-9]|:_authToken=|T3BlbkFJ|PRIVATE KEY|PuTTY-User-Key|pypi-Ag|SG[.]|sq0csp-|[rs]k_live_",
            r"\d{8}:[0-9A-Za-z_-]{35}|(?:AC|SK)[a-z0-9]{32}",
        )
    )
)

_scanning = Lock()


@cache
def _check_rules() -> None:
    require("detect_secrets", "code_secrets_v1")
    if not version("detect-secrets").startswith(f"{RULES}."):
        raise UsageError(
            f"code_secrets_v1 found detect-secrets {version('detect-secrets')}; expected {RULES}, whose rules it is made for: "
            "pip install 'dolma-dask[secrets]'."
        )


Secret = tuple[str, int, int, float]


def _find_secrets(text: str) -> list[Secret]:
    """Return the secrets of a text; of several that are equal the first."""
    places = [found.start() for found in _SIGNS.finditer(text)]
    if not places:
        return []
    _check_rules()
    from detect_secrets.settings import default_settings

    lines = text.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    found: dict[tuple[str, str], Secret] = {}
    with _scanning, default_settings():  # those of the process
        for number, signs in Counter(bisect_right(starts, place) - 1 for place in places).items():
            if len(lines[number]) > LONGEST_LINE or signs > MOST_SIGNS:
                continue
            for kind, secret in _scan(lines[number - 1] if number else "", lines[number]):
                at = starts[number] + lines[number].find(secret)
                found.setdefault((kind, secret), (kind, at, at + len(secret), 1.0))
    # the package gives those of a line in an order of its own, another one in each process
    return sorted(found.values(), key=lambda secret: (secret[1], secret[0], secret[2]))


def _scan(before: str, line: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each secret of a line; the line before may say that it holds none."""
    from detect_secrets.core.scan import _process_line_based_plugins

    lines = [(1, before.rstrip("\r\n") if "pragma" in before else ""), (2, line)]
    # by this name the toolkit has every text scanned, so that values need no quotes
    for secret in _process_line_based_plugins(lines, "code_str.yml"):
        if secret.line_number == 2 and secret.secret_value:
            yield f"SECRET_{secret.type.replace(' ', '_')}", secret.secret_value


def _secrets(text: str) -> tuple[list[Secret] | None, float]:
    """Return the secrets of a text and their number by that of its words."""
    found = _find_secrets(text)
    words = len(text.split()) if found else int(bool(text.strip()))
    return found or None, len(found) / words if words else -1.0


TAGGERS = (
    ViewTagger.of(
        "code_secrets_v1",
        "Passwords, keys and tokens that detect-secrets finds.",
        Part(each_text(_secrets, (LABELLED_SPANS, NUMBER)), {"secret": "labels", "doc": "document"}),
        meanings={
            "secret": "secrets of each kind, as SECRET_Secret_Keyword; of several that are equal the first",
            "doc": "their number by that of the words; -1 for a text without words",
        },
        version=2,
        params=f'{{"detect_secrets":"{RULES}"}}',
        extra="detect_secrets",
        differs=f"A secret in a line that occurs twice stands in its own line; lines of more than {LONGEST_LINE:,} characters or {MOST_SIGNS} signs of a secret are not looked at.",
    ),
)
