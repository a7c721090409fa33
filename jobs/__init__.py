"""The programs that spark-submit starts, and the reference pipelines: files of a team's own repository."""
