"""Approval of plans: required approvers, their verdicts, and the actions that a plan permits now."""
