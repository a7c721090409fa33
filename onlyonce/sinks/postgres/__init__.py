"""Write results into PostgreSQL: rows and unit in one transaction, in a pinned number of partitions."""
