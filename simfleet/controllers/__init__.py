"""Actors of a simulated cluster: controllers, scheduler, kubelets, agents, operators and what they run."""
