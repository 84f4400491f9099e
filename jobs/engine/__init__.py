"""The rollout engine: `slice.advance` claims sets of steps, `stages` decides and calls the cluster, `commit` writes
outcomes.

A stage never touches the database and the database code never touches the network, so no call runs inside a
transaction.
"""
