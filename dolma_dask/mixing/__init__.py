"""Which documents are kept: `where` rules."""
