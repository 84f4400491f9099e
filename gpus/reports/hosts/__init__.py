"""The host beside its GPUs, read from Prometheus when somebody looks: CPU, memory, pressure, disks, network, RDMA."""
