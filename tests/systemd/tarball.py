"""A release's tarball of given programs, and its ./install run in the box."""

import pathlib
import shutil
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "board"))
from release import package  # noqa: E402

BOARD = {"name": "x86-rtx", "build": {"deb": "amd64"}}


def make(binary, helper, folder, version, tail=b""):
    """As board/build packs it, but for what is in its bills of materials. Returns the tarball's folder's name."""
    programs = {"edgeward": stripped(binary, folder, tail)}
    if helper:
        programs["edgeward-nvml"] = stripped(helper, folder)
    bills = {program: {"metadata": {"component": {"version": version}}} for program in programs}
    release = package.Release(REPO, BOARD, programs, bills, 1_700_000_000, "1")
    release.tarball(folder)
    return release.name


def stripped(program, folder, tail=b""):
    """A debug build packs in a second so. `tail` makes another build of it."""
    copy = folder / f"stripped-{program.name}"
    shutil.copyfile(program, copy)
    subprocess.check_call(["strip", copy])
    copy.write_bytes(copy.read_bytes() + tail)
    return copy


def unpack(box, name):
    box.run("tar", "-C", "/root", "-xzf", f"/share/{name}.tar.gz")
    return f"/root/{name}/install"


def uninstall(box, install):
    """The configuration stays, and is found by the next one."""
    box.run(install, "--uninstall")
    gone(box)
    # Drop-ins are the operator's, as the configuration is.
    left = box.run("sh", "-c", "find /usr /etc/systemd/system/*.wants -name '*edgeward*'")
    assert left == "", left
    assert box.run("stat", "-c", "%U:%G %a", "/etc/edgeward", "/etc/edgeward/edgeward.toml") == (
        "root:edgeward 750\nroot:edgeward 640"
    )
    assert box.run("sh", "-c", f"{install} --uninstall 2>&1; echo $?").endswith("\n1")


def gone(box):
    box.wait(lambda: not box.run("pgrep", "edgeward", check=False), "the end of all processes", 15)
