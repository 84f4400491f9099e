"""Rules of policy objects and node labels, as Kubernetes, Volcano, Kueue and the Network Operator have them."""
