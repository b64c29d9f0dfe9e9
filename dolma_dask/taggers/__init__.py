"""Rule sets that write attributes: one file per published set, and the registry."""
