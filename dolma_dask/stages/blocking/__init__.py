"""The work of the verb `block`: lists of ids looked up in memory or through the exchange, one attribute file per shard."""
