"""What a value means: the one conversion table, and the lines of JSON and CSV that are read by it."""
