"""What the records of a source become: the readers of lines, ids and columns."""
