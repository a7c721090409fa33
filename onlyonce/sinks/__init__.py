"""Writes results, each unit once: to Delta (`sink_delta`), PostgreSQL, MySQL, sharded files, and the outbox, whose rows are then sent."""
