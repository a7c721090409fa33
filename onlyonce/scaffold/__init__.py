"""`onlyonce init`: make a project as a team would keep it, from a sample of the input, or from none.

`sample` reads the beginning of a file, `guessed_types` guesses the types of its columns; `project` writes the files of
`templates/`.
"""
