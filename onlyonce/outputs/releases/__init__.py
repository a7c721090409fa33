"""Records that were left out, given back to the input."""
