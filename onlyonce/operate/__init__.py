"""Entry points that people and DAGs run while pipelines run: audit, doctor, collection, plan, drop, alerts, metrics."""
