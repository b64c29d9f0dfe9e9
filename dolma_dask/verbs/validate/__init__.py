"""Checks of every file and row. Begin with `verb`; `job` puts the report together.

`shard` checks documents and attributes of one shard, `identities` compares the ids of all of them (`keys`, `emitter`, `walk`, `order`), `problems` are what is found.
"""
