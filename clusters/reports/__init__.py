"""Queries for pages, search and alerts."""
