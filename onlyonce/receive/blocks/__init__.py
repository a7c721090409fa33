"""How the lines of a batch become records, and come to the task that judges them (`exchange`): as blocks in files, as
blocks in rows, or as rows."""
