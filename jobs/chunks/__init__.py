"""What a chunk of the record catalog holds: packed ids (`packed`) and their filter (`bloom`). Pure numpy: no database, no Spark.

So receive's workers, which write and probe chunks, and the collector, which merges them, share one form.
"""
