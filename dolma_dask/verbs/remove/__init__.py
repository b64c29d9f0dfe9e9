"""Takedown of documents below a root. Begin with `verb` and `takedown`; `listing` says what a root holds, `shards`, `edits` and `tokens` do the work on files, `records` renews journals."""
