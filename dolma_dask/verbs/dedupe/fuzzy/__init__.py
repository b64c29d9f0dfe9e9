"""Similar documents: signatures, bands, edges and clusters; begin with `job`."""
