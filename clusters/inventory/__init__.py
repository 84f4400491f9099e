"""Rows of objects: nodes, pods and the agents' answers, none of which goes back to an older version."""
