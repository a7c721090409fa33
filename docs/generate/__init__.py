"""What of the site is made when it is built: the navigation, pages from the code itself, diagrams from text.

`hooks` is what MkDocs calls.
"""
