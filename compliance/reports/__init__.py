"""Compliance reports for pages, REST and exports, each at a fixed number of queries."""
