"""Sends the rows of the outbox to their targets. Only this folder speaks to endpoints outside."""
