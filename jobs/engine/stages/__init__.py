"""Stages of a step, of a node or of a component: one function a state, which decides what comes next."""
