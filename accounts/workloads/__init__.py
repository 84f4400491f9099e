"""Workload identity: tokens of outside issuers, exchanged for short-lived API tokens by rules of administrators."""
