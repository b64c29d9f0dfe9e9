"""The work of the verb `report`: what is on a page, and what a journal says of it."""
