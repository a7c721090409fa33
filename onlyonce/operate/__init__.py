"""What people do beside the runs: audit, doctor, collection, plan, drop, alerts, metrics."""
