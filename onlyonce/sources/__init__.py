"""Finding input and reading it.

`discovery` finds what is new, `registry` stores it, and a batch reads what the registry names.

`files` and `kafka` are the kinds of source. `parse` turns their lines and columns into records. `pubsub` and `land`
bring messages into an inbox.
"""
