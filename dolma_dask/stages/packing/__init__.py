"""The verb `hdf5` behind its function: documents that are read, tokens staged in a first pass, and the rows of each file from them."""
