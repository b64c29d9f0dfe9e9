"""Checks of every file and row. Begin with `verb`; `job` puts the report together.

`listing` finds the files, `shard` checks the documents and `attributes` of one shard, `identities` compares the ids of all of them (`keys`); `problems` holds
what is found.
"""
