"""Keys by which documents are the same, and who survives."""
