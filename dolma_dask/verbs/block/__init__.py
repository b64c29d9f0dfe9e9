"""Flags for documents in a list of ids. Begin with `verb`; `job` holds the passes, `shards` the work on a shard, `summary` the entries that match nothing."""
