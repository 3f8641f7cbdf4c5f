"""A healthy, slow box for tests: a real llama.cpp with one slot that gets a part of one core, and Ollama's API before it.

llama.cpp unloads its model itself after an idle time (`sleep_idle_seconds`) and says nothing while it loads it again;
[`OllamaFront`] says what is loaded (`/api/ps`), as Ollama does, and takes as long for a load as it is told to."""

import ctypes
import http.client
import http.server
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
MODEL = "smollm2"
#: Seconds between two looks at how much of the processor the server has used, and what it may use at once.
STEP = 0.005
BURST = 0.03
#: A server that is not ready by then will never be.
START_MAX = 60
LAYERS = {"block_count": 30, "context_length": 8192, "embedding_length": 576, "attention.head_count": 9,
          "attention.head_count_kv": 3, "feed_forward_length": 1536}
FILE_BYTES = 98_000_000
#: Tokens of an answer with `think` that are never sent.
SILENT = 90


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """A stopped process sees no end of its input: the kernel ends it when the test is gone."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Throttle(threading.Thread):
    """Gives a process `share` of one core, as `cpu.max` would; needs no cgroup and no rights."""

    def __init__(self, pid: int, share: float):
        super().__init__(daemon=True)
        self.pid, self.share, self.ended = pid, share, threading.Event()

    def run(self) -> None:
        before, used, budget, stopped = time.monotonic(), cpu_seconds(self.pid), BURST, False
        try:
            while not self.ended.wait(STEP):
                at, now_used = time.monotonic(), cpu_seconds(self.pid)
                budget = min(BURST, budget + self.share * (at - before) - (now_used - used))
                before, used = at, now_used
                if stopped != (budget < 0):
                    stopped = not stopped
                    os.kill(self.pid, signal.SIGSTOP if stopped else signal.SIGCONT)
            os.kill(self.pid, signal.SIGCONT)
        except OSError:
            pass  # The process is gone.


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processor: its CPU clock, as `clock_getcpuclockid` names it."""
    return time.clock_gettime((~pid << 3) | 2)


class SlowBox:
    """llama.cpp with one slot that gives about `speed` tokens a second, whatever else the machine does."""

    def __init__(self, speed: float, sleep: int = -1, log=subprocess.DEVNULL):
        command = [sys.executable, "-B", str(HERE / "server.py"), "--parallel", "1", "--ctx", "4096", "--batch", "64",
                   "--cache", "--cache-ram", "128", "--embeddings", "--alias", MODEL, "--sleep", str(sleep)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, preexec_fn=die_with_parent)
        self.port = port_when_ready(self.process)
        self.token, self.prompt = self.measured()
        #: Of one core.
        self.share = min(speed * self.token, 1.0)
        self.throttle = Throttle(self.process.pid, self.share)
        self.throttle.start()

    def measured(self) -> tuple[float, float]:
        """What a token of an answer, and one of a prompt, takes of the processor, in seconds."""

        def cost(text: str, tokens: int) -> tuple[float, int]:
            before = cpu_seconds(self.process.pid)
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0}
            usage = self.post("/v1/chat/completions", body)["usage"]
            return cpu_seconds(self.process.pid) - before, usage["prompt_tokens"]

        ask = "Write a long story about a fox."
        cost(ask, 1)  # Its prompt is kept.
        short, long = cost(ask, 2)[0], cost(ask, 34)[0]
        # Two that have hardly a word in common.
        few, many = cost("hen " * 8, 1), cost("cart " * 128, 1)
        return (long - short) / 32, (many[0] - few[0]) / (many[1] - few[1])

    def prompt_seconds(self, tokens: int) -> float:
        return tokens * self.prompt / self.share

    def post(self, path: str, body: dict) -> dict:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=START_MAX) as answer:
            return json.load(answer)

    def get(self, path: str):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=START_MAX) as answer:
            return json.load(answer)

    def busy(self) -> bool:
        return any(slot["is_processing"] for slot in self.get("/slots"))

    def asleep(self) -> bool:
        return self.get("/props")["is_sleeping"]

    def end(self) -> None:
        self.throttle.ended.set()
        self.process.kill()
        self.process.wait()


def port_when_ready(process: subprocess.Popen) -> int:
    for line in process.stdout:
        if line.startswith(b"ready "):
            return int(line.split()[1])
    sys.exit(f"the model server ended with {process.wait()}")


class Residence:
    """Whether Ollama has its model loaded: it goes after `keep` idle seconds, and a load takes `load` seconds, and as
    long as `gate` is not set."""

    def __init__(self, keep: float, load: float):
        self.keep, self.load = keep, load
        self.gate, self.changed = threading.Event(), threading.Condition()
        self.gate.set()
        self.loading, self.users, self.until, self.loads = False, 0, 0.0, 0

    def here(self) -> bool:
        return self.users > 0 or time.monotonic() < self.until

    def __enter__(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: not self.loading)
            if self.here():
                self.users += 1
                return
            self.loading = True
            self.changed.notify_all()
        threading.Event().wait(self.load)
        self.gate.wait()
        with self.changed:
            self.loading, self.users, self.loads = False, self.users + 1, self.loads + 1
            self.changed.notify_all()

    def __exit__(self, *_) -> None:
        with self.changed:
            self.users -= 1
            self.until = time.monotonic() + self.keep
            self.changed.notify_all()

    def unload(self) -> None:
        self.wait_for(lambda it: not it.loading and it.users == 0)
        with self.changed:
            self.until = 0.0

    def wait_for(self, holds, within: float = START_MAX) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: holds(self), within):
                raise AssertionError("the front waited in vain")


