"""The units' sandboxes, in a real systemd: what is needed works in them, nothing else does."""

from box import step

# systemd-analyze security's figure, ten at worst.
EXPOSURE = 1.5


def sandboxes(box, helper):
    step("sandbox: each source can be read in it, nothing else can be done")
    probe(box, "edgeward")
    if helper:
        probe(box, "edgeward-nvml")
    pid = str(box.server_pid())
    mounts = box.run("cat", f"/proc/{pid}/mountinfo")
    assert ("hidepid=" in mounts or box.version() < 247) and "subset=pid" not in mounts, mounts
    assert box.run("stat", "-c", "%U %a", "/var/lib/edgeward", "/var/cache/edgeward", "/run/edgeward") == "\n".join(
        ["edgeward 750"] * 3
    )
    assert box.run("stat", "-c", "%F", "/run/edgeward/admin.sock") == "socket"
    if box.version() >= 250:
        units = ["edgeward.service"] + ["edgeward-nvml.service"] * helper
        exposures = {unit: exposure(box, unit) for unit in units}
        assert max(exposures.values()) <= EXPOSURE, exposures
        print("   exposure: " + ", ".join(f"{unit} {exposure}" for unit, exposure in exposures.items()))


def exposure(box, unit):
    """As the running systemd sees the unit, drop-ins included."""
    last = box.run("systemd-analyze", "security", "--no-pager", unit).splitlines()[-1]
    return float(last.split(":")[1].split()[0])


def probe(box, name):
    """Runs probe.py as the unit would run its program, but for the one exception that its interpreter needs."""
    lines = box.run("cat", f"/usr/lib/systemd/system/{name}.service").splitlines()
    other = ("Type=", "ExecStart=", "ExecReload=", "Restart", "WatchdogSec=", "NoExecPaths=", "ExecPaths=", "Nice=")
    # Without its socket: a unit of another name may not need it.
    other += ("Requires=", "After=edgeward-nvml.socket")
    kept = [line for line in lines if not line.startswith(other)]
    start = f"Type=oneshot\nExecStart=/usr/bin/python3 -B /share/probe.py {box.version()} {name}"
    kept.insert(kept.index("[Service]") + 1, start)
    unit = f"{name}-probe.service"
    box.write(f"/run/systemd/system/{unit}", "\n".join(kept) + "\n")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", unit, check=False)
    said = [entry["MESSAGE"] for entry in box.journal(f"_SYSTEMD_UNIT={unit}")]
    assert box.show("Result", unit) == "success", said
    assert said[-1:] == ["{}"], said
    box.run("rm", f"/run/systemd/system/{unit}")
    box.run("systemctl", "daemon-reload")
