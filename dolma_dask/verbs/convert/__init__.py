"""Foreign files to documents (`verb`), and files of attributes to attribute sets (`attributes`)."""
