"""The documentation as a site: `make docs`.

Pages are the repository's own Markdown files, as GitHub shows them; tables of the reference come from code.
"""
