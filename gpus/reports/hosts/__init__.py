"""The host beside its GPUs, read from Prometheus for one page view: CPU, memory, pressure, disks, network, RDMA."""
