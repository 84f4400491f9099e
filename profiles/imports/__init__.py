"""Other tools' files as drafts: one module a format, each naming every line that it could not take.

Each is a pure function from text to an ImportedDraft, and raises nothing but Invalid. Where the table of formats is
looked up: profiles.imports.formats.
"""
