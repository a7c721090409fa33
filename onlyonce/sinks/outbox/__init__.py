"""The outbox: store the rows of external sinks, and send them. Only this folder speaks to endpoints outside."""
