"""The work of the verb `mix`: what is read and kept, how it is changed, and what becomes of it."""
