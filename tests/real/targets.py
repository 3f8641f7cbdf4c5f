"""Scripted model servers of four dialects on one port: prints `ready PORT`, ends when stdin closes.

They are strict: what their dialect does not allow is answered with 400 and kept for `GET /faults`. The last `[[scene]]`
in a request says what is played; one that ends with tools' results gets RESULT. `GET /last` tells what the last
request said. Below `/failing` everything fails.
"""

import base64
import http.server
import json
import re
import sys
import threading

THOUGHT, TEXT, RESULT = "Let me think of a fox 🦊.", "Hello, wörld: “quoted” 🦊\nand more.", "21 in Paris, 18 in Oslo."
PLACES = ("Paris", "Oslo \"north\" 🦊")
SIGNATURE = "c2lnbmVkIGJ5IG1l"
COUNTED = 4711
FINISH = {
    "openai": {"stop": "stop", "length": "length", "calls": "tool_calls"},
    "ollama": {"stop": "stop", "length": "length", "calls": "stop"},
    "anthropic": {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"},
    "gemini": {"stop": "STOP", "length": "MAX_TOKENS", "calls": "STOP"},
}
ERROR = {
    "openai": {"error": {"message": "it burst", "type": "server_error", "code": 500}},
    "ollama": {"error": "it burst"},
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "it burst"}},
    "gemini": {"error": {"code": 500, "message": "it burst", "status": "INTERNAL"}},
}


class Fault(Exception):
    """The request is not in order."""


def need(holds: object, what: str) -> None:
    if not holds:
        raise Fault(what)


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


class Said:
    """What a request said, whatever its dialect."""

    def __init__(self, ids_match: bool) -> None:
        self.system, self.texts, self.images, self.calls, self.results = [], [], [], [], []
        self.open, self.ids_match, self.last = [], ids_match, ""

    def call(self, id: str | None, name: str, arguments: object) -> None:
        need(isinstance(arguments, dict), f"arguments are no object: {arguments!r}")
        need(not any(id and id == earlier for earlier, _, _ in self.calls), f"the id {id} twice")
        self.calls.append((id, name, arguments))
        self.open.append(id if self.ids_match else name)

    def result(self, key: str, text: object) -> None:
        need(key in self.open, f"a result of {key}, which is not open: {self.open}")
        self.open.remove(key)
        self.results.append((key, text))
        self.last = "result"

    def speak(self, role: str, text: str) -> None:
        need(not self.open, f"{role} speaks before the results of {self.open}")
        need(isinstance(text, str), f"no text: {text!r}")
        (self.system if role == "system" else self.texts).append(text)
        self.last = role

    def scene(self) -> str:
        need(not self.open, f"calls without results: {self.open}")
        words = re.findall(r"\[\[(\w+)\]\]", " ".join(self.texts))
        return "result" if self.last == "result" else words[-1] if words else "text"

    def image(self, data: str) -> None:
        base64.b64decode(data, validate=True)
        self.images.append(data)


def read_openai(body: dict, target: str) -> Said:
    said = Said(ids_match=True)
    for tool in body.get("tools") or []:
        need(tool["type"] == "function" and tool["function"]["parameters"]["type"] == "object", f"tool {tool}")
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        need(role in ("system", "developer", "user", "assistant", "tool"), f"role {role}")
        if role == "tool":
            text = content if isinstance(content, str) else "".join(part["text"] for part in content)
            said.result(message["tool_call_id"], text)
            continue
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
            if part["type"] == "image_url":
                said.image(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
            else:
                need(part["type"] == "text", f"part {part}")
                said.speak("system" if role == "developer" else role, part["text"])
        for call in message.get("tool_calls") or []:
            need(call["type"] == "function" and isinstance(call["function"]["arguments"], str), f"call {call}")
            said.call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
    return said


def read_ollama(body: dict, target: str) -> Said:
    said = Said(ids_match=False)
    for message in body["messages"]:
        role, content = message["role"], message.get("content", "")
        need(role in ("system", "user", "assistant", "tool"), f"role {role}")
        need(isinstance(content, str), f"content {content!r}")
        if role == "tool":
            said.result(message["tool_name"], content)
            continue
        if content:
            said.speak(role, content)
        for image in message.get("images") or []:
            said.image(image)
        for call in message.get("tool_calls") or []:
            said.call(None, call["function"]["name"], call["function"]["arguments"])
    return said


def read_anthropic(body: dict, target: str) -> Said:
    said, before = Said(ids_match=True), "assistant"
    need(body["max_tokens"] > 0 and body["messages"], "no max_tokens or no messages")
    for tool in body.get("tools") or []:
        need(tool["input_schema"]["type"] == "object", f"tool {tool}")
    system = body.get("system") or []
    for block in [{"text": system}] if isinstance(system, str) else system:
        said.system.append(block["text"])
    for message in body["messages"]:
        role, content = message["role"], message["content"]
        need(role in ("user", "assistant") and role != before, f"{role} after {before}")
        before = role
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block["type"]:
                case "text":
                    need(block["text"].strip(), "an empty text")
                    said.speak(role, block["text"])
                case "image":
                    said.image(block["source"]["data"])
                case "thinking":
                    # Ollama looks at none.
                    need(target == "ollama" or block["signature"] == SIGNATURE, f"a foreign signature: {block}")
                case "tool_use":
                    need(re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]), f"id {block['id']}")
                    said.call(block["id"], block["name"], block["input"])
                case "tool_result":
                    inner = block.get("content") or ""
                    text = inner if isinstance(inner, str) else "".join(part["text"] for part in inner)
                    said.result(block["tool_use_id"], text)
                case other:
                    raise Fault(f"block {other}")
    return said


