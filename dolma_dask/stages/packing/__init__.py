"""The work of the verb `hdf5`: what is read, spools of tokens, and the rows of each file from them."""
