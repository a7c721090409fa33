"""Turn the lines and columns of a source into records: readers, conversions and ids."""
