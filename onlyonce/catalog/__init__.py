"""The id catalog: chunks of packed record ids and their Bloom filters, their look-up, merging and removal.

`filters` is pure numpy. `chunks`, `merging`, `range_filters` and `expiry` use PostgreSQL. `look_up` serves receive's
workers, which keep what they have fetched in memory and in files that the workers of a machine share (`worker_cache`).
"""
