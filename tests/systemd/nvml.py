"""The NVML helper as units: asked by edgeward, run by systemd for it alone."""

from box import step

SOCKET = "/run/edgeward-nvml/nvml.sock"
# No GPU here; named, the socket is asked all the same.
DROP_IN = f"[Service]\nEnvironment=EDGEWARD_NVML_SOCKET={SOCKET}\n"
# As a user that is none of edgeward's: what it reads, or why it may not.
STRANGER = f"""
import os, socket
os.setgroups([]); os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.settimeout(10)
try:
    s.connect({SOCKET!r}); print(s.recv(100))
except OSError as error:
    print(error.__class__.__name__)
"""


def has_helper(box):
    return box.run("sh", "-c", "ls /usr/libexec/edgeward/edgeward-nvml 2>/dev/null", check=False) != ""


def helper(box):
    step("NVML helper: asked on its socket, run as its own user, for edgeward alone")
    assert box.show("ActiveState", "edgeward-nvml.socket") == "active"
    assert box.run("systemctl", "is-enabled", "edgeward-nvml.socket") == "enabled"
    version = box.run("/usr/libexec/edgeward/edgeward-nvml", "--version").split()[1]
    ready = box.event("helper_ready", EDGEWARD_HELPER=version)
    assert ready["PRIORITY"] == "6" and ready["_SYSTEMD_UNIT"] == "edgeward.service", ready
    told = box.run("journalctl", "--no-pager", "-x", f"MESSAGE_ID={ready['MESSAGE_ID']}")
    assert "What edgeward did:" in told and f"said that it is version {version}" in told, told
    ended(box)

    assert box.run("python3", "-c", STRANGER) == "PermissionError"
    # Even where the socket's file lets it.
    box.write("/etc/systemd/system/edgeward-nvml.socket.d/open.conf", "[Socket]\nSocketMode=0666\n")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", "edgeward-nvml.socket")
    assert box.run("python3", "-c", STRANGER) == "b''"
    # It waits for whom it may answer, and so can be looked at.
    assert box.show("ActiveState", "edgeward-nvml.service") == "active"
    pid = box.show("MainPID", "edgeward-nvml.service")
    status = box.run("cat", f"/proc/{pid}/status")
    fields = {line.split(":")[0]: line.split(":")[1].split() for line in status.splitlines()}
    assert set(fields["Uid"]) == {box.run("id", "-u", "edgeward-nvml")}, fields["Uid"]
    assert fields["Seccomp"] == ["2"] and fields["NoNewPrivs"] == ["1"], status
    assert int(fields["CapEff"][0], 16) == int(fields["CapBnd"][0], 16) == 0, status
    before = len(box.journal("EDGEWARD_EVENT=helper_ready"))
    box.run("systemctl", "restart", "edgeward.service")
    box.wait(lambda: len(box.journal("EDGEWARD_EVENT=helper_ready")) > before, "its answer to edgeward", 20)
    ended(box)
    box.run("rm", "-r", "/etc/systemd/system/edgeward-nvml.socket.d")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", "edgeward-nvml.socket")

    # Without its socket nothing is started in its place, and edgeward says what to do.
    box.run("systemctl", "stop", "edgeward-nvml.socket")
    box.run("systemctl", "restart", "edgeward.service")
    missing = box.event("helper_unavailable")
    assert "enable --now edgeward-nvml.socket" in missing["EDGEWARD_REMEDY"], missing
    assert box.show("ActiveState") == "active"
    box.run("systemctl", "start", "edgeward-nvml.socket")


def ended(box):
    box.wait(lambda: box.show("ActiveState", "edgeward-nvml.service") == "inactive", "the helper's end", 10)
    assert box.show("Result", "edgeward-nvml.service") == "success"
    assert box.show("ExecMainStatus", "edgeward-nvml.service") == "0"
    assert box.show("ExecMainStartTimestampMonotonic", "edgeward-nvml.service") != "0"
