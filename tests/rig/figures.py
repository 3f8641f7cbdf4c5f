"""Replays traces, and makes tables of what the watchdog and its baselines saw of them."""

import hashlib
import json
import math
import pathlib
import re
import statistics
import subprocess

FATAL = ["leak-1", "leak-10", "leak-100", "load", "server"]
BENIGN = ["benign-load", "told-load", "saw", "walk", "cache", "benign-server"]
NAMES = {
    "leak": "all leaks together",
    "leak-1": "leak, 1 MiB/s",
    "leak-10": "leak, 10 MiB/s",
    "leak-100": "leak, 100 MiB/s",
    "load": "sudden load, 1.5 to 8 s, known to nobody",
    "server": "llama.cpp, prompt cache and context",
    "benign-load": "a load that fits, known to nobody",
    "told-load": "the same, with what admission tells put in",
    "saw": "sawtooth",
    "walk": "memory that wanders",
    "cache": "page cache that fills",
    "benign-server": "llama.cpp within bounds",
}
# As `Field::ALL` of src/memory/sample.rs.
FIELDS = (
    "Total Available Free HugeTotal HugeFree SwapFree NvMap SwapIn Kills PsiSome PsiFull DeviceTotal DeviceFree "
    "GroupMax GroupCurrent GroupFile GroupKills"
).split()
FLOOR = 0.1  # The plain baseline: alarm below a tenth.
LATE = 0.2  # Seconds that a lead may be wrong by: a trace's line each 50 ms, a replay's tenths, the fault's own start.


def half(name: str) -> str:
    """Which half a trace is in, by its name: one is to tune on, the other to report on."""
    return "tune" if hashlib.sha256(name.encode()).digest()[0] % 2 == 0 else "report"


def box(trace: pathlib.Path, out: pathlib.Path) -> list[tuple[int, int, int, int]]:
    """The cgroup's trace as if it were a box's: its limit is all memory, its kills are the box's. What other programs of
    this machine do with its memory is left out, and so is PSI, which version 1 of cgroups has for the whole machine only:
    Red has one sign less here than on a box. Gives (milliseconds, available, all, kills) of each sample."""
    points = []
    with open(trace, encoding="ascii", errors="replace") as lines, open(out, "w", encoding="ascii") as to:
        for line in lines:
            if not line.startswith("s ") or " = " not in line or not line.endswith("\n"):
                if line.startswith("edgeward"):
                    to.write(line)
                continue
            left, right = line.split(" = ")
            words = left.split()
            ms, good = int(words[1]), int(words[2])
            values = dict(zip((name for bit, name in enumerate(FIELDS) if good >> bit & 1), map(int, words[4:])))
            if not {"GroupMax", "GroupCurrent", "GroupFile", "GroupKills"} <= values.keys():
                continue
            total = values["GroupMax"]
            available = min(total, max(0, total - max(0, values["GroupCurrent"] - values["GroupFile"])))
            new = {"Total": total, "Available": available, "Kills": values["GroupKills"]}
            bits = sum(1 << FIELDS.index(name) for name in new)
            shown = " ".join(str(new[name]) for name in FIELDS if name in new)
            to.write(f"s {ms} {bits} 0 {shown} = {right}")
            points.append((ms, available, total, values["GroupKills"]))
    return points


def tell(trace: pathlib.Path, known: dict) -> None:
    """Puts in what admission tells the watchdog of a load: that it begins, and what it is to take, and that it is done."""
    given = dict(zip(known["words"][1::2], known["words"][2::2]))
    begin = known["onset_ms"]
    end = begin + int(float(given["--takes"]) * 1000) + 200  # The last of it is a tick later.
    events = [(begin, f"e {begin} 0 {int(given['--size']) * 1024}\n"), (end, f"e {end} 1 0\n")]
    lines = trace.read_text().splitlines(keepends=True)
    with open(trace, "w", encoding="ascii") as out:
        for line in lines:
            while events and line.startswith("s ") and int(line.split(" ", 2)[1]) >= events[0][0]:
                out.write(events.pop(0)[1])
            out.write(line)


def alarms(said: str) -> tuple[list[tuple[float, str]], float | None]:
    """(seconds, level) of each change, and when it was killed first."""
    changes, killed = [], None
    for line in said.splitlines():
        if found := re.match(r"([0-9.]+) s: (green|amber|red|killed)", line):
            if found[2] == "killed":
                killed = killed or float(found[1])
            else:
                changes.append((float(found[1]), found[2]))
    return changes, killed


def floor_alarms(points) -> list[tuple[float, str]]:
    changes, low = [], False
    for ms, available, total, _ in points:
        if (available < total * FLOOR) != low:
            low = not low
            changes.append((ms / 1000, "red" if low else "green"))
    return changes


def episodes(changes, begin: float, end: float):
    """Spans that are not green, (from, to, when red or None)."""
    spans, since, red = [], None, None
    for at, level in [*changes, (end, "green")]:
        if level == "green":
            if since is not None and at > begin:
                spans.append((max(since, begin), min(at, end), red))
            since = red = None
        else:
            since = at if since is None else since
            if level == "red" and red is None:
                red = at
    return spans


