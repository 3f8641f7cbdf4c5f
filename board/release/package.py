"""What is built, packed: a tarball with an install script, and a Debian package. Equal input gives equal bytes."""

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from .compile import HELPER_GLIBC

# Where systemd's files go, by their name in systemd/. What is not there yet is left out.
PLACES = {
    "edgeward.service": "usr/lib/systemd/system/edgeward.service",
    "edgeward.socket": "usr/lib/systemd/system/edgeward.socket",
    "edgeward-nvml.service": "usr/lib/systemd/system/edgeward-nvml.service",
    "edgeward-nvml.socket": "usr/lib/systemd/system/edgeward-nvml.socket",
    "edgeward.sysusers": "usr/lib/sysusers.d/edgeward.conf",
    "edgeward.catalog": "usr/lib/systemd/catalog/edgeward.catalog",
    "edgeward.toml": "etc/edgeward/edgeward.toml",
}
MAINTAINER_SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
# The configuration may hold keys; postinst gives it to edgeward's group.
PRIVATE = "etc/edgeward"
DESCRIPTION = """one endpoint before the local model server
 edgeward sits in front of a local model server on an edge GPU box, holds
 each stream until its first real token, and fails over to the next provider
 unseen.
"""


class Release:
    """One board's release: the files as they are installed, and what surrounds them."""

    def __init__(self, root, board, programs, bills, epoch, revision):
        self.root = root
        self.board = board
        self.epoch = epoch
        self.revision = revision
        self.version = bills["edgeward"]["metadata"]["component"]["version"]
        self.bills = {program: text_of(bill) for program, bill in bills.items()}
        places = dict(PLACES)
        if "edgeward-nvml" not in programs:
            places = {name: place for name, place in places.items() if "nvml" not in name}
        self.files = {"usr/bin/edgeward": (programs["edgeward"].read_bytes(), 0o755)}
        if helper := programs.get("edgeward-nvml"):
            self.files["usr/libexec/edgeward/edgeward-nvml"] = (helper.read_bytes(), 0o755)
        for name, place in places.items():
            source = root / "systemd" / name
            if source.exists():
                self.files[place] = (source.read_bytes(), 0o640 if place.startswith(PRIVATE) else 0o644)
        doc = "usr/share/doc/edgeward"
        self.files[f"{doc}/copyright"] = ((root / "LICENSE").read_bytes(), 0o644)
        self.files[f"{doc}/board.toml"] = ((root / "board" / f"{board['name']}.toml").read_bytes(), 0o644)
        for program, bill in self.bills.items():
            self.files[f"{doc}/{program}.cdx.json"] = (bill, 0o644)

    @property
    def name(self):
        return f"edgeward-{self.version}-{self.board['name']}-{self.board['build']['deb']}"

    def write_bills(self, out):
        """Writes the programs' bills of materials; gives their names."""
        names = {self.name.replace("edgeward", program, 1) + ".cdx.json": bill for program, bill in self.bills.items()}
        for name, bill in names.items():
            (out / name).write_bytes(bill)
        return list(names)

    def tarball(self, out):
        """Writes the tarball: `install` and, under root/, what it installs. Gives its name."""
        members = {f"root/{place}": file for place, file in self.files.items()}
        members["install"] = ((self.root / "board/release/install").read_bytes(), 0o755)
        members["version"] = (f"version {self.version}-{self.revision}\n".encode(), 0o644)
        members["LICENSE"] = ((self.root / "LICENSE").read_bytes(), 0o644)
        for name in MAINTAINER_SCRIPTS:
            if (script := self.root / "systemd/deb" / name).exists():
                members[f"scripts/{name}"] = (script.read_bytes(), 0o755)
        path = out / f"{self.name}.tar.gz"
        # Neither a name nor a time in gzip's own head.
        with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
                for name in sorted({*members, *folders(members)}):
                    content, mode = members.get(name, (None, 0o750 if name.endswith(PRIVATE) else 0o755))
                    tar.addfile(*self.member(f"{self.name}/{name}", content, mode))
        return path.name

    def member(self, name, content, mode):
        info = tarfile.TarInfo(name)
        info.mode, info.mtime, info.uname, info.gname = mode, self.epoch, "root", "root"
        if content is None:
            info.type = tarfile.DIRTYPE
            return info, None
        info.size = len(content)
        return info, io.BytesIO(content)

    def deb(self, out):
        """Writes the Debian package; gives its name."""
        if not shutil.which("dpkg-deb"):
            raise SystemExit("board/build: no dpkg-deb: apt-get install dpkg")
        architecture = self.board["build"]["deb"]
        path = out / f"edgeward_{self.version}-{self.revision}_{architecture}.deb"
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "edgeward"
            for place, (content, mode) in {**self.files, **self.control(architecture)}.items():
                file = tree / place
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                file.chmod(mode)
            # The umask of who builds says nothing here.
            for item in [tree, *tree.rglob("*")]:
                if item.is_dir():
                    item.chmod(0o750 if item == tree / PRIVATE else 0o755)
                os.utime(item, (self.epoch, self.epoch))
            # One thread: its number changes how xz cuts its blocks.
            env = dict(os.environ, SOURCE_DATE_EPOCH=str(self.epoch), DPKG_DEB_THREADS_MAX="1", LC_ALL="C")
            command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, path]
            subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        return path.name

    def control(self, architecture):
        """The package's own files, by their place in the tree."""
        build = self.board["build"]
        size = sum((len(content) + 1023) // 1024 for content, _ in self.files.values())
        # The main program is static; the units need what the oldest system of the board has.
        depends = [f"systemd (>= {build['systemd']})", "passwd"]
        if "helper" in build:
            depends.append(f"libc6 (>= {HELPER_GLIBC})")
        control = (
            f"Package: edgeward\nVersion: {self.version}-{self.revision}\nArchitecture: {architecture}\n"
            f"Maintainer: edgeward <edgeward@localhost>\nInstalled-Size: {size}\nDepends: {', '.join(depends)}\n"
            f"Recommends: ca-certificates\nSection: net\nPriority: optional\nDescription: {DESCRIPTION}"
        )
        kept = "".join(f"/{place}\n" for place in sorted(self.files) if place.startswith("etc/"))
        files = {"DEBIAN/control": (control.encode(), 0o644), "DEBIAN/conffiles": (kept.encode(), 0o644)}
        for name in MAINTAINER_SCRIPTS:
            if (script := self.root / "systemd/deb" / name).exists():
                files[f"DEBIAN/{name}"] = (script.read_bytes(), 0o755)
        return files


def folders(members):
    """Every folder above these, each once; the top one is the empty name."""
    above = set()
    for name in members:
        above.update(str(parent) for parent in Path(name).parents if str(parent) != ".")
    return above


def text_of(bill):
    return (json.dumps(bill, indent=1, sort_keys=True) + "\n").encode()
