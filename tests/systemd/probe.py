"""Runs in a unit's sandbox in its program's place: what its sources need must work there, all else must not.

probe.py SYSTEMD-VERSION edgeward|edgeward-nvml
"""

import ctypes
import glob
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


def cgroup(unit, file):
    """Where the kernel tells of another unit, in version 2 of control groups or under systemd's own name in 1."""
    for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"):
        for path in glob.glob(f"{top}/**/{unit}/{file}", recursive=True):
            return path
    return None


def processes():
    """Those of another unit, of another user."""
    path = cgroup("systemd-journald.service", "cgroup.procs")
    assert path, "no control group of systemd-journald"
    with open(path) as file:
        pids = file.read().split()
    assert pids and pids[0] != "0", f"{path}: {pids}"
    return [int(pid) for pid in pids]


def pidfd():
    """Sees the end of another user's process, whose folder in /proc is hidden."""
    for pid in [os.getpid(), 1, *processes()]:
        os.close(call("syscall", PIDFD_OPEN, pid, 0))


def events():
    """What another unit's memory met, where that controller is on."""
    if path := cgroup("systemd-journald.service", "memory.events"):
        read(path)


def driver():
    """What the NVIDIA driver says of itself, where there is one."""
    if os.path.exists("/proc/driver/nvidia"):
        os.listdir("/proc/driver/nvidia")


def listed(path):
    """What is masked may be opened by who has CAP_DAC_READ_SEARCH; there is nothing in it."""
    if not os.listdir(path):
        raise OSError(f"nothing in {path}")


def filled(path):
    """The same for a file."""
    with open(path, "rb") as file:
        if not file.read(1):
            raise OSError(f"nothing in {path}")


def kernel_log():
    """Where a container has it at all."""
    if os.path.exists("/dev/kmsg"):
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))


COMMON = {
    "meminfo": lambda: read("/proc/meminfo"),
    "own process": lambda: read("/proc/self/status"),
    "driver": driver,
    "Unix sockets": lambda: socket.socket(socket.AF_UNIX).close(),
}
MAIN = {
    "vmstat": lambda: read("/proc/vmstat"),
    "pressure": pressure,
    "another unit's processes": processes,
    "another unit's memory": events,
    "configuration": lambda: read("/etc/edgeward/edgeward.toml"),
    "socket diagnostics": diagnostics,
    # One page: how many more is LimitMEMLOCK='s, which a container that may raise no limit does not get.
    "locked memory": lambda: call("mlock", ctypes.create_string_buffer(4096), 4096),
    "pidfd": pidfd,
    "networks": lambda: socket.create_server(("127.0.0.1", 0)).close(),
    "journal": lambda: os.stat("/run/systemd/journal/socket"),
    "state": lambda: write(os.environ["STATE_DIRECTORY"] + "/probe"),
    "cache": lambda: write(os.environ["CACHE_DIRECTORY"] + "/probe"),
}
HELPER = {
    # Whose a socket is, it sees there.
    "another's descriptors": lambda: [os.readlink(path) for path in glob.glob("/proc/1/fd/*")][0],
    "kernel log": kernel_log,
}
FORBIDDEN = {
    "another's process": lambda: os.stat("/proc/1"),
    "raw packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "namespaces": lambda: call("unshare", 0x10000000),
    "tracing": lambda: call("ptrace", 0, 0, 0, 0),
    "mounting": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "kernel log": lambda: read("/dev/kmsg"),
    "programs": lambda: write("/usr/bin/probe"),
    "home": lambda: listed("/root"),
    "sysctl": lambda: write("/proc/sys/vm/swappiness"),
    "clock": lambda: call("settimeofday", bytes(16), None),
    "root": lambda: os.setuid(0),
    "configuration": lambda: write("/etc/edgeward/probe"),
}
FORBIDDEN_HELPER = {
    "keys": lambda: listed("/etc/edgeward"),
    "passwords": lambda: filled("/etc/shadow"),
    "writing to the kernel's log": lambda: write("/dev/kmsg"),
    "networks": lambda: socket.socket(socket.AF_INET),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG),
    "state": lambda: os.listdir("/var/lib/edgeward"),
}
unit = sys.argv[2]
ALLOWED = {**COMMON, **(MAIN if unit == "edgeward" else HELPER)}
if unit != "edgeward":
    FORBIDDEN.update(FORBIDDEN_HELPER)
    FORBIDDEN = {name: attempt for name, attempt in FORBIDDEN.items() if name not in ("another's process", "kernel log")}
# ProtectProc= is newer than JetPack 5's systemd.
elif int(sys.argv[1]) < 247:
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
