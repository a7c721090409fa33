"""The embedded PostgreSQL: its account, its cluster, its server."""
