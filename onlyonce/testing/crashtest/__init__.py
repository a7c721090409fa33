"""The crash test of a user's own pipeline: a copy of the input, kills at every step, and whether the results held.

    play       the test itself: a reference, the chains of kills
    report     what was asked for and what was found
    scratch    a PostgreSQL and platforms of its own, and runs that are killed
    redirected a pipeline with every place that it reads or writes moved into the scratch folder
    results    what a platform holds in the end, as Arrow tables
    compare    how two of them differ

The tests of this repository kill by the same code.
"""
