"""The real llama.cpp server inside a box: it grows by its prompt cache and its context, to the end or within bounds."""

import json
import pathlib
import random
import subprocess
import threading
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
REAL = HERE.parent / "real" / "server.py"
VENV = pathlib.Path("~/.cache/edgeward/venv/bin/python").expanduser()
WORDS = "river stone cloud engine paper window garden silver music market winter planet copper signal".split()


def prompt(dice: random.Random, words: int) -> str:
    return " ".join(dice.choice(WORDS) + str(dice.randrange(100)) for _ in range(words))


def launch(group, cache_ram: int, extra: list[str] = ()) -> tuple[subprocess.Popen, int]:
    """Gives its process and port. Its stdin is to be kept open."""
    words = [str(VENV), str(REAL), "--cache", "--cache-ram", str(cache_ram), "--parallel", "1", *extra]
    child = subprocess.Popen(
        group.within(words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    line = child.stdout.readline()
    if not line.startswith("ready "):
        raise RuntimeError(f"the model server did not start: {line!r}")
    return child, int(line.split()[1])


def ask(port: int, text: str, answer: int, timeout: float = 120) -> bool:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": answer}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError, OSError):
        return False


def start(group, run):
    """As a hog: it lives at its usual level first, and then is asked for what makes it grow."""
    dice = random.Random(f"{run.kind}-{run.seed}")
    # A fatal one may keep as much as llama.cpp does by itself, which is more than the box has.
    child, port = launch(group, 8192 if run.fatal else 128)
    ask(port, prompt(dice, 600), 8)

    def play(onset):
        ended = threading.Event()
        usual = prompt(dice, 300)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            ask(port, usual, 8)
            time.sleep(1)
        onset()
        until = time.monotonic() + (900 if run.fatal else 150)
        while time.monotonic() < until and child.poll() is None and not ended.is_set():
            ask(port, prompt(dice, dice.randrange(600, 1200)), 8)
        try:
            child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            # Not by the kernel for its memory.
            if run.fatal:
                raise RuntimeError("the model server did not run out of memory") from None

    return child, play
