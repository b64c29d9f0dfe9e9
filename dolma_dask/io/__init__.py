"""Files behind URLs: streaming readers to Arrow batches, and files that appear whole or not at all."""
