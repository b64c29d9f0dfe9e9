"""JSON lines to Arrow columns and back: strict, and fast where nothing is wrong.

`lines` and `attributes` are what readers call, `write` is for writers. A kernel (`walk`, over the grammar in `scan`) checks every byte of
a block and finds the requested values; the few lines that it declines go through the parser in `exact`.
"""

import msgspec

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of `msgspec.json.decode` for small files: no JSON or of another form, no UTF-8, nested too deeply."""
