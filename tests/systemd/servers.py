"""Model servers and a client, in a few lines each: OpenAI's chat stream over HTTP/1.1."""

import http.client
import json
import socket
import threading
import time

PACE = 0.1


class Server:
    """Answers model `fast` at once and `slow-N` in N tokens, PACE seconds apart; with `dies`, not at all."""

    def __init__(self, name, dies=False):
        self.name, self.dies = name, dies
        self.key = None
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            with connection, connection.makefile("rb") as lines:
                head = [lines.readline()]
                while head[-1] not in (b"\r\n", b""):
                    head.append(lines.readline())
                fields = {n.strip().lower(): v.strip() for n, _, v in (line.partition(b":") for line in head[1:])}
                self.key = fields.get(b"authorization")
                body = lines.read(int(fields.get(b"content-length", 0)))
                if self.dies or not body:
                    return
                model = json.loads(body)["model"]
                self.stream(connection, int(model[5:]) if model.startswith("slow-") else 0)
        except OSError:
            pass

    def stream(self, connection, slow):
        connection.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
            b"connection: close\r\n\r\n"
        )
        for at in range(max(slow, 1)):
            self.event(connection, {"content": f"{self.name}{at} "})
            time.sleep(PACE if slow else 0)
        self.event(connection, {}, "stop")
        end = b"data: [DONE]\n\n"
        connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))

    def event(self, connection, delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        event = b"data: " + json.dumps(chunk).encode() + b"\n\n"
        connection.sendall(b"%x\r\n%s\r\n" % (len(event), event))


class Stream:
    """One streamed request. Raises where a connection is refused or an answer is cut."""

    def __init__(self, port, model, timeout=60):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        self.answer = self.connection.getresponse()
        self.text, self.ended = "", False
        if self.answer.status != 200:
            raise RuntimeError(f"{self.answer.status}: {self.answer.read(500)}")

    def next(self):
        """The next token, or None at the stream's end."""
        for line in self.answer:
            if line.startswith(b"data: [DONE]"):
                self.ended = True
            elif line.startswith(b"data: "):
                choices = json.loads(line[6:]).get("choices") or [{}]
                token = choices[0].get("delta", {}).get("content")
                if token:
                    self.text += token
                    return token
        self.connection.close()
        if not self.ended:
            raise RuntimeError(f"cut after {self.text!r}")
        return None

    def whole(self):
        while self.next():
            pass
        return self.text


class Load:
    """Threads that ask again and again, each time on a connection of its own, until stopped."""

    def __init__(self, port, threads=8):
        self.port, self.going = port, True
        self.served, self.faults, self.slowest = 0, [], 0.0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while self.going:
            begun = time.monotonic()
            try:
                text, fault = Stream(self.port, "fast").whole(), None
            except Exception as error:
                text, fault = None, repr(error)
            with self.lock:
                self.slowest = max(self.slowest, time.monotonic() - begun)
                self.served += text is not None
                if fault:
                    self.faults.append(fault)

    def stop(self):
        self.going = False
        for thread in self.threads:
            thread.join(60)
        return self
