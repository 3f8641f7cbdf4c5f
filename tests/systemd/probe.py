"""Runs in edgeward.service's sandbox in its place: what its sources need must work there, all else must not."""

import ctypes
import json
import os
import socket
import struct
import sys

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
PIDFD_OPEN = 434
NLM_F_REQUEST_DUMP = 0x301
libc = ctypes.CDLL(None, use_errno=True)


def read(path):
    with open(path, "rb") as file:
        assert file.read(64), f"{path} is empty"


def pressure():
    """Where the kernel has it at all."""
    if os.path.exists("/proc/pressure"):
        read("/proc/pressure/memory")


def diagnostics():
    """Who listens on TCP, from the kernel."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as link:
        link.settimeout(5)
        request = struct.pack("BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 1 << 10) + bytes(48)
        link.send(struct.pack("IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0) + request)
        kind = struct.unpack_from("H", link.recv(65536), 4)[0]
        assert kind == SOCK_DIAG_BY_FAMILY, f"an answer of kind {kind}"


def call(name, *args):
    got = getattr(libc, name)(*args)
    if got < 0:
        raise OSError(ctypes.get_errno(), name)
    return got


def write(path):
    with open(path, "w") as file:
        file.write("x")


ALLOWED = {
    "meminfo": lambda: read("/proc/meminfo"),
    "vmstat": lambda: read("/proc/vmstat"),
    "pressure": pressure,
    "own process": lambda: read("/proc/self/status"),
    "cgroups": lambda: os.listdir("/sys/fs/cgroup"),
    "configuration": lambda: read("/etc/edgeward/edgeward.toml"),
    "socket diagnostics": diagnostics,
    # One page: how many more is LimitMEMLOCK='s, which a container that may raise no limit does not get.
    "locked memory": lambda: call("mlock", ctypes.create_string_buffer(4096), 4096),
    "pidfd": lambda: os.close(call("syscall", PIDFD_OPEN, os.getpid(), 0)),
    "networks": lambda: socket.create_server(("127.0.0.1", 0)).close(),
    "journal": lambda: os.stat("/run/systemd/journal/socket"),
    "state": lambda: write(os.environ["STATE_DIRECTORY"] + "/probe"),
    "cache": lambda: write(os.environ["CACHE_DIRECTORY"] + "/probe"),
}
FORBIDDEN = {
    "another's process": lambda: os.stat("/proc/1"),
    "raw packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "namespaces": lambda: call("unshare", 0x10000000),
    "tracing": lambda: call("ptrace", 0, 0, 0, 0),
    "mounting": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "kernel log": lambda: read("/dev/kmsg"),
    "configuration": lambda: write("/etc/edgeward/probe"),
    "programs": lambda: write("/usr/bin/probe"),
    "home": lambda: os.listdir("/root"),
    "sysctl": lambda: write("/proc/sys/vm/swappiness"),
    "clock": lambda: call("settimeofday", bytes(16), None),
    "root": lambda: os.setuid(0),
}
# ProtectProc= is newer than JetPack 5's systemd.
if int(sys.argv[1]) < 247:
    del FORBIDDEN["another's process"]


def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return f"{error.__class__.__name__}: {error}"
    return None


wrong = {f"needs {name}": why for name, attempt in ALLOWED.items() if (why := outcome(attempt))}
wrong.update({f"can use {name}": "no error" for name, attempt in FORBIDDEN.items() if not outcome(attempt)})
print(json.dumps(wrong))
sys.exit(bool(wrong))
