"""Approval policy: CEL conditions over documented facts of plans, checked when written and bounded when evaluated."""
