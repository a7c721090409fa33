"""Access to PostgreSQL: connections and transactions (`connect`), named statements, the tables and their format."""
