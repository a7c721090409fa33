"""A changed declaration: what it needs, and how that is carried out."""
