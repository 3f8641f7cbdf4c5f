"""Healthy days that are made up: what the short real traces cannot show, how often the watchdog is wrong in a day, and
whether it learns."""

import pathlib
import random
import re
import subprocess

MIB = 1024  # In KiB.
STEP_MS = 200
DAY = 86_400_000
# Name, all memory, what is usually free with the model loaded, what a prompt takes at the most: in MiB.
BOXES = [
    ("Orin Nano 8 GB, tight", 7620, 700, 250),
    ("Orin NX 16 GB", 15_600, 4000, 900),
    ("Spark 128 GB, full", 122_500, 6000, 2500),
    ("AGX Orin 64 GB, roomy", 62_800, 25_000, 3000),
]
# `Total Available PsiSome PsiFull`, as bits of src/memory/sample.rs.
BITS = 1 << 0 | 1 << 1 | 1 << 9 | 1 << 10
BLIND = "0 10 0 0 0 0 0 4294967296 1000"
# The terms of a Jetson: floor, reserve, their shares, amber, red, hold, interval, fill, huge pages.
HEAD = "edgeward-trace 1 4294967296 4294967296 100 20 30000 10000 15000 100 6144 0\n"


def write(path: pathlib.Path, box: tuple, dice: random.Random, days: int) -> int:
    """Prompts that take and give back, a nightly job, three times a day another model, of which
    edgeward knows. Gives how often
    less than a tenth was left."""
    _, total, free, prompt = box
    floor, low = 0, False
    with open(path, "w", encoding="ascii") as out:
        out.write(HEAD)
        rest = total - free
        running = []  # (begin, ramp, end, size), in ms and MiB.
        gone = 0.0  # What the model that is away for now had.
        swaps = sorted(day * DAY + dice.randrange(DAY // 20, DAY * 19 // 20) for day in range(days) for _ in range(3))
        swap = None
        drift, next_prompt = 0.0, 0.0
        for ms in range(0, days * DAY, STEP_MS):
            busy = 0.3 + 0.7 * (0.5 if ms % DAY < DAY / 3 else 1)
            if ms >= next_prompt:
                next_prompt = ms + dice.expovariate(busy / 45_000)
                ramp = dice.uniform(300, 12_000)
                lasts = ramp + dice.expovariate(1 / 15_000)
                # Most are small; as sizes of prompts are.
                size = prompt * min(1.0, dice.paretovariate(1.2) * 0.08)
                running.append((ms, ramp, ms + lasts, size))
            if ms % DAY == DAY // 8:
                running.append((ms, 20_000, ms + 240_000, free * 0.25))  # The nightly job.
            running = [it for it in running if it[2] > ms]
            used = sum(size * min(1.0, (ms - begin) / ramp) for begin, ramp, _, size in running)
            # Another model: the old one goes, the new one is loaded in seconds, and takes nearly as much.
            if swaps and swap is None and ms >= swaps[0]:
                swaps.pop(0)
                swap = (ms, ms + 3000, ms + 3000 + dice.uniform(2000, 9000), dice.uniform(0.85, 1.0))
                out.write(f"e {ms} 2 0\n")
            if swap is not None:
                begin, empty, full, part = swap
                if empty <= ms < empty + STEP_MS:
                    out.write(f"e {ms} 0 {int(rest * 0.6 * MIB)}\n")
                if ms < empty:
                    gone = rest * 0.6
                elif ms < full:
                    gone = rest * 0.6 * (1 - part * (ms - empty) / (full - empty))
                else:
                    gone = rest * 0.6 * (1 - part)
                    if ms < full + STEP_MS:
                        out.write(f"e {ms} 1 0\n")
                    if ms > full + 1_800_000:
                        swap = None
            drift = max(-1.0, min(1.0, drift + dice.gauss(0, 0.002)))
            noise = dice.random() * total * 0.001
            available = total - rest + gone - used - drift * free * 0.08 - noise
            available = int(max(available, total * 0.004) * MIB)
            now = available < total * MIB / 10
            floor, low = floor + (now and not low), now
            psi = dice.randrange(0, 120) if dice.random() < 0.02 else 0
            out.write(f"s {ms} {BITS} 0 {total * MIB} {available} {psi} {psi // 3} = {BLIND}\n")
    return floor


def report(binary: str, folder: pathlib.Path, days: int) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"| healthy days, made up, {days} each | false episodes, first day | a later day | Red ones, first | later "
        "| time not Green | Red | below 10 %, a day |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for box in BOXES:
        path = folder / f"{box[1]}-{days}.trace"
        floor = path.with_suffix(".floor")
        if not floor.exists():
            floor.write_text(str(write(path, box, random.Random(box[0]), days)))
        said = subprocess.run([binary, "replay", "--looks", str(path)], check=True, capture_output=True, text=True).stdout
        found = re.search(r"; (\d+) episodes, amber for ([0-9.]+) s, red for ([0-9.]+) s", said)
        spans, was = {"any": [], "red": []}, "green"
        for at, level in re.findall(r"^([0-9.]+) s: (green|amber|red)", said, re.MULTILINE):
            if was == "green":
                spans["any"].append(float(at))
            if level == "red" and was != "red":
                spans["red"].append(float(at))
            was = level
        first = {key: sum(at < 86_400 for at in value) for key, value in spans.items()}
        later = {key: (len(spans[key]) - first[key]) / max(1, days - 1) for key in spans}
        red_time, time = float(found[3]), float(found[2]) + float(found[3])
        lines.append(
            f"| {box[0]} | {first['any']} | {later['any']:.2f} | {first['red']} | {later['red']:.2f} "
            f"| {time / days / 864:.3f} % | {red_time / days / 864:.3f} % | {int(floor.read_text()) / days:.0f} |"
        )
    return "\n".join(lines)
