"""Limits on connections: the egress policy, credentials as data, certificates."""
