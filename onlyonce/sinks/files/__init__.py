"""The files of sharded sinks as bytes: their formats, and the stores that they lie in. No Spark, no database.

| module       | holds                                                              |
|--------------|--------------------------------------------------------------------|
| formats      | rows to text lines, JSON lines, CSV, Parquet, Avro, a user's own   |
| stores       | which store a place is, and what each can do                       |
| local_store  | a folder: names are given by a link, which never overwrites        |
| object_store | anything behind pyarrow.fs or fsspec: a manifest in place of names |
"""
