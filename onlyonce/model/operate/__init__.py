"""Decisions of what people ask and repair: findings, plans, alerts, collection, drops."""
