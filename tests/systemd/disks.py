"""Disks: a state folder whose mount is read-only, or full; and what the journal writes to a disk that wears out."""

import collections
import pathlib
import time

from box import step
from servers import Load, Stream

STATE = "/var/lib/edgeward"
JOURNAL = "/var/log/journal"
# Requests of a burst, each told in two lines, since its first target fails; and what the journal may write for one.
# Measured: 2 KB. One a second, each line costs some five pages of 4 KiB, since the kernel writes them between two.
BURST = 500
BYTES_MAX = 8000
# What a mount takes from the service, and the error of who writes there.
MOUNTS = {"read-only": ("ro", "Read-only file system"), "full": ("size=16k", "No space left on device")}


def state_folder(box, port):
    for what, (options, error) in MOUNTS.items():
        step(f"a {what} state folder: starts and serves, and says once what it cannot keep")
        owner = ",".join(f"{kind}={box.run('id', flag, 'edgeward')}" for kind, flag in (("uid", "-u"), ("gid", "-g")))
        box.run("mount", "-t", "tmpfs", "-o", f"{options},{owner},mode=750", "tmpfs", STATE)
        box.run("sh", "-c", f"cat /dev/zero >{STATE}/fill", check=False)
        restarts = box.show("NRestarts")
        box.run("systemctl", "restart", "edgeward")
        pid = str(box.server_pid())
        # As the process itself meets it, in its own mounts, where nothing else may be run.
        seen = f"/proc/{pid}/root{STATE}"
        tried = box.run("sh", "-c", f"dd if=/dev/zero of={seen}/x count=1 2>&1", check=False)
        assert box.run("stat", "-f", "-c", "%T", seen) == "tmpfs" and error in tried, tried
        for _ in range(5):
            Stream(port, "fast").whole()
        assert box.show("ActiveState") == "active" and box.show("StatusText").startswith("serving")
        assert box.show("NRestarts") == restarts
        # A target that fails says so at each request; all else that goes wrong is told once.
        told = collections.Counter(
            entry.get("EDGEWARD_EVENT") for entry in box.journal(f"_PID={pid}", "-p", "warning")
        )
        del told["attempt_failed"]
        assert all(count == 1 for count in told.values()), told
        box.run("systemctl", "stop", "edgeward.service")
        box.run("umount", "-l", STATE)
        box.run("systemctl", "start", "edgeward.service")


def on_disk(share):
    """nspawn's arguments for a journal on this machine's disk: the box's own is in memory."""
    folder = pathlib.Path(share) / "journal"
    folder.mkdir()
    return [f"--bind={folder}:{JOURNAL}"]


def flash(box, port):
    step(f"flash: what the journal writes for {BURST} requests, and at rest")
    before = written(box)
    load = Load(port)
    while load.served < BURST and not load.faults:
        time.sleep(0.02)
    load.stop()
    assert not load.faults, load.faults[:5]
    # Its own sign that all has come.
    box.run("journalctl", "--sync")
    each = (written(box) - before) / load.served
    assert each < BYTES_MAX, each

    def rests():
        lines = len(box.journal("_SYSTEMD_UNIT=edgeward.service"))
        time.sleep(3)
        return len(box.journal("_SYSTEMD_UNIT=edgeward.service")) == lines

    # The helper was ended before, and is started anew after a pause; the target that fails is seen by its probe, too: that
    # is told.
    box.event("probe_down", limit=60)
    box.wait(rests, "rest", limit=60)
    before, lines = written(box), len(box.journal("_SYSTEMD_UNIT=edgeward.service"))
    time.sleep(3)
    assert len(box.journal("_SYSTEMD_UNIT=edgeward.service")) == lines, "lines at rest"
    print(f"   {each:.0f} bytes a request; at rest no line, and {written(box) - before} bytes in three seconds")


def written(box):
    """Bytes that journald gave to the disk: whole pages, each as often as the kernel writes it."""
    io = box.run("cat", f"/proc/{box.run('pgrep', '-x', 'systemd-journal')}/io")
    return int(dict(line.split(": ") for line in io.splitlines())["write_bytes"])
