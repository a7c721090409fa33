"""What is there, and reading it. `discovery` finds what is new, `registry` keeps it, and a batch reads what the registry names.

`files` and `kafka` are the kinds of source, `parse` makes records of what they give. `pubsub` and `land` bring messages into an inbox.
"""
