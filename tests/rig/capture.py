"""Captures traces: programs that run out of memory, and healthy ones, each in a memory cgroup that stands for a box, with
`edgeward record` beside it. The kernel's OOM kill is the truth."""

import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
EVERY = "50ms"  # Denser than the watchdog looks: a replay takes of it what it would have seen.
AT_ONCE_MIB = 9 * 1024  # All boxes at one time.
OLD = not pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
ROOT = pathlib.Path("/sys/fs/cgroup/memory" if OLD else "/sys/fs/cgroup")


@dataclasses.dataclass
class Run:
    """One trace to be: its class, what makes it, and whether it is to end in a kill."""

    kind: str
    seed: int
    total: int
    words: list[str]
    fatal: bool
    server: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.seed}"


class Group:
    """A memory cgroup of its own."""

    def __init__(self, name: str, total: int) -> None:
        self.path = ROOT / f"edgeward-rig-{name}-{os.getpid()}"
        self.path.mkdir()
        limit = "memory.limit_in_bytes" if OLD else "memory.max"
        (self.path / limit).write_text(str(total * MIB))
        for file, none in (("memory.swap.max", "0"), ("memory.swappiness", "0")):
            try:
                (self.path / file).write_text(none)
            except OSError:
                pass  # A kernel without swap accounting has no such file.

    def within(self, words: list[str]) -> list[str]:
        script = 'echo 900 > /proc/$$/oom_score_adj; echo $$ > "$0/cgroup.procs" && exec "$@"'
        return ["sh", "-c", script, str(self.path), *words]

    def remove(self) -> None:
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.05)


