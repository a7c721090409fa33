"""Records are forgotten for good: in `events`, in input files, in what is beside them, and in the results."""
