"""The machines under simulated nodes: kernels, hardware, and what their GPUs are split into."""
