"""What can be known to be wrong before a run reads anything: types, functions, and what they give, held against the sinks."""
