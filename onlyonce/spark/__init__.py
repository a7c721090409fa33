"""How Spark is started: its master, jars and options, and what a team's own defaults say. Nothing here imports pyspark."""
