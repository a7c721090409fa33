"""The outbox: store the rows of external sinks, and send them. Only this folder speaks to endpoints outside.

What an answer means, and how often a row is sent again, is decided in `core.delivery`.
"""
