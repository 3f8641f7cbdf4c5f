"""A program that uses memory in one of the rig's ways: prints `based` when it lives at its usual level, `onset` when it
leaves that, and ends by itself, or by the kernel."""

import argparse
import mmap
import random
import sys
import time

MIB = 1 << 20
TICK = 0.05  # Seconds between two changes: finer than the watchdog looks.
BREATH = 0.003  # A resting server still breathes by this part of all memory.
FILE_BLOCK = 4 * MIB


class Hog:
    """Anonymous memory that is really there."""

    def __init__(self, most: int) -> None:
        self.area = mmap.mmap(-1, most, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Page by page, as it is asked for.
        self.area.madvise(mmap.MADV_NOHUGEPAGE)
        self.most, self.held = most, 0
        self.piece = b"x" * MIB

    def to(self, want: float) -> None:
        """Holds `want` bytes from here on."""
        want = max(0, min(self.most, int(want))) // mmap.PAGESIZE * mmap.PAGESIZE
        while self.held < want:
            step = min(want - self.held, MIB)
            self.area[self.held : self.held + step] = self.piece[:step]
            self.held += step
        if want < self.held:
            self.area.madvise(mmap.MADV_DONTNEED, want, self.held - want)
            self.held = want


def every_tick(seconds: float):
    """Seconds since the beginning, at each tick."""
    start = time.monotonic()
    number = 0
    while (now := time.monotonic() - start) < seconds:
        yield now
        number += 1
        time.sleep(max(0.0, start + number * TICK - time.monotonic()))


def rest(hog: Hog, base: float, breath: float, seconds: float, dice: random.Random) -> None:
    level = base
    for now in every_tick(seconds):
        if dice.random() < 0.2:
            level = base - dice.random() * breath
        hog.to(level)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["leak", "load", "benign-load", "saw", "cache", "walk"])
    parser.add_argument("--total", type=int, required=True, help="the box, in MiB")
    parser.add_argument("--free", type=int, required=True, help="usually free, in MiB")
    parser.add_argument("--rate", type=float, default=10, help="a leak's, in MiB a second")
    parser.add_argument("--takes", type=float, default=3, help="seconds that a load or a tooth takes")
    parser.add_argument("--size", type=int, default=0, help="a load's or a tooth's, in MiB")
    parser.add_argument("--rest", type=float, default=30, help="seconds at the usual level")
    parser.add_argument("--time", type=float, default=240, help="seconds of what comes then")
    parser.add_argument("--file", help="what the page cache is filled from")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dice = random.Random(args.seed)
    hog = Hog(args.total * 2 * MIB)
    base = (args.total - args.free) * MIB - 12 * MIB  # Less what the interpreter itself has.
    breath = args.total * MIB * BREATH
    hog.to(base)
    print("based", flush=True)
    rest(hog, base, breath, args.rest, dice)
    print("onset", flush=True)

    if args.kind == "leak":
        level, before = base, 0.0
        for now in every_tick(args.time):
            # In bursts, as programs allocate: nothing for a while, then more.
            level += args.rate * MIB * (now - before) * dice.choice([0, 0.5, 1, 1.5, 2])
            before = now
            hog.to(level)
    elif args.kind in ("load", "benign-load"):
        size = args.size * MIB
        for now in every_tick(args.takes):
            hog.to(base + size * now / args.takes)
        rest(hog, base + size, breath, args.time, dice)
    elif args.kind == "saw":
        size, start, period = args.size * MIB, 0.0, args.takes
        height = size
        for now in every_tick(args.time):
            if now - start >= period:
                # No two teeth are the same.
                start, period, height = now, args.takes * dice.uniform(0.7, 1.3), size * dice.uniform(0.6, 1)
            hog.to(base + height * (now - start) / period - dice.random() * breath)
    elif args.kind == "walk":
        level = base
        for now in every_tick(args.time):
            pull = (base - level) * 0.02
            level += pull + dice.gauss(0, 1) * args.size * MIB * 0.04
            hog.to(min(level, base + args.size * MIB))
    elif args.kind == "cache":
        with open(args.file, "rb", buffering=0) as file:
            for _ in every_tick(args.time):
                rest(hog, base, breath, TICK, dice)
                for _ in range(max(1, int(args.rate * MIB * TICK / FILE_BLOCK))):
                    if not file.read(FILE_BLOCK):
                        file.seek(0)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