def read_gemini(body: dict, target: str) -> Said:
    said, before = Said(ids_match=False), "model"
    for part in body.get("systemInstruction", {}).get("parts", []):
        said.system.append(part["text"])
    for content in body["contents"]:
        role, signed = content["role"], False
        need(role in ("user", "model") and role != before, f"{role} after {before}")
        need(content["parts"], "a content without parts")
        before = role
        for part in content["parts"]:
            if "functionCall" in part:
                signed = signed or "thoughtSignature" in part
                need(signed, f"a call without a signature: {part}")
                said.call(part["functionCall"].get("id"), part["functionCall"]["name"], part["functionCall"]["args"])
            elif "functionResponse" in part:
                response = part["functionResponse"]
                need(isinstance(response["response"], dict), f"response {response}")
                said.result(response["name"], json.dumps(response["response"], ensure_ascii=False))
            elif "inlineData" in part:
                said.image(part["inlineData"]["data"])
            else:
                said.speak(role, part["text"])
    return said


def answer(scene: str) -> tuple[str, str, list[tuple[str, dict]], str]:
    """Thinking, text, calls, finish."""
    match scene:
        case "tools":
            return THOUGHT, "I will look.", [("weather", {"place": place, "days": [1, 2]}) for place in PLACES], "calls"
        case "agent":
            # An agent may take words beside calls for its answer.
            return THOUGHT, "", answer("tools")[2], "calls"
        case "result":
            return "", RESULT, [], "stop"
        case "json":
            return "", json.dumps({"place": PLACES[0], "days": [1, 2]}), [], "stop"
        case "length":
            return "", "Cut sh", [], "length"
        case _:
            return THOUGHT, TEXT, [], "stop"


def openai(scene: str, body: dict) -> tuple[dict, list[dict]]:
    thought, text, calls, finish = answer(scene)
    finish = FINISH["openai"][finish]
    base = {"id": "chatcmpl-1", "created": 1700000000, "model": body["model"]}
    usage = {"usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}
    ids = [f"functions.{name}:{at}" for at, (name, _) in enumerate(calls)]
    texts = [json.dumps(arguments, ensure_ascii=False) for _, arguments in calls]
    full = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
        for id, (name, _), text in zip(ids, calls, texts)
    ]
    message = {"role": "assistant", "content": text, "reasoning_content": thought} | ({"tool_calls": full} if full else {})
    whole = base | usage | {"object": "chat.completion"}
    whole |= {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(thought, 5)] + [{"content": p} for p in pieces(text, 5)]
    deltas += [{"tool_calls": [{"index": at, **call, "function": {"name": call["function"]["name"], "arguments": ""}}]}
               for at, call in enumerate(full)]
    # The arguments of calls beside each other come in turns.
    for step in range(max(map(len, texts), default=0)):
        deltas += [{"tool_calls": [{"index": at, "function": {"arguments": text[step]}}]}
                   for at, text in enumerate(texts) if step < len(text)]
    chunk = base | {"object": "chat.completion.chunk"}
    frames = [chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    frames.append(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        frames.append(chunk | usage | {"choices": []})
    return whole, [*frames, "[DONE]"]


def ollama(scene: str, body: dict) -> tuple[dict, list[dict]]:
    thought, text, calls, finish = answer(scene)
    base = {"model": body["model"], "created_at": "2026-01-01T00:00:00.123456789Z"}
    calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    end = {"done": True, "done_reason": FINISH["ollama"][finish], "prompt_eval_count": 11, "eval_count": 7}
    end |= {"total_duration": 5, "load_duration": 1, "prompt_eval_duration": 1, "eval_duration": 1}
    messages = [{"content": "", "thinking": piece} for piece in pieces(thought, 5)]
    messages += [{"content": piece} for piece in pieces(text, 5)] + [{"content": "", "tool_calls": [it]} for it in calls]
    frames = [base | {"message": {"role": "assistant", **it}, "done": False} for it in messages]
    frames.append(base | {"message": {"role": "assistant", "content": ""}} | end)
    whole = {"role": "assistant", "content": text, "thinking": thought} | ({"tool_calls": calls} if calls else {})
    return base | {"message": whole} | end, frames


def anthropic(scene: str, body: dict) -> tuple[dict, list[dict]]:
    thought, text, calls, finish = answer(scene)
    blocks = [{"type": "thinking", "thinking": thought, "signature": SIGNATURE}] if thought else []
    blocks += [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "id": f"toolu_01{name}{at}", "name": name, "input": arguments}
               for at, (name, arguments) in enumerate(calls)]
    end = {"stop_reason": FINISH["anthropic"][finish], "stop_sequence": None}
    base = {"id": "msg_01", "type": "message", "role": "assistant", "model": body["model"]}
    whole = base | end | {"content": blocks, "usage": {"input_tokens": 11, "output_tokens": 7}}
    start = base | {"content": [], "stop_reason": None, "stop_sequence": None}
    frames = [{"type": "message_start", "message": start | {"usage": {"input_tokens": 11, "output_tokens": 1}}}]
    frames.append({"type": "ping"})
    for at, block in enumerate(blocks):
        match block["type"]:
            case "thinking":
                empty = {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(thought, 5)]
                deltas.append({"type": "signature_delta", "signature": SIGNATURE})
            case "text":
                empty, deltas = {"text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(text, 5)]
            case _:
                empty, words = {"input": {}}, json.dumps(block["input"], ensure_ascii=False)
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(words, 3)]]
        frames.append({"type": "content_block_start", "index": at, "content_block": block | empty})
        frames += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        frames.append({"type": "content_block_stop", "index": at})
    frames.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 7}})
    return whole, [*frames, {"type": "message_stop"}]


