"""A small Debian with a real systemd, booted in a container."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

CACHE = pathlib.Path(os.environ.get("EDGEWARD_TEST_CACHE") or pathlib.Path.home() / ".cache/edgeward")
PACKAGES = "systemd,systemd-sysv,dbus,python3,ca-certificates,procps"


def step(what):
    print(f"== {what}", flush=True)


def debian():
    """A small Debian, made once."""
    if given := os.environ.get("EDGEWARD_TEST_ROOT"):
        return pathlib.Path(given)
    root = CACHE / "debian"
    if not root.exists():
        step("a small Debian, into the cache")
        part = CACHE / "debian.part"
        shutil.rmtree(part, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.check_call(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(part)],
            stdout=subprocess.DEVNULL,
        )
        part.rename(root)
    return root


class Box:
    """The container. Its changes to the cached Debian are in memory, and gone with it."""

    def __init__(self, root, share, *more):
        """`more` are further arguments of systemd-nspawn(1)."""
        self.log = open(pathlib.Path(share) / "console.log", "wb")
        command = ["systemd-nspawn", "--quiet", "-D", str(root), "--volatile=overlay", "--boot", "--register=no"]
        command += ["--keep-unit", "--link-journal=no", f"--bind={share}:/share", "--console=pipe"]
        # nspawn bars it by itself; the service's own filter is what is tested.
        command += ["--system-call-filter=@memlock"]
        command += [f"--machine=edgeward-{os.getpid()}", *more]
        self.nspawn = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self.init = self.wait(self.find_init, "the container's init")
        self.wait(lambda: self.run("systemctl", "is-system-running", check=False) in ("running", "degraded"), "boot")

    def find_init(self):
        assert self.nspawn.poll() is None, f"systemd-nspawn ended: {self.console()}"
        children = pathlib.Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split()
        for pid in children:
            # The container's own init, once it has become one.
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "systemd":
                return pid
        return None

    def console(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")[-3000:]

    def wait(self, found, what, limit=60):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            value = found()
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"{what}: not within {limit} s")

    def run(self, *command, check=True, limit=120):
        done = subprocess.run(
            ["nsenter", "--target", self.init, "--mount", "--uts", "--ipc", "--pid", "--root", "--wd", *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        )
        if check and done.returncode:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def show(self, what, unit="edgeward.service"):
        return self.run("systemctl", "show", unit, "--property", what, "--value")

    def version(self):
        """systemd's."""
        return int(self.run("systemctl", "--version").split()[1])

    def pid(self):
        return int(self.show("MainPID"))

    def server_pid(self):
        """The one behind the main process, once it has begun."""
        return int(self.wait(lambda: self.run("pgrep", "-P", str(self.pid()), check=False), "a server", 5))

    def write(self, path, text):
        subprocess.run(
            ["nsenter", "--target", self.init, "--mount", "--root", "/bin/sh", "-c",
             f"mkdir -p $(dirname {path}) && cat >{path}"], input=text, text=True, check=True)

    def journal(self, *match):
        lines = self.run("journalctl", "--output=json", "--no-pager", *match).splitlines()
        return [json.loads(line) for line in lines]

    def event(self, name, limit=20, **fields):
        """The last event of this name with these fields."""
        def found():
            entries = self.journal(f"EDGEWARD_EVENT={name}")
            return [e for e in entries if all(e.get(key) == value for key, value in fields.items())]
        return self.wait(found, f"event {name} {fields}", limit)[-1]

    def stop(self):
        if self.nspawn.poll() is None:
            # nspawn passes it on as an orderly shutdown.
            self.nspawn.send_signal(signal.SIGTERM)
            try:
                self.nspawn.wait(40)
            except subprocess.TimeoutExpired:
                self.nspawn.kill()
                self.nspawn.wait()
