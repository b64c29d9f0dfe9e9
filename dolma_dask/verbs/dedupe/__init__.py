"""Flags for all but one of equal documents. Begin with `verb`; a killed run goes on in `job`.

`shards` reads keys and writes flags, `survivors` decides who stays, `tally` and `summary` count.
"""
