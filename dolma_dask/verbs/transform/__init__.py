"""transform: texts rewritten by a function of the user. The function is in `verb`, what it does to a block in `rewriting`, to a line in `documents`."""
