"""Access to PostgreSQL: connections and transactions (`connect`), named statements, migrations."""
