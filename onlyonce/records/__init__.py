"""What became of each record: the rows of `events` and of the commit log, read without a JVM."""
