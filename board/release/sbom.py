"""The bills of materials of a release, CycloneDX 1.5, one a program: cargo-cyclonedx makes them, here they lose this
machine's paths and gain who compiled."""

import json
import os
import shutil
import subprocess
import tomllib

# The version that releases are made with; tests/release installs it.
VERSION = "0.5.9"
# What a folder's path is called in every bill; the same as in a program.
ROOT_NAME = "file:///edgeward"


class NoBill(Exception):
    """The bill can't be made; the text says what to do."""


def missing():
    """What this machine lacks, as a sentence; empty if a bill can be made."""
    if shutil.which("cargo-cyclonedx"):
        return ""
    return f"no cargo-cyclonedx, which makes the bill of materials: cargo install --locked cargo-cyclonedx@{VERSION}"


def make(root, program, target, epoch, about):
    """The bill of one program for its target, features as in a release: every crate that may be compiled in.

    Without a serial number, and dated as the source: equal source gives an equal bill. Cargo's metadata joins the
    features that tests ask for to the others, so a bill may name a crate more than there is, never one less.
    """
    # It writes beside each manifest, and into no other folder.
    name = f"edgeward-bill-{os.getpid()}"
    members = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["members"]
    places = [root / member / f"{name}.json" for member in (".", *members)]
    command = ["cargo-cyclonedx", "cyclonedx", "-qq", "--format", "json", "--spec-version", "1.5"]
    command += ["--no-default-features", "--no-build-deps", "--target", target, "--override-filename", name]
    env = dict(os.environ, SOURCE_DATE_EPOCH=str(epoch), LC_ALL="C")
    try:
        subprocess.run(command, cwd=root, env=env, check=True)
        bills = [json.loads(place.read_text().replace(root.as_uri(), ROOT_NAME)) for place in places]
    finally:
        for place in places:
            place.unlink(missing_ok=True)
    bill = next((bill for bill in bills if bill["metadata"]["component"]["name"] == program), None)
    if bill is None:
        raise NoBill(f"cargo-cyclonedx made no bill for {program}")
    bill["metadata"].setdefault("properties", []).extend(
        {"name": f"edgeward:{key}", "value": value} for key, value in sorted(about.items())
    )
    return bill
