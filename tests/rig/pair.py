"""Paired runs: a model server in a box that it outgrows, edgeward before it, a cloud behind; the same requests with the
watchdog and without. Counts what clients lose.

The server is the real llama.cpp, which needs a processor or two for itself for some minutes, or one that is made up: it
keeps some memory of each request, as a prompt cache does, and streams at its leisure."""

import http.server
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import capture
import server

TOTAL_MIB = {"llamacpp": 320, "made-up": 420}  # llama.cpp begins at some 240 MiB here, and keeps each prompt.
CLIENTS = {"llamacpp": 2, "made-up": 4}
ANSWER = {"llamacpp": 16, "made-up": 96}  # Tokens at most; what llama.cpp keeps is the prompts.
FIRST_TOKEN = 120  # Seconds; this machine computes prompts slowly.


class Cloud(http.server.BaseHTTPRequestHandler):
    """One that answers at once, and counts."""

    protocol_version = "HTTP/1.1"
    answered = 0

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        Cloud.answered += 1
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "cloud"}
        words = [{"role": "assistant", "content": "cloud "}, {"content": "answer"}, {}]
        text = "".join(
            "data: " + json.dumps(chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}]}) + "\n\n"
            for delta in words
        )
        body = (text + "data: [DONE]\n\n").encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class MadeUp(http.server.BaseHTTPRequestHandler):
    """A model server that keeps 4 to 12 MiB of each request, and answers 30 tokens in 3 s."""

    protocol_version = "HTTP/1.1"
    kept = []

    def do_GET(self):
        body = b'{"status":"ok","object":"list","data":[{"id":"smollm2","object":"model"}]}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        size = (4 + len(body) % 9) << 20
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(30):
            MadeUp.kept.append(b"x" * (size // 30))
            delta = {"content": f"word{number} "} if number < 29 else {}
            choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
            frame = {"id": "m", "object": "chat.completion.chunk", "created": 1, "model": "smollm2", "choices": [choice]}
            self.chunk(f"data: {json.dumps(frame)}\n\n")
            time.sleep(0.1)
        self.chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())

    def log_message(self, *_):
        pass


def made_up(port: int) -> None:
    """Its weights first, in two seconds."""
    for _ in range(20):
        MadeUp.kept.append(b"x" * (10 << 20))
        time.sleep(0.1)
    it = http.server.ThreadingHTTPServer(("127.0.0.1", port), MadeUp)
    print(f"ready {port}", flush=True)
    it.serve_forever()


def launch(kind: str, group, port: int) -> subprocess.Popen:
    if kind == "llamacpp":
        return server.launch(group, 8192, ["--port", str(port), "--parallel", str(CLIENTS[kind])])[0]
    words = [sys.executable, __file__, str(port)]
    child = subprocess.Popen(group.within(words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if not child.stdout.readline().startswith("ready"):
        raise RuntimeError("the made-up server did not start")
    return child


def free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def stream(port: int, text: str, answer: int) -> tuple[str, str]:
    """What became of one streamed request: `whole`, `broken` or `failed`, and by whom it was answered."""
    body = {"model": "smollm2", "stream": True, "max_tokens": answer, "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=FIRST_TOKEN * 2) as answer:
            by = answer.headers.get("x-edgeward-target", "")
            try:
                whole = b"data: [DONE]" in answer.read()
            except (OSError, http.client.HTTPException):
                whole = False
            return ("whole" if whole else "broken"), by
    except urllib.error.HTTPError as error:
        return "failed", str(error.code)
    except OSError as error:
        return "failed", type(error).__name__


def run(binary: str, kind: str, watchdog: bool, seed: int, seconds: float) -> dict:
    group = capture.Group(f"pair-{kind}-{seed}-{int(watchdog)}", TOTAL_MIB[kind])
    folder = pathlib.Path(tempfile.mkdtemp(prefix="edgeward-pair-"))
    behind = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    threading.Thread(target=behind.serve_forever, daemon=True).start()
    counts = {"whole": 0, "broken": 0, "failed": 0, "local": 0, "cloud": 0, "kills": 0}
    model_port, port = free_port(), free_port()
    children, done = [], threading.Event()
    lock = threading.Lock()
    config = (
        f'listen = ["127.0.0.1:{port}"]\nadmin_listen = "{folder}/admin.sock"\n'
        f'[memory]\nenabled = {str(watchdog).lower()}\nboard = "jetson-orin"\ncgroup = "{group.path}"\n'
        f'[deadlines]\nfirst_token = "{FIRST_TOKEN}s"\ntotal = "900s"\nbetween_tokens = "60s"\n'
        f'[[target]]\nname = "box"\nkind = "{"llamacpp" if kind == "llamacpp" else "openai"}"\nurl = "http://127.0.0.1:{model_port}"\nplace = "local"\n'
    )
    config += (
        f'[[target]]\nname = "cloud"\nkind = "openai"\nurl = "http://127.0.0.1:{behind.server_port}"\n'
        'place = "lan"\ngroup = "fallback"\n'
    )
    (folder / "edgeward.toml").write_text(config)

    def keep_serving():
        """As a unit with Restart=always does."""
        while not done.is_set():
            try:
                child = launch(kind, group, model_port)
            except RuntimeError:
                time.sleep(0.5)
                continue
            with lock:
                children.append(child)
            child.wait()
            if not done.is_set():
                counts["kills"] += child.returncode == -9

    gate = None
    try:
        threading.Thread(target=keep_serving, daemon=True).start()
        while not children:
            time.sleep(0.1)
        log = open(folder / "log", "w")
        gate = subprocess.Popen([binary, "run", "--config", str(folder / "edgeward.toml")], stdout=log, stderr=log)
        time.sleep(2)
        until = time.monotonic() + seconds

        def client(number: int):
            dice = random.Random(f"pair-{seed}-{number}")
            while time.monotonic() < until:
                # Two of three ask what was asked before; the third is long and new, and is kept by llama.cpp.
                words = dice.randrange(300, 700) if dice.random() < 0.7 else 30
                ended, by = stream(port, server.prompt(dice, words), ANSWER[kind])
                with lock:
                    counts[ended] += 1
                    if ended == "whole":
                        counts["local" if by == "box" else "cloud"] += 1
                if by == "cloud" or ended == "failed":
                    time.sleep(1)  # A cloud's answer takes its time, too.

        clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS[kind])]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
    finally:
        done.set()
        for child in [*children, gate]:
            if child is not None and child.poll() is None:
                child.kill()
                child.wait()
        behind.shutdown()
        time.sleep(0.5)
        group.remove()
    log = (folder / "log").read_text()
    counts["alarms"] = log.count(" pressure pressure=amber") + log.count(" pressure pressure=red")
    counts["log"] = str(folder / "log")
    return counts


def report(binary: str, kind: str, seeds: int, seconds: float) -> str:
    lines = ["| the watchdog | requests | lost | of which broken midway | OOM kills | answered here | by the cloud |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for watchdog in (False, True):
        total = {}
        for seed in range(seeds):
            for key, value in run(binary, kind, watchdog, seed, seconds).items():
                total[key] = value if isinstance(value, str) else total.get(key, 0) + value
        lost = total["broken"] + total["failed"]
        lines.append(
            f"| {'on' if watchdog else 'off'} | {lost + total['whole']} | {lost} | {total['broken']} | {total['kills']} "
            f"| {total['local']} | {total['cloud']} |"
        )
        print(watchdog, total, flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    made_up(int(sys.argv[1]))
