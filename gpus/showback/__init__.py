"""Showback of GPUs by team: prices with their history, rules that map pods to teams, statements and their files."""
