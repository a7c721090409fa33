"""Queries of the Nexmark benchmark as declarations, held to a plain computation over the same events."""
