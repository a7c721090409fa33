"""What spark-submit starts, and the reference pipelines: what a team's own repository would hold."""
