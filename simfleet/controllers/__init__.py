"""What acts in a simulated cluster: controllers, scheduler, kubelets, agents, operators and what they run."""
