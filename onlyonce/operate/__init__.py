"""What people ask, repair and schedule beside the runs: audit, doctor, collection, plan, drop, alerts, metrics."""
