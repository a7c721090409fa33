"""A topic as a source: what the broker has, which ranges a batch reads, and reading them."""
