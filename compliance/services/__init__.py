"""Assignments, expectations and answers of agents, and what is rolled up from them when they are written."""
