"""A Delta table as a source: what its versions append or change."""
