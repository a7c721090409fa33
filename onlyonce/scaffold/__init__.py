"""`onlyonce init`: make a project as a team would keep it, from a sample of the input, or from none.

`sample` reads the beginning of a file and guesses types and columns; `project` writes the files of `templates/`.
"""
