"""How Spark is started: the master, the jars, the options, and the team's own defaults.

Nothing here imports pyspark.
"""
