"""transform: texts rewritten by a function of the user. The function and its work on a shard are in `verb`, what it does to a block in `rewriting`."""
