"""Which records an output's batch reads from `events`: at its first reading, in a backlog, at a replay, in a new
life."""