def gemini(scene: str, body: dict) -> tuple[dict, list[dict]]:
    thought, text, calls, finish = answer(scene)
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 5, "thoughtsTokenCount": 2, "totalTokenCount": 18}
    base = {"usageMetadata": usage, "modelVersion": "gemini-x", "responseId": "r1"}
    parts = [{"text": piece, "thought": True} for piece in pieces(thought, 5)]
    parts += [{"text": piece} for piece in pieces(text, 5)]
    for at, (name, arguments) in enumerate(calls):
        parts.append({"functionCall": {"name": name, "args": arguments}} | ({"thoughtSignature": "c2ln"} if at == 0 else {}))

    def candidate(parts: list[dict], **more: str) -> dict:
        return base | {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **more}]}

    end = FINISH["gemini"][finish]
    frames = [candidate([part]) for part in parts[:-1]] + [candidate(parts[-1:], finishReason=end)]
    return candidate(parts, finishReason=end), frames


DIALECTS = [
    (r"/chat/completions$", "openai", read_openai, openai),
    (r"/api/chat$", "ollama", read_ollama, ollama),
    (r"/v1/messages$", "anthropic", read_anthropic, anthropic),
    (r"/v1beta/models/[\w.-]+:(generateContent|streamGenerateContent)$", "gemini", read_gemini, gemini),
]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faults: list[str] = []
    last: dict = {}

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.whole({"/faults": (200, self.faults), "/last": (200, Handler.last)}.get(self.path, (404, {"error": "none"})))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        if path == "/anthropic/v1/messages/count_tokens":
            return self.whole((200, {"input_tokens": COUNTED}))
        for pattern, name, read, write in DIALECTS:
            if re.search(pattern, path):
                return self.play(path.split("/")[1], name, body, read, write)
        return self.whole((404, {"error": {"message": f"{path} is not here"}}))

    def play(self, target: str, name: str, body: dict, read, write) -> None:
        stream = ":streamGenerate" in self.path if name == "gemini" else body.get("stream", name == "ollama")
        try:
            said = read(body, target)
            scene = said.scene()
        except (Fault, KeyError, TypeError, ValueError) as fault:
            self.faults.append(f"{self.path}: {fault!r}: {json.dumps(body)}")
            return self.whole((400, {"error": {"message": repr(fault)}}))
        if target == "failing":
            return self.whole((500, ERROR[name]))
        Handler.last = {"dialect": name, "target": target, "body": body} | vars(said)
        whole, frames = write(scene, body | {"model": body.get("model", "gemini-x")})
        if not stream:
            return self.whole((500, ERROR[name]) if scene in ("error", "cut") else (200, whole))
        if target == "llamacpp":
            # As llama.cpp does where its first token is a part of a character.
            frames = [frame for frame in frames if frame["type"] != "message_start"]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson" if name == "ollama" else "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if scene in ("error", "cut"):
            frames = frames[: len(frames) - 4] + ([ERROR[name]] if scene == "error" else [])
        for frame in frames:
            text = frame if isinstance(frame, str) else json.dumps(frame)
            head = f"event: {frame['type']}\n" if name == "anthropic" else ""
            piece = (text + "\n" if name == "ollama" else f"{head}data: {text}\n\n").encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if scene == "cut":
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def whole(self, answer: tuple[int, object]) -> None:
        status, body = answer[0], json.dumps(answer[1]).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"ready {server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
