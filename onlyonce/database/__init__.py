"""PostgreSQL as everybody here reaches it: connections and transactions (`connect`), named statements, migrations."""
