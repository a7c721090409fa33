"""The Iceberg sink, by pyiceberg and without a jar: tasks write data files, and the driver commits them."""