class OllamaFront:
    """Ollama's API before a llama.cpp, which it passes requests to one after the other (`OLLAMA_NUM_PARALLEL=1`)."""

    def __init__(self, box: SlowBox, keep: float, load: float):
        self.residence = Residence(keep, load)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ollama)
        self.server.daemon_threads = True
        self.server.residence, self.server.upstream = self.residence, box.port
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self.residence.gate.set()
        self.server.shutdown()
        self.server.server_close()


class Gone(Exception):
    """Who asked is not there any more."""


class Ollama(http.server.BaseHTTPRequestHandler):
    """Its handler."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        until = time.gmtime(time.time() + self.server.residence.keep)
        model = {"name": f"{MODEL}:latest", "model": f"{MODEL}:latest", "size": FILE_BYTES, "digest": "0" * 64}
        loaded = model | {"size": 2 * FILE_BYTES, "size_vram": 0, "context_length": 4096,
                          "expires_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", until)}
        said = {
            "/api/version": {"version": "0.33.0"},
            "/api/tags": {"models": [model]},
            "/api/ps": {"models": [loaded] if self.server.residence.here() else []},
            "/v1/models": {"object": "list", "data": [{"id": f"{MODEL}:latest", "object": "model", "created": 1}]},
        }
        if self.path == "/":
            return self.whole(200, b"Ollama is running", "text/plain")
        return self.whole(*((200, said[self.path]) if self.path in said else (404, {"error": "not found"})))

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(text)
        if self.path == "/api/show":
            info = {"general.architecture": "llama"} | {f"llama.{key}": value for key, value in LAYERS.items()}
            return self.whole(200, {"model_info": info, "capabilities": ["completion"], "details": {"family": "llama"}})
        try:
            with self.server.residence:
                if self.path == "/api/generate" and not body.get("prompt"):
                    return self.whole(200, native(self.path, "", {"done": True, "done_reason": "load"}))
                if self.path in ("/api/chat", "/api/generate"):
                    return self.answer(body)
                if self.path == "/api/embed":
                    return self.embed(body)
                self.passed_on(text)
        except (Gone, OSError):
            self.close_connection = True

    def gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def passed_on(self, text: bytes) -> None:
        """OpenAI's and Anthropic's APIs, byte for byte; gives up when who asked does."""
        self.close_connection = True
        with socket.create_connection(("127.0.0.1", self.server.upstream)) as upstream:
            head = f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
            upstream.sendall(head.encode() + text)
            while True:
                readable, _, _ = select.select([upstream, self.connection], [], [])
                if upstream not in readable:
                    raise Gone
                piece = upstream.recv(65536)
                if not piece:
                    return
                self.wfile.write(piece)

    def answer(self, body: dict) -> None:
        options, streams = body.get("options") or {}, body.get("stream", True)
        messages = body.get("messages") or [{"role": "user", "content": body["prompt"]}]
        asked = {"messages": messages, "stream": True, "return_progress": True, "max_tokens": options.get("num_predict")}
        asked |= {key: options[key] for key in ("temperature", "seed", "top_p") if key in options}
        said, reason, counted = "", "stop", 0
        # Thinking that its parser keeps to itself: it computes, and nothing is on the wire.
        silent = SILENT if body.get("think") else 0
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream)
        try:
            upstream.request("POST", "/v1/chat/completions", json.dumps(asked), {"Content-Type": "application/json"})
            events = upstream.getresponse()
            if events.status != 200:
                return self.whole(events.status, {"error": events.read().decode()})
            for line in events:
                if self.gone():
                    raise Gone
                if not line.startswith(b"data: {"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    reason = choice["finish_reason"] or reason
                    piece = choice["delta"].get("content")
                    counted += bool(piece)
                    if not piece or counted <= silent:
                        continue
                    if streams and not said:
                        self.begin("application/x-ndjson")
                    said += piece
                    if streams:
                        self.chunk(native(self.path, piece, {"done": False}))
        finally:
            upstream.close()
        end = {"done": True, "done_reason": reason, "prompt_eval_count": 1, "eval_count": counted}
        if not streams:
            return self.whole(200, native(self.path, said, end))
        if not said:
            self.begin("application/x-ndjson")
        self.chunk(native(self.path, "", end))
        self.wfile.write(b"0\r\n\r\n")

    def embed(self, body: dict) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream)
        try:
            asked = json.dumps({"input": body["input"]})
            upstream.request("POST", "/v1/embeddings", asked, {"Content-Type": "application/json"})
            while not select.select([upstream.sock], [], [], 0.05)[0]:
                if self.gone():
                    raise Gone
            vectors = [one["embedding"] for one in json.load(upstream.getresponse())["data"]]
        finally:
            upstream.close()
        self.whole(200, {"model": MODEL, "embeddings": vectors, "prompt_eval_count": 1})

    def begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, piece: dict) -> None:
        text = json.dumps(piece).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))

    def whole(self, status: int, body, kind: str = "application/json") -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def native(path: str, piece: str, more: dict) -> dict:
    """A frame of `/api/chat` or `/api/generate`."""
    words = {"message": {"role": "assistant", "content": piece}} if path == "/api/chat" else {"response": piece}
    return {"model": MODEL, "created_at": "2026-01-01T00:00:00.123456789Z"} | words | more
