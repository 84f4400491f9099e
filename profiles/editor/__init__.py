"""The form beside the YAML: rows of the form from a document, and a document patched from the form."""
