#!/usr/bin/env python3
"""Run the browser of the tests without netlink, by which it would learn that the machine's network changed.

Chromium ends every request, those of loopback too, with ERR_NETWORK_CHANGED as soon as any interface of the machine
gets or loses an address: a container starts, or another test makes a network of pods. No flag turns that off. Where
it can open no netlink socket it takes the network to be there and never to change. socket(2), filtered by seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2  # linux/prctl.h, linux/seccomp.h
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_*
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""AUDIT_ARCH_* and the number of socket(2)."""
_AF_NETLINK = 16


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))  # struct sock_fprog


def refuse_netlink() -> None:
    """Let every socket(2) of AF_NETLINK by this process and its children end with EAFNOSUPPORT."""
    architecture, number = _SOCKET[platform.machine()]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 1, _AF_NETLINK),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = _Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    # The kernel takes a filter from a process that is not root only once it can gain no privileges.
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program)):
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse_netlink()
    browser = os.environ["SETPOINT_TEST_BROWSER"]
    os.execv(browser, [browser, *sys.argv[1:]])