def plan(seeds: int) -> list[Run]:
    """What is captured: each class with so many seeds."""
    runs = []
    for seed in range(seeds):
        for rate in (1, 10, 100):
            dice = random.Random(f"leak-{rate}-{seed}")
            total = dice.choice([2048, 4096] if rate == 100 else [1024, 2048])
            share = {1: (0.04, 0.07), 10: (0.1, 0.35), 100: (0.3, 0.7)}[rate]
            free = int(total * dice.uniform(*share))
            speed = rate * dice.uniform(0.8, 1.2)
            words = ["leak", "--total", total, "--free", free, "--rate", round(speed, 2), "--time", 900]
            runs.append(Run(f"leak-{rate}", seed, total, words, True))
        dice = random.Random(f"load-{seed}")
        total = dice.choice([2048, 4096])
        free = int(total * dice.uniform(0.4, 0.8))
        words = ["load", "--total", total, "--free", free, "--size", int(free * dice.uniform(1.1, 1.5))]
        words += ["--takes", round(dice.uniform(1.5, 8), 1), "--time", 5]
        runs.append(Run("load", seed, total, words, True))

        dice = random.Random(f"benign-load-{seed}")
        total = dice.choice([1024, 2048])
        free = int(total * dice.uniform(0.5, 0.85))
        words = ["benign-load", "--total", total, "--free", free, "--size", int(free * dice.uniform(0.4, 0.75))]
        words += ["--takes", round(dice.uniform(1.5, 8), 1), "--time", 150]
        runs.append(Run("benign-load", seed, total, words, False))
        dice = random.Random(f"saw-{seed}")
        free = int(1024 * dice.uniform(0.15, 0.5))
        words = ["saw", "--total", 1024, "--free", free, "--size", int(free * dice.uniform(0.3, 0.6))]
        words += ["--takes", round(dice.uniform(4, 40), 1), "--time", 240]
        runs.append(Run("saw", seed, 1024, words, False))
        dice = random.Random(f"walk-{seed}")
        free = int(1024 * dice.uniform(0.1, 0.4))
        words = ["walk", "--total", 1024, "--free", free, "--size", int(free * 0.5), "--time", 240]
        runs.append(Run("walk", seed, 1024, words, False))
        dice = random.Random(f"cache-{seed}")
        free = int(1024 * dice.uniform(0.2, 0.5))
        words = ["cache", "--total", 1024, "--free", free, "--rate", round(dice.uniform(50, 300)), "--time", 150]
        runs.append(Run("cache", seed, 1024, words, False))
    for seed in range(max(1, seeds // 4)):
        runs.append(Run("server", seed, 768, [], True, server=True))
        runs.append(Run("benign-server", seed, 768, [], False, server=True))
    for number, run in enumerate(runs):
        run.words = [str(word) for word in run.words]
        if not run.server:
            run.words += ["--seed", str(number)]
    return runs


def record(binary: str, group: Group, folder: pathlib.Path, name: str) -> tuple[subprocess.Popen, float]:
    config = folder / f"{name}.toml"
    config.write_text(f'[memory]\nboard = "jetson-orin"\ncgroup = "{group.path}"\n')
    trace = folder / f"{name}.trace"
    trace.unlink(missing_ok=True)
    words = [binary, "record", "--every", EVERY, "--config", str(config), str(trace)]
    recorder = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    while not trace.exists() or not trace.stat().st_size:
        time.sleep(0.002)
    return recorder, time.monotonic()


def capture(binary: str, run: Run, folder: pathlib.Path) -> str:
    """One trace, with what is known of it beside it. Returns a line that tells of it."""
    group = Group(run.name, run.total)
    child = None
    try:
        if run.server:
            import server  # Needs what tests/real/ needs.

            child, play = server.start(group, run)
        else:
            words = [sys.executable, str(HERE / "hog.py"), *run.words]
            if run.words[0] == "cache":
                # One with a hole from end to end: reading it fills the page cache, and no disk. Its own: what another
                # box reads, too, would be called active.
                hole = folder / f"{run.name}.hole"
                with open(hole, "wb") as file:
                    file.truncate(4096 * MIB)
                words += ["--file", str(hole)]
            child = subprocess.Popen(group.within(words), stdout=subprocess.PIPE, text=True)
            assert child.stdout.readline() == "based\n", run

            def play(onset):
                if child.stdout.readline() == "onset\n":
                    onset()
                child.wait()

        recorder, start = record(binary, group, folder, run.name)
        known = {"kind": run.kind, "fatal": run.fatal, "total_mib": run.total, "words": run.words}
        known["onset_ms"] = 0

        def onset():
            known["onset_ms"] = int((time.monotonic() - start) * 1000)

        play(onset)
        known["end_ms"] = int((time.monotonic() - start) * 1000)
        time.sleep(0.5)
        recorder.send_signal(signal.SIGTERM)
        recorder.wait()
        known["killed"] = run.fatal and child.poll() == -signal.SIGKILL
        (folder / f"{run.name}.json").write_text(json.dumps(known))
        return f"{run.name}: {known['end_ms'] / 1000:.0f} s, killed: {known['killed']}"
    finally:
        if child is not None and child.poll() is None:
            child.kill()
            child.wait()
        (folder / f"{run.name}.hole").unlink(missing_ok=True)
        group.remove()


def capture_all(binary: str, runs: list[Run], folder: pathlib.Path, at_once: int) -> None:
    """Those that are not there yet, so many at a time and no more memory than there may be."""
    folder.mkdir(parents=True, exist_ok=True)
    left = [run for run in runs if not (folder / f"{run.name}.json").exists()]
    busy, lock = [], threading.Condition()

    def one(run: Run) -> None:
        try:
            said = capture(binary, run, folder)
        except Exception as error:  # One that fails is said, and made again by the next call.
            said = f"{run.name}: FAILED: {error!r}"
        with lock:
            busy.remove(run)
            lock.notify()
        print(said, flush=True)

    threads = []
    for run in left:
        with lock:
            # Two servers at once would only wait for each other's processor.
            fits = lambda: (
                len(busy) < at_once
                and sum(other.total for other in busy) + run.total <= AT_ONCE_MIB
                and not (run.server and any(other.server for other in busy))
            )
            lock.wait_for(fits)
            busy.append(run)
        thread = threading.Thread(target=one, args=(run,))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
