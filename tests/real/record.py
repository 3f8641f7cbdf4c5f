"""Records what a real llama.cpp server puts on the wire into tests/transcripts/llamacpp-*, by hand."""

import http.client
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).parent
OUT = HERE.parent / "transcripts"

QUESTION = [{"role": "user", "content": "Name three colours."}]
LONG = [{"role": "user", "content": "Tell me a story about a fox and a hen. " * 30}]
WORDS = [{"role": "user", "content": "word " * 800}]
STORY = "Tell a long story. " * 12

# Name, path, body. `.sse` bodies are raw event streams, dechunked.
ORDINARY = [
    ("chat.sse", "/v1/chat/completions", {"messages": QUESTION, "stream_options": {"include_usage": True}}),
    ("chat-progress.sse", "/v1/chat/completions", {"messages": LONG, "return_progress": True}),
    ("chat-ping.sse", "/v1/chat/completions", {"messages": WORDS, "sse_ping_interval": 1}),
    ("completions.sse", "/v1/completions", {"prompt": "Once upon a time"}),
    ("completion.sse", "/completion", {"prompt": "Once upon a time", "n_predict": 8}),
    ("messages.sse", "/v1/messages", {"messages": QUESTION}),
    ("responses.sse", "/v1/responses", {"input": "Name three colours.", "max_output_tokens": 8}),
    ("chat.json", "/v1/chat/completions", {"messages": QUESTION, "stream": False}),
    ("embeddings.json", "/v1/embeddings", {"input": "A fox.", "encoding_format": "base64"}),
    ("error-context.json", "/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 5000}]}),
    ("error-invalid.json", "/v1/chat/completions", {"messages": "none"}),
    ("error-path.json", "/v1/nothing", {}),
    ("error-embeddings-long.json", "/v1/embeddings", {"input": "word " * 300}),
]
# The first token that this model gives for this prompt is its end token.
EMPTY = [
    ("chat-empty.sse", "/v1/chat/completions", {"messages": WORDS}),
    ("messages-empty.sse", "/v1/messages", {"messages": WORDS}),
]
# Two at a time, which together exhaust the context that they share. At temperature 0 the model ends too soon.
TELL = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 400, "temperature": 0.8}
GO_ON = {"messages": [{"role": "user", "content": "word " * 270}], "max_tokens": 400, "ignore_eos": True}
EXHAUSTED = [
    [
        ("chat-error.sse", "/v1/chat/completions", TELL | {"ignore_eos": True}),
        ("messages-error.sse", "/v1/messages", TELL),
    ],
    [
        ("responses-error.sse", "/v1/responses", {"input": STORY, "max_output_tokens": 400, "temperature": 0.8}),
        (None, "/v1/chat/completions", TELL | {"ignore_eos": True}),
    ],
    [
        (None, "/v1/chat/completions", GO_ON),
        ("chat-error-first.sse", "/v1/chat/completions", GO_ON | {"return_progress": True}),
    ],
]


def start(*options: str) -> tuple[subprocess.Popen, int]:
    server = subprocess.Popen(
        [sys.executable, HERE / "server.py", *options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    for line in server.stdout:
        if line.startswith("ready "):
            return server, int(line.split()[1])
    sys.exit("the server did not start")


def record(port: int, name: str | None, path: str, body: dict, notes: list[str]) -> None:
    body = {"model": "smollm2", "stream": True, "temperature": 0, "max_tokens": 8} | body
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if name is None:
        return
    (OUT / f"llamacpp-{name}").write_bytes(content)
    shown = json.dumps(body)
    shown = shown if len(shown) < 260 else f"{shown[:160]}…{shown[-90:]}"
    head = "; ".join(f"{key}: {value}" for key, value in answer.getheaders())
    notes.append(f"* `llamacpp-{name}`: `POST {path}` `{shown}`\n  → {answer.status}; `{head}`")


def main() -> None:
    OUT.mkdir(exist_ok=True)
    notes: list[str] = []
    server, port = start("--embeddings", "--batch", "64")
    for name, path, body in ORDINARY + EMPTY:
        record(port, name, path, body, notes)
    server.stdin.close()
    server.wait()

    server, port = start("--shared-ctx", "--ctx", "512", "--batch", "64")
    for group in EXHAUSTED:
        threads = [threading.Thread(target=record, args=(port, *request, notes)) for request in group]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    server.stdin.close()
    server.wait()

    version = importlib.metadata.version("xllamacpp")
    (OUT / "llamacpp.md").write_text(
        f"# Recorded from llama.cpp\n\nxllamacpp {version}, SmolLM2-135M-Instruct Q4_1, on a CPU, by `tests/real/record.py`. "
        "Bodies only, chunked coding removed, else byte for byte.\n\n" + "\n".join(sorted(notes)) + "\n"
    )


if __name__ == "__main__":
    main()
