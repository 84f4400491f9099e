"""Profiles and their immutable revisions, the settings catalog, and the forms that edit them."""
