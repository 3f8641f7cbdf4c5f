"""What watching costs a serving edgeward: its CPU time and wakeups over a while, with the watchdog and without, calm and at
its busiest; and the memory that it adds."""

import pathlib
import subprocess
import tempfile
import time

import capture
import pair


def measured(pid: int, seconds: float) -> tuple[float, float, int]:
    """CPU in percent of a core, switches a second by its own will, private memory in KiB."""

    def now():
        ran = int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        status = pathlib.Path(f"/proc/{pid}/status").read_text().split("\n")
        switches = next(int(line.split()[1]) for line in status if line.startswith("voluntary"))
        private = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        return ran, switches, private

    before, start = now(), time.monotonic()
    time.sleep(seconds)
    after, took = now(), time.monotonic() - start
    return (after[0] - before[0]) / took / 1e7, (after[1] - before[1]) / took, after[2]


def report(binary: str, seconds: float) -> str:
    lines = ["| | CPU of a core | wakeups a second | private memory |", "|---|---:|---:|---:|"]
    group = capture.Group("cost", 1024)
    try:
        for name, memory in (
            ("not watched", "enabled = false"),
            ("watched, calm", f'cgroup = "{group.path}"'),
            # Below its floor it is amber, and looks ten times a second.
            ("watched, amber", f'cgroup = "{group.path}"\nfloor = "1000GiB"'),
        ):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="edgeward-cost-"))
            config = folder / "edgeward.toml"
            config.write_text(
                f'listen = ["127.0.0.1:{pair.free_port()}"]\n[memory]\nboard = "jetson-orin"\n{memory}\n'
                f'[[target]]\nname = "box"\nkind = "openai"\nurl = "http://127.0.0.1:{pair.free_port()}"\nplace = "local"\n'
                "probe = false\n"
            )
            gate = subprocess.Popen([binary, "run", "--config", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                time.sleep(15)
                cpu, wakeups, private = measured(gate.pid, seconds)
                lines.append(f"| {name} | {cpu:.3f} % | {wakeups:.1f} | {private} KiB |")
            finally:
                gate.kill()
                gate.wait()
    finally:
        group.remove()
    return "\n".join(lines)