class Trace:
    """One, and what was made of it: by method, the lead of Amber and of Red, false episodes, time not Green."""

    def __init__(self, binary: str, folder: pathlib.Path, name: str, told: bool = False) -> None:
        known = json.loads((folder / f"{name}.json").read_text())
        self.name, self.kind, self.fatal = name, known["kind"], known["fatal"]
        made = folder / "box"
        made.mkdir(exist_ok=True)
        points = box(folder / f"{name}.trace", made / f"{name}.trace")
        if told:
            self.kind = "told-load"
            tell(made / f"{name}.trace", known)
        words = [binary, "replay", "--looks", str(made / f"{name}.trace")]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        changes, killed = alarms(said)
        onset = known["onset_ms"] / 1000
        last = points[-1][0] / 1000
        self.looks = int(re.search(r"(\d+) samples over", said)[1]) / last
        self.good = (killed is not None) == self.fatal
        self.benign = onset if self.fatal else last
        end = killed if self.fatal and killed else last
        self.onset, self.physical = onset, end - onset
        self.seen = {}
        for method, made_of in (("edgeward", changes), ("floor", floor_alarms(points)), ("nothing", [])):
            false = episodes([c for c in made_of if c[0] <= self.benign], 0, self.benign)
            true = [span for span in episodes(made_of, onset, end)] if self.fatal else []
            # The one that lasts to the end is the alarm; one that ended before was a false one.
            lead = end - true[-1][0] if true and true[-1][1] >= end - LATE else None
            red = end - max(true[-1][2], onset) if lead is not None and true[-1][2] is not None else None
            red_time = sum(to - max(red, begin) for begin, to, red in false if red is not None)
            self.seen[method] = {
                "lead": lead,
                "red": red,
                "false": len(false),
                "false_red": sum(1 for span in false if span[2] is not None),
                "shut": sum(to - begin for begin, to, _ in false),
                "red_time": red_time,
            }


def wilson(hits: int, of: int) -> str:
    """A share with its 95 % interval."""
    if of == 0:
        return "-"
    z, share = 1.96, hits / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    width = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return f"{share:.2f} ({max(0.0, middle - width):.2f} to {min(1.0, middle + width):.2f})"


def tenth(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.1)] if values else float("nan")


def tables(traces: list[Trace]) -> str:
    out = []
    odd = [trace.name for trace in traces if not trace.good]
    traces = [trace for trace in traces if trace.good]
    if odd:
        out.append(f"Left out, since they did not end as they were to: {', '.join(odd)}.\n")
    for method in ("edgeward", "floor"):
        out.append(f"**{'edgeward' if method == 'edgeward' else 'a floor of 10 %'}**\n")
        out.append("| what runs out | traces | seen >= 5 s before | of those that last 5 s | >= 15 s | lead, median | 10 % | Red, median |")
        out.append("|---|---:|---|---|---|---:|---:|---:|")
        for kind in ["leak", *FATAL]:
            some = [trace for trace in traces if trace.fatal and (trace.kind == kind or kind in trace.kind.split("-"))]
            if not some:
                continue
            leads = [trace.seen[method]["lead"] or 0.0 for trace in some]
            reds = [trace.seen[method]["red"] or 0.0 for trace in some]
            able = [lead for lead, trace in zip(leads, some) if trace.physical >= 5 + 1]
            cells = [
                NAMES[kind],
                str(len(some)),
                wilson(sum(lead >= 5 for lead in leads), len(some)),
                wilson(sum(lead >= 5 for lead in able), len(able)),
                wilson(sum(lead >= 15 for lead in leads), len(some)),
                f"{statistics.median(leads):.1f} s",
                f"{tenth(leads):.1f} s",
                f"{statistics.median(reds):.1f} s",
            ]
            out.append("| " + " | ".join(cells) + " |")
        out.append("")
        out.append("| healthy | hours | false episodes | an hour | Red ones | time not Green | Red |")
        out.append("|---|---:|---:|---:|---:|---:|---:|")
        for kind in [*BENIGN, "rest"]:
            # What leaks was healthy before.
            some = [trace for trace in traces if (trace.kind == kind if kind != "rest" else trace.fatal)]
            if not some:
                continue
            hours = sum(trace.benign for trace in some) / 3600
            total = {key: sum(trace.seen[method][key] for trace in some) for key in ("false", "false_red", "shut", "red_time")}
            name = NAMES.get(kind, "at rest, before it leaks")
            share, red = total["shut"] / hours / 36, total["red_time"] / hours / 36
            out.append(
                f"| {name} | {hours:.2f} | {total['false']} | {total['false'] / hours:.1f} | {total['false_red']} "
                f"| {share:.1f} % | {red:.1f} % |"
            )
        out.append("")
    return "\n".join(out)


def all_traces(binary: str, folder: pathlib.Path, which: str) -> list[Trace]:
    names = sorted(file.stem for file in folder.glob("*.json"))
    names = [name for name in names if which == "both" or half(name) == which]
    told = [Trace(binary, folder, name, told=True) for name in names if name.startswith("benign-load-")]
    return told + [Trace(binary, folder, name) for name in names]


def fixture(folder: pathlib.Path, name: str, out: pathlib.Path, every_ms: int, before_ms: int, after_ms: int) -> None:
    """A trace made small, for the tests: thinner, and without most of what was before its fault. What was decided then is
    left out: a replay decides anew."""
    known = json.loads((folder / f"{name}.json").read_text())
    begin = max(0, known["onset_ms"] - before_ms)
    last, kills = None, 0
    with open(folder / "box" / f"{name}.trace", encoding="ascii") as lines, open(out, "w", encoding="ascii") as to:
        for line in lines:
            words = line.split(" = ")[0].split()
            if words[0] != "s":
                to.write(line)
                continue
            ms = int(words[1])
            killed, kills = int(words[6]) != kills, int(words[6])
            if begin <= ms <= known["onset_ms"] + after_ms and (last is None or killed or ms - last >= every_ms):
                last = ms
                to.write(f"s {ms - begin} {' '.join(words[2:])} = 0 10 0 0 0 0 0 4294967296 1000\n")
