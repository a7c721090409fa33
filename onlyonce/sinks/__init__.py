"""Writes results, each unit once: to Delta (`sink_delta`), PostgreSQL, MySQL, Iceberg (`iceberg`), sharded files, and
the outbox, whose rows are then sent."""
