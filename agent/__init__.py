"""The node agent: brings one node's kernel to its NodeTuning and reports what the kernel answers."""

VERSION = "0.1.0"
