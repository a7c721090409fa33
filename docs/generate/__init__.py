"""Parts of the site that are made when it is built: the navigation, diagrams from text.

`hooks` is what MkDocs calls. `specification` and `reference` write pages that are committed (`make spec`).
"""
