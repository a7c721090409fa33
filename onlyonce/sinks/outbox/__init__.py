"""How rows of the outbox reach their target: the only place that speaks to endpoints outside."""
