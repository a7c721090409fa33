"""Which record ids were seen: chunks of packed ids and their Bloom filters, their look-up, merging and collection.

`packed`, `bloom` and `xxh64` are pure numpy; `chunks`, `merging`, `range_filters` and `collector` speak to PostgreSQL;
`catalog_lookup` serves receive's workers, which keep what they have fetched (`worker_cache`) in files that those of a
machine share (`shared_files`).
"""
