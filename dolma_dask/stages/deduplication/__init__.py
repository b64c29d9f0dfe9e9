"""The work of the verb `dedupe`: keys of all documents through the exchange, survivors, one attribute file per shard."""
