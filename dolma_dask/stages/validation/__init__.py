"""The work of the verb `validate`: what can be wrong with a listing, a shard, ids over all shards, attributes and spans."""
