"""A package made of a built program, the units and the maintainer scripts, where board/build's is not at hand."""

import pathlib
import shutil
import subprocess

FILES = [
    ("edgeward.service", "usr/lib/systemd/system/edgeward.service"),
    ("edgeward.socket", "usr/lib/systemd/system/edgeward.socket"),
    ("edgeward-nvml.service", "usr/lib/systemd/system/edgeward-nvml.service"),
    ("edgeward-nvml.socket", "usr/lib/systemd/system/edgeward-nvml.socket"),
    ("edgeward.sysusers", "usr/lib/sysusers.d/edgeward.conf"),
    ("edgeward.catalog", "usr/lib/systemd/catalog/edgeward.catalog"),
    ("edgeward.toml", "etc/edgeward/edgeward.toml"),
]


def make(repo, binary, helper, folder, version, tail=b""):
    """Returns the package's path. `tail` is put behind the program, which makes another build of it."""
    root = pathlib.Path(folder) / version
    units = pathlib.Path(repo) / "systemd"
    for source, target in FILES:
        if "nvml" in source and not helper:
            continue
        path = root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(units / source, path)
    program = root / "usr/bin/edgeward"
    program.parent.mkdir(parents=True)
    program.write_bytes(pathlib.Path(binary).read_bytes() + tail)
    program.chmod(0o755)
    if helper:
        program = root / "usr/libexec/edgeward/edgeward-nvml"
        program.parent.mkdir(parents=True)
        shutil.copyfile(helper, program)
        program.chmod(0o755)
    control = root / "DEBIAN"
    control.mkdir()
    architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    (control / "control").write_text(
        f"Package: edgeward\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: edgeward\n"
        "Depends: systemd, procps\nDescription: edgeward, as its own tests install it\n"
    )
    (control / "conffiles").write_text("/etc/edgeward/edgeward.toml\n")
    for script in ("postinst", "prerm", "postrm"):
        shutil.copyfile(units / "deb" / script, control / script)
        (control / script).chmod(0o755)
    package = pathlib.Path(folder) / f"edgeward_{version}.deb"
    subprocess.check_call(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(package)], stdout=subprocess.DEVNULL
    )
    return package
