"""The rollout engine: `reconcile` claims sets of steps, `node_stages` and `component_stages` decide and call the
cluster, `commit` writes outcomes.

A stage never touches the database and the database code never touches the network, so no call runs inside a
transaction.
"""
