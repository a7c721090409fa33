"""`onlyonce init`: from a sample of the input, or from none, to a project as a team would keep it.

The way: `sample` reads the beginning of a file, `column_types` and `guess` decide (pure), `project` writes the files of
`templates/`.
"""
