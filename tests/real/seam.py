"""How natural the join is where another server goes on with a broken answer; run by hand.

Two real llama.cpp servers with the same small model stand behind edgeward with `on_break = "continue"`. For each prompt
the first one is killed in mid-prose. Reported: words that stand on both sides of the seam, and the mean log-probability
of the tokens after it, by the model itself, beside that of uncut answers at the same place.

    cargo build && ~/.cache/edgeward/venv/bin/python tests/real/seam.py [--prompts 40] [--form prefill|words]
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
PROGRAM = HERE.parent.parent / "target/debug/edgeward"
#: Tokens after the seam that are looked at.
TOKENS = 8
#: What a token counts for that is not among the likeliest ones the server tells.
FLOOR = -12.0
PROMPTS = [
    f"{ask} {subject}."
    for ask in ("Tell me a short story about", "Describe in a few paragraphs", "Write a letter to a friend about",
                "Explain to a child")
    for subject in ("a lighthouse", "the first snow", "an old clock", "a fox and a hen", "a lost key", "the market on a Sunday",
                    "a long train ride", "how bread is made", "the sea at night", "a broken bicycle")
]


class Server:
    """One llama.cpp server."""

    def __init__(self, port=0):
        command = [sys.executable, str(HERE / "server.py"), "--port", str(port), "--cache", "--threads", "1"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for line in self.process.stdout:
            if line.startswith(b"ready "):
                self.port = int(line.split()[1])
                return
        sys.exit("a server did not start")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def post(self, path, body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)


class Edgeward:
    """edgeward before both."""

    def __init__(self, first, second, form):
        self.folder = tempfile.TemporaryDirectory()
        kind = "llamacpp" if form == "prefill" else "openai"
        config = pathlib.Path(self.folder.name) / "edgeward.toml"
        base = "" if kind == "llamacpp" else "/v1"
        config.write_text(f"""
listen = ["127.0.0.1:0"]
on_break = "continue"
admin_listen = "{self.folder.name}/admin.sock"
[router]
groups = ["first", "second"]
[breaker]
enabled = false
[probe]
enabled = false
[memory]
enabled = false
[[target]]
name = "first"
kind = "llamacpp"
url = "http://127.0.0.1:{first}"
group = "first"
max_retries = 0
[[target]]
name = "second"
kind = "{kind}"
url = "http://127.0.0.1:{second}{base}"
group = "second"
max_retries = 0
""")
        self.log = open(pathlib.Path(self.folder.name) / "log", "w+b")
        self.process = subprocess.Popen([PROGRAM, "run", "--config", config], stderr=self.log)
        for _ in range(200):
            found = re.search(r"listening on http://127.0.0.1:(\d+)", self.text())
            if found:
                self.port = int(found[1])
                return
            time.sleep(0.05)
        sys.exit(f"edgeward did not start:\n{self.text()}")

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def seam(self, request):
        """After how many characters the stream of this request has gone on elsewhere."""
        found = re.search(rf"stream_resumed request={request} .*after=(\d+)", self.text())
        return found and int(found[1])

    def end(self):
        self.process.terminate()
        self.process.wait()


def stream(port, prompt, seed, each):
    """The answer's text and the request's id; `each` is told of each piece."""
    body = {"model": "smollm2", "messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": 120,
            "temperature": 0.7, "seed": seed}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    text = ""
    with urllib.request.urlopen(request, timeout=120) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                return None, event["error"]["message"]
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
            each(text)
        return text, answer.headers["x-edgeward-request-id"]


def likely(server, prompt, text, at):
    """The mean log-probability of the tokens of `text` after the character `at`, as the model's answer to `prompt`."""
    talk = server.post("/apply-template", {"messages": [{"role": "user", "content": prompt}]})["prompt"]
    ids = lambda words: server.post("/tokenize", {"content": words, "parse_special": True})["tokens"]
    before, whole = ids(talk + text[:at].rstrip()), ids(talk + text)
    begin = next((n for n, (a, b) in enumerate(zip(before, whole)) if a != b), len(before))
    logs = []
    for n in range(begin, min(begin + TOKENS, len(whole))):
        answer = server.post("/completion", {"prompt": whole[:n], "n_predict": 1, "n_probs": 500, "temperature": 1.0,
                                             "cache_prompt": True})
        tops = answer["completion_probabilities"][0]["top_logprobs"]
        logs.append(max(next((top["logprob"] for top in tops if top["id"] == whole[n]), FLOOR), FLOOR))
    return statistics.mean(logs) if logs else None


def repeated(text, at):
    """How many words at the end of the first part stand again at the beginning of the second."""
    words = lambda part: re.findall(r"\w+", part.lower())
    before, after = words(text[:at]), words(text[at:])
    return max((n for n in range(1, 13) if before[-n:] == after[:n] and len(after) >= n), default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--form", choices=["prefill", "words"], default="prefill")
    args = parser.parse_args()
    second = Server()
    first = Server()
    edgeward = Edgeward(first.port, second.port, args.form)
    cut, uncut, joined_twice, words_twice, spaces, lost = [], [], 0, 0, 0, 0
    examples = []
    for n, prompt in enumerate(PROMPTS[: args.prompts]):
        whole, _ = stream(second.port, prompt, n, lambda text: None)
        first.process.poll() is None or sys.exit("the first server is gone")
        mark = 60 + 37 * n % 200
        killed = []

        def kill(text):
            if len(text) >= mark and not killed:
                killed.append(True)
                first.kill()

        text, request = stream(edgeward.port, prompt, n, kill)
        at = text and edgeward.seam(request)
        if at:
            twice = repeated(text, at)
            joined_twice += twice >= 3
            words_twice += twice in (1, 2)
            spaces += bool(re.search(r"  |\w[.,;]\w", text[max(at - 2, 0) : at + 2]))
            cut.append(likely(second, prompt, text, at))
            if whole and len(whole) > at + 20:
                uncut.append(likely(second, prompt, whole, at))
            examples.append(f"…{text[max(at - 50, 0):at]}⟂{text[at:at + 50]}…")
        else:
            lost += 1
            print(f"no seam: {prompt!r}: {request}", file=sys.stderr)
        if killed:
            first = Server(first.port)
    edgeward.end()
    first.kill()
    second.kill()
    cut, uncut = ([value for value in values if value is not None] for values in (cut, uncut))
    for example in examples[:12]:
        print(example.replace("\n", "⏎"))

    def told(values):
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else float("nan")
        return f"{statistics.mean(values):.2f} ± {error:.2f} (n = {len(values)})"

    print(f"{args.form}: {len(examples)} seams, {lost} without one")
    print(f"three words or more on both sides: {joined_twice}; one or two: {words_twice}; doubled blanks: {spaces}")
    print(f"mean log-probability of {TOKENS} tokens after the seam: {told(cut)}; uncut at the same place: {told(uncut)}")


if __name__ == "__main__":
    main()
