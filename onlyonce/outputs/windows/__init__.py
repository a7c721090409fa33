"""Which windows a record is in, when they close, and what the log says of them."""
