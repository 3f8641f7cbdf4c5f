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

# As edgeward's user: whose the socket with this inode is, by a record of memory/record.rs.
ASKS = f"""
import os, pwd, socket, struct, sys
os.setgroups([]); os.setgid(pwd.getpwnam("edgeward").pw_gid); os.setuid(pwd.getpwnam("edgeward").pw_uid)
s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect({SOCKET!r})
f = s.makefile("rwb"); f.readline()
f.write(struct.pack("<BBBBIQ", 1, 32, 0, 0, 7, int(sys.argv[1])).ljust(64, b"\\0")); f.flush()
while True:
    record = f.read(64)
    if record[1] == 9:
        print(record[3], *struct.unpack_from("<II", record, 4)); break
"""
CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYSLOG": 34}


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
    # It stays, without a driver as well, and is no other user's to listen to.
    blind = box.event("gpu_blind")
    assert "libnvidia-ml.so.1" in blind["EDGEWARD_DETAIL"] and blind["EDGEWARD_REMEDY"], blind
    assert box.show("ActiveState", "edgeward-nvml.service") == "active"
    assert box.run("python3", "-c", STRANGER) == "PermissionError"
    # Even where the socket's file lets it.
    box.run("chmod", "666", SOCKET)
    assert box.run("python3", "-c", STRANGER) == "b''"
    box.run("chmod", "600", SOCKET)
    rights(box)

    # Whoever listens is another user's process, which edgeward could not see: systemd itself.
    table = [line.split() for line in box.run("cat", "/proc/net/tcp").splitlines()[1:]]
    port = int(box.event("started")["EDGEWARD_LISTEN"].rsplit(":", 1)[1])
    inode = next(words[9] for words in table if words[3] == "0A" and int(words[1].split(":")[1], 16) == port)
    assert box.run("python3", "-c", ASKS, inode) == "1 7 1"
    assert box.run("python3", "-c", ASKS, "1") == "0 7 0"

    # It is killed, and started again.
    before = len(box.journal("EDGEWARD_EVENT=helper_ready"))
    box.run("systemctl", "kill", "--signal=KILL", "edgeward-nvml.service")
    assert "it ended" in box.event("helper_restarted")["EDGEWARD_DETAIL"]
    box.wait(lambda: len(box.journal("EDGEWARD_EVENT=helper_ready")) > before, "another one", 20)

    # Nobody listens to it any more.
    box.run("systemctl", "stop", "edgeward.service", "edgeward.socket")
    ended(box)
    # Without its socket nothing is started in its place, and edgeward says what to do.
    box.run("systemctl", "stop", "edgeward-nvml.socket")
    box.run("systemctl", "start", "edgeward.socket", "edgeward.service")
    missing = box.event("helper_unavailable")
    assert "enable --now edgeward-nvml.socket" in missing["EDGEWARD_REMEDY"], missing
    assert box.show("ActiveState") == "active"
    box.run("systemctl", "start", "edgeward-nvml.socket")


def rights(box):
    """What it may, and what the thread beside the driver may not."""
    pid = box.show("MainPID", "edgeward-nvml.service")
    threads = {}
    for thread in box.run("ls", f"/proc/{pid}/task").split():
        status = box.run("cat", f"/proc/{pid}/task/{thread}/status")
        fields = {line.split(":")[0]: line.split(":")[1].split() for line in status.splitlines()}
        threads[fields["Name"][0]] = fields
        assert set(fields["Uid"]) == {box.run("id", "-u", "edgeward-nvml")}, fields["Uid"]
        assert fields["Seccomp"] == ["2"] and fields["NoNewPrivs"] == ["1"], status
    bits = {name: 1 << number for name, number in CAPABILITIES.items()}
    main = threads["edgeward-nvml"]
    assert int(main["CapBnd"][0], 16) & ~sum(bits.values()) == 0, main
    assert int(main["CapEff"][0], 16) == bits["CAP_DAC_READ_SEARCH"] | bits["CAP_SYS_PTRACE"], main
    assert int(threads["nvml"]["CapPrm"][0], 16) == 0, threads["nvml"]


def ended(box):
    box.wait(lambda: box.show("ActiveState", "edgeward-nvml.service") == "inactive", "the helper's end", 10)
    assert box.show("Result", "edgeward-nvml.service") == "success"
    assert box.show("ExecMainStatus", "edgeward-nvml.service") == "0"
    assert box.show("ExecMainStartTimestampMonotonic", "edgeward-nvml.service") != "0"
