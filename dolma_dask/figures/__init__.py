"""Pictures of numbers: sums that can be added up over shards, bars and lines made of them, and how these are drawn."""
