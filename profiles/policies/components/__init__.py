"""Kinds of policy objects that components of the catalog bring for their own controllers."""
