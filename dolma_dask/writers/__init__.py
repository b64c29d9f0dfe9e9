"""Writers: context managers that take rows and leave whole files or none."""
