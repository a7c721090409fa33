"""Report what became of each record, from the rows of `events` and of the commit log. Without a JVM."""
