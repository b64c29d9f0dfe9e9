"""Attributes by taggers. Begin with `verb`; `output` has what is written of a shard, and what is set aside."""
