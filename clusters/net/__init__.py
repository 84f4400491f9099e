"""How far connections may go: the egress policy, credentials as data, certificates."""
