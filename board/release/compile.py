"""Compiles one program of edgeward for one target, with whatever this machine has for that."""

import os
import shutil
import subprocess
from pathlib import Path

# The newest glibc that the helper may need: older than JetPack 5's (2.31), and as zig has it.
HELPER_GLIBC = "2.28"
# Where the standard library's source is in a compiler's folder, rustup's or Debian's.
STD = "lib/rustlib/src/rust/library"
# Without `backtrace`, which finds functions by symbols that a stripped program lacks. With `panic-unwind`: a panic costs
# one request, not the process.
STD_FEATURES = "panic-unwind,optimize_for_size"


class CannotBuild(Exception):
    """No way to build on this machine; the text says what to install."""


def has(program):
    return shutil.which(program) is not None


def text_of(*command, env=None):
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()


class Way:
    """How to build: a cargo command, its environment, and who compiles."""

    name = ""
    rustc = "rustc"

    def __init__(self, root, epoch):
        self.root = root
        self.env = dict(os.environ, SOURCE_DATE_EPOCH=str(epoch), CARGO_INCREMENTAL="0", LC_ALL="C", TZ="UTC")
        for variable in ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"):
            self.env.pop(variable, None)

    def missing(self, targets):
        """What this way lacks for these targets, as a sentence; empty if it can build."""
        raise NotImplementedError

    def arguments(self, target, glibc):
        """The cargo command; `glibc` is zig's suffix of a target, empty where there is no glibc."""
        raise NotImplementedError

    def compiler(self):
        return text_of(self.rustc, "--version", env=self.env)

    def flags(self, target):
        """No path of this machine may be in a program: two builds in two folders give the same bytes."""
        cargo_home = Path(self.env.get("CARGO_HOME") or Path.home() / ".cargo")
        folder = Path(self.env.get("CARGO_TARGET_DIR") or self.root / "target").resolve()
        sysroot = text_of(self.rustc, "--print", "sysroot", env=self.env)
        # Where crates lie unpacked. Their paths are in each panic's message: the short name saves 11 KB.
        crates = [(path, "/crates") for path in sorted((cargo_home / "registry/src").glob("*"))]
        # The last that fits wins, so the widest comes first.
        names = [(self.root, "/edgeward"), (cargo_home, "/cargo"), *crates, (sysroot, "/rust"), (folder, "/target")]
        return [f"--remap-path-prefix={path}={name}" for path, name in names]

    def build(self, package, target):
        """Builds; gives the program's path."""
        folder = Path(self.env.get("CARGO_TARGET_DIR") or self.root / "target").resolve()
        glibc = f".{HELPER_GLIBC}" if "-gnu" in target else ""
        command = self.arguments(target, glibc) + ["--locked", "--release", "--no-default-features", "-p", package]
        env = dict(self.env, RUSTFLAGS=" ".join(self.flags(target)))
        subprocess.run(command, cwd=self.root, env=env, check=True)
        return folder / target / "release" / package


class Zig(Way):
    """The standard library compiled along, for size, from its source; zig links and has the C library."""

    def __init__(self, root, epoch):
        super().__init__(root, epoch)
        # -Zbuild-std asks for this on a stable compiler.
        self.env["RUSTC_BOOTSTRAP"] = "1"

    def std(self):
        """Where the source of this compiler's standard library is to be."""
        return Path(text_of(self.rustc, "--print", "sysroot", env=self.env)) / STD

    def missing(self, targets):
        if not has("cargo-zigbuild"):
            return "no cargo-zigbuild: pip install cargo-zigbuild ziglang"
        if not has(self.rustc):
            return f"no {self.rustc}: {self.install}"
        return "" if self.std().is_dir() else f"no source of the standard library: {self.install}"

    def arguments(self, target, glibc):
        options = ["-Zbuild-std=std,panic_unwind", f"-Zbuild-std-features={STD_FEATURES}"]
        return ["cargo-zigbuild", "zigbuild", *options, "--target", target + glibc]

    def flags(self, target):
        # Shorter in each panic's message than where it lies under /rust.
        flags = [*super().flags(target), f"--remap-path-prefix={self.std()}=/std"]
        # A standard library built here brings no C library of its own. For glibc none ever does.
        return flags + (["-Clink-self-contained=no"] if target.endswith("-musl") else [])


class Rustup(Zig):
    """The compiler of Rust's developers."""

    name = "rustup"
    install = "rustup component add rust-src"


class Debian(Zig):
    """Debian's compiler."""

    name = "debian"
    rustc = "/usr/bin/rustc"
    install = "apt-get install rustc-web cargo-web rust-web-src"

    def __init__(self, root, epoch):
        super().__init__(root, epoch)
        # By name, not by PATH: in front of it, /usr/bin would hide the Python that has ziglang.
        self.env.update(CARGO="/usr/bin/cargo", RUSTC=self.rustc)


class Cross(Way):
    """cross, in a container; cross.toml says which."""

    name = "cross"

    def __init__(self, root, epoch):
        super().__init__(root, epoch)
        # Without this it looks for Cross.toml only, and says nothing.
        self.env["CROSS_CONFIG"] = str(root / "cross.toml")

    def missing(self, targets):
        if not has("cross"):
            return "no cross: cargo install cross"
        return "" if has("docker") or has("podman") else "cross is here, but neither docker nor podman"

    def arguments(self, target, glibc):
        return ["cross", "build", "--target", target]

    def flags(self, target):
        # What the paths are inside of its containers.
        return ["--remap-path-prefix=/project=/edgeward", "--remap-path-prefix=/target=/target"]


WAYS = (Rustup, Debian, Cross)


def choose(root, epoch, targets, wanted=None):
    """The first way that can build these targets.

    Raises CannotBuild, with what each of them lacks.
    """
    lacks = []
    for way in (way(root, epoch) for way in WAYS if wanted in (None, way.name)):
        missing = way.missing(targets)
        if not missing:
            return way
        lacks.append(f"  {way.name}: {missing}")
    raise CannotBuild("this machine cannot build it:\n" + "\n".join(lacks))
