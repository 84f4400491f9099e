"""From objects to rows: nodes, pods and the agents' answers, each never back to an older version."""
