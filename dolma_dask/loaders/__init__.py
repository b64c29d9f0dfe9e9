"""Token shards as arrays."""
