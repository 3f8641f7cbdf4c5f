"""The watchdog's rig: how early it sees memory run out, and how often it is wrong.

    python3 tests/rig/rig.py capture   # real OOM kills in memory cgroups, about 25 minutes; needs root or a delegated cgroup
    python3 tests/rig/rig.py figures   # replays the traces with this build, and prints the tables
    python3 tests/rig/rig.py days      # healthy days that are made up: false episodes a day
    python3 tests/rig/rig.py pair      # llama.cpp outgrows its box, with the watchdog and without: what clients lose
"""

import argparse
import pathlib
import sys

import capture
import days
import figures
import pair

HERE = pathlib.Path(__file__).resolve().parent
TRACES = pathlib.Path("~/.cache/edgeward/rig").expanduser()
BINARY = HERE.parent.parent / "target" / "debug" / "edgeward"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["capture", "figures", "days", "pair"])
    parser.add_argument("--edgeward", default=str(BINARY), help="the built program")
    parser.add_argument("--traces", type=pathlib.Path, default=TRACES, help="where traces are")
    parser.add_argument("--seeds", type=int, default=12, help="traces of each class")
    parser.add_argument("--only", default="", help="classes, with commas")
    parser.add_argument("--days", type=int, default=4, help="of each box, one after the other")
    parser.add_argument("--pairs", type=int, default=3, help="of paired runs")
    parser.add_argument("--seconds", type=float, default=240, help="that a paired run takes")
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
    elif args.what == "pair":
        print(pair.report(args.edgeward, args.pairs, args.seconds))
    else:
        traces = figures.all_traces(args.edgeward, args.traces, args.half)
        if args.each:
            for trace in traces:
                print(trace.name, f"{trace.physical:.1f} s to the end, {trace.looks:.1f} looks a second", trace.seen["edgeward"])
        print(figures.tables(traces))


if __name__ == "__main__":
    main()
