"""The node agent: brings one node's kernel to its NodeTuning and reports what the kernel answers."""

from contract.names import RELEASE as VERSION

__all__ = ["VERSION"]
