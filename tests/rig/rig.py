"""The watchdog's rig: how early it sees memory run out, and how often it is wrong.

    python3 tests/rig/rig.py capture   # real OOM kills in memory cgroups, about an hour; who may make no cgroup may not
    python3 tests/rig/rig.py figures   # replays the traces with this build, and prints the tables
    python3 tests/rig/rig.py days      # healthy days that are made up: false episodes a day
    python3 tests/rig/rig.py pair      # a model server outgrows its box, with the watchdog and without: what clients lose
    python3 tests/rig/rig.py cost --edgeward target/release/edgeward   # CPU, wakeups and memory of watching
    python3 tests/rig/rig.py short     # one real leak of 100 MiB/s; fails where its lead is less than 5 s
    python3 tests/rig/rig.py fixtures  # makes tests/rig/traces/ anew of captured traces

Traces are in two halves by a hash of their names: `figures` reports on one, `figures --half tune` shows the other, by which
the predictor is tuned. The published tables are of

    rig.py capture && rig.py capture --seeds 36 --only leak-10,leak-100 && rig.py figures && rig.py days

on 2 cores that others use, too. A box is a memory cgroup of 0.75 to 4 GiB; what is in it is tests/rig/hog.py, or llama.cpp
with a model of 135 M, which `tests/run` installs.
"""

import argparse
import pathlib
import sys
import tempfile

import capture
import cost
import days
import figures
import pair

HERE = pathlib.Path(__file__).resolve().parent
TRACES = pathlib.Path("~/.cache/edgeward/rig").expanduser()
BINARY = HERE.parent.parent / "target" / "debug" / "edgeward"

# Name, between two samples, before and after the fault: in ms.
FIXTURES = [
    ("leak-1-3", 250, 20_000, 60_000),
    ("leak-10-9", 100, 15_000, 30_000),
    ("leak-100-2", 100, 15_000, 10_000),
    ("leak-100-6", 100, 10_000, 20_000),
    ("server-0", 1000, 30_000, 800_000),
    ("cache-0", 250, 10_000, 60_000),
    ("walk-0", 200, 20_000, 60_000),
]


def short(binary: str, folder: pathlib.Path) -> None:
    words = "leak --total 1536 --free 1100 --rate 100 --rest 8 --time 60".split()
    run = capture.Run("leak-100", 0, 1536, words, True)
    folder.mkdir(parents=True, exist_ok=True)
    print(capture.capture(binary, run, folder))
    trace = figures.Trace(binary, folder, run.name)
    lead = trace.seen["edgeward"]["lead"]
    print(f"{trace.physical:.1f} s from its beginning to the kill; seen {lead} s before it")
    if not trace.good or lead is None or lead < 5:
        sys.exit("the leak was not seen 5 s before the kill")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["capture", "figures", "days", "pair", "cost", "short", "fixtures"])
    parser.add_argument("--edgeward", default=str(BINARY), help="the built program")
    parser.add_argument("--traces", type=pathlib.Path, default=TRACES, help="where traces are")
    parser.add_argument("--seeds", type=int, default=12, help="traces of each class")
    parser.add_argument("--only", default="", help="classes, with commas")
    parser.add_argument("--days", type=int, default=4, help="of each box, one after the other")
    parser.add_argument("--pairs", type=int, default=3, help="of paired runs")
    parser.add_argument("--seconds", type=float, default=240, help="that a paired run takes")
    parser.add_argument("--server", choices=["llamacpp", "made-up"], default="made-up", help="of paired runs")
    parser.add_argument("--half", choices=["tune", "report", "both"], default="report")
    parser.add_argument("--each", action="store_true", help="a line for each trace, too")
    parser.add_argument("--at-once", type=int, default=4)
    args = parser.parse_args()
    if args.what == "capture":
        runs = capture.plan(args.seeds)
        only = [kind for kind in args.only.split(",") if kind]
        runs = [run for run in runs if not only or run.kind in only]
        capture.capture_all(args.edgeward, runs, args.traces, args.at_once)
    elif args.what == "days":
        print(days.report(args.edgeward, args.traces / "days", args.days))
    elif args.what == "short":
        with tempfile.TemporaryDirectory() as folder:
            short(args.edgeward, pathlib.Path(folder))
    elif args.what == "fixtures":
        (HERE / "traces").mkdir(exist_ok=True)
        for name, every, before, after in FIXTURES:
            figures.fixture(args.traces, name, HERE / "traces" / f"{name}.trace", every, before, after)
    elif args.what == "cost":
        print(cost.report(args.edgeward, args.seconds))
    elif args.what == "pair":
        print(pair.report(args.edgeward, args.server, args.pairs, args.seconds))
    else:
        traces = figures.all_traces(args.edgeward, args.traces, args.half)
        if args.each:
            for trace in traces:
                print(trace.name, f"{trace.physical:.1f} s to the end, {trace.looks:.1f} looks a second", trace.seen["edgeward"])
        print(figures.tables(traces))


if __name__ == "__main__":
    main()
