"""Where results go, each unit once: Delta (`sink_delta`), PostgreSQL, sharded files, and what is sent (`outbox`)."""
