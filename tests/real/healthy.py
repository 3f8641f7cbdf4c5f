"""A healthy, slow box keeps its work: what leaves it without need, by reason.

    python3 tests/real/healthy.py --quick                        # asserts, scene by scene, in less than two minutes
    python3 tests/real/healthy.py --minutes 30 --after never     # mixed use; wanted: nothing leaves
    python3 tests/real/healthy.py --minutes 30                   # the default; wanted: less than 1 % without need
    … --baseline OLD    # an older program, which does not know [elsewhere], for comparison

The box is a real llama.cpp with one slot and a part of one core, about 15 tokens a second (`slow_box.py`). It unloads
after an idle time: by itself (`--server llamacpp`, its `sleep_idle_seconds`), or as Ollama does, by a front that plays
Ollama's API before it (`--server ollama`); without `--server` the time is halved between the two. The cloud is made up
and answers at once. Two people use it: one talks, one has scripts that ask for long whole answers, JSON, embeddings. Behind Ollama's API some answers begin with
thinking that is not on the wire.

A request left *without need* if the box would have given its first token within `after`: when all that it worked on
before had ended (what clients saw), its model was loaded, and the new part of the prompt was read. What llama.cpp would
have had to read again is left out, so the rig counts rather too many than too few. Embeddings have no first token: the
box would have begun with them. What it worked on and lost to a deadline counts as its work until then.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import http.server
import importlib.util
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

CACHE = pathlib.Path(os.environ.get("EDGEWARD_TEST_CACHE", "~/.cache/edgeward")).expanduser()
if importlib.util.find_spec("xllamacpp") is None:
    venv = CACHE / "venv/bin/python"
    os.execv(venv, [str(venv), "-B", *sys.argv])

import anthropic
import ollama
import openai

from slow_box import MODEL, SILENT, OllamaFront, Residence, SlowBox, die_with_parent

PROGRAM = pathlib.Path(__file__).resolve().parent.parent.parent / "target/debug/edgeward"
#: The name of the same model behind Ollama's API, in the quick run.
COLD = "cold"
#: No answer here takes longer.
PATIENCE = 600
#: What a default of `after` lets a request wait before a cloud gets it, in seconds.
AFTER = 10.0
#: In the quick run: less than each whole answer and batch of embeddings takes, more than any first token.
FIRST_TOKEN = 4
#: What Ollama said longer ago, in seconds, edgeward asks again before it goes by it.
OLLAMA_HEARD = 5
#: Seconds of a quick scene, at most.
SCENE_MAX = 60
#: Of the token that would end an answer.
GO_ON = {"logit_bias": {"2": -100}}
#: Causes of attempts that never came to the box.
KEPT_AWAY = ("busy", "not_loaded", "low_memory", "loading", "suspended", "refused")
#: Events of the log that hold something against a target.
AGAINST = ("attempt_failed", "breaker_opened", "target_degraded", "target_ejected", "target_misconfigured", "probe_down",
           "server_died", "server_hangs", "runner_exited")


# --- who answers -----------------------------------------------------------------------------------------------------

class Cloud(http.server.BaseHTTPRequestHandler):
    """Speaks OpenAI's API and answers at once."""

    protocol_version = "HTTP/1.1"
    TEXT = "the cloud's answer"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        base = {"id": "c", "created": 1, "model": body.get("model", "cloud")}
        usage = {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
        if self.path == "/v1/embeddings":
            count = len(body["input"]) if isinstance(body["input"], list) else 1
            vectors = [{"object": "embedding", "index": at, "embedding": [1.0, 0.0]} for at in range(count)]
            return self.whole(base | {"object": "list", "data": vectors, "usage": usage})
        if self.path not in ("/v1/chat/completions", "/v1/completions"):
            return self.whole({"error": {"message": f"no {self.path} here"}}, 404)
        chat = self.path == "/v1/chat/completions"
        if not body.get("stream"):
            said = {"message": {"role": "assistant", "content": self.TEXT}} if chat else {"text": self.TEXT}
            kind = {"object": "chat.completion" if chat else "text_completion", "usage": usage}
            return self.whole(base | kind | {"choices": [{"index": 0, "finish_reason": "stop"} | said]})
        kind = {"object": "chat.completion.chunk" if chat else "text_completion"}
        deltas = [({"delta": {"role": "assistant", "content": self.TEXT}} if chat else {"text": self.TEXT}, None)]
        deltas.append(({"delta": {}} if chat else {"text": ""}, "stop"))
        frames = [base | kind | {"choices": [{"index": 0, "finish_reason": end} | said]} for said, end in deltas]
        if (body.get("stream_options") or {}).get("include_usage"):
            frames.append(base | kind | {"choices": [], "usage": usage})
        lines = [*map(json.dumps, frames), "[DONE]"]
        self.send("".join(f"data: {line}\n\n" for line in lines).encode(), 200, "text/event-stream")

    def whole(self, body: dict, status: int = 200) -> None:
        self.send(json.dumps(body).encode(), status, "application/json")

    def send(self, body: bytes, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def start_cloud() -> int:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


class Edgeward:
    """The program before a box and a cloud; keeps its log."""

    def __init__(self, program: pathlib.Path, after: str | None, boxes: list[str], cloud: int, first_token: int | None):
        self.folder = tempfile.TemporaryDirectory(prefix="edgeward-healthy-")
        config = pathlib.Path(self.folder.name) / "edgeward.toml"
        lines = ['listen = ["127.0.0.1:0"]', f'admin_listen = "{self.folder.name}/admin.sock"']
        if first_token:
            lines.append(f'deadlines = {{ first_token = "{first_token}s", first_token_per_1k = "0s" }}')
        lines.append('[router]\ngroups = ["primary", "fallback"]')
        if after:
            lines.append(f'[elsewhere]\nafter = "{after}"')
        lines += boxes
        lines.append(f'[[target]]\nname = "cloud"\nkind = "openai"\nurl = "http://127.0.0.1:{cloud}/v1"\nplace = "cloud"\n'
                     f'embeddings = "{MODEL}"\nmodels = {{ "*" = "cloud" }}')
        config.write_text("\n".join(lines) + "\n")
        self.log: list[str] = []
        # Its answers are judged by its log, whole.
        environment = os.environ | {"EDGEWARD_LOG": "info"}
        self.process = subprocess.Popen(
            [program, "run", "--config", config], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
            env=environment, preexec_fn=die_with_parent)
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"listening on http://127.0.0.1:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            sys.exit(f"{program} did not start:\n{''.join(self.log)}")
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()

    def status(self) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/edgeward/status", timeout=30) as answer:
            return json.load(answer)

    def against(self, names: set[str]) -> list[str]:
        """What is held against the boxes `names`, by the log and by the status."""
        held = []
        for line in self.log:
            words = line.split()
            event = next((word for word in words[1:3] if word in AGAINST), None)
            if event and any(f"target={name}" in words for name in names):
                held.append(line.strip())
        for target in self.status()["targets"]:
            if target["name"] in names:
                if target["failed"]:
                    held.append(f"status: {target['name']} failed {target['failed']} times")
                for model in target["models"]:
                    if model["breaker"] != "closed" or model["standing"] != "fit" or model["failure_permille"]:
                        held.append(f"status: {target['name']} {json.dumps(model)}")
        return held

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


def box_target(name: str, kind: str, port: int, model: str) -> str:
    return (f'[[target]]\nname = "{name}"\nkind = "{kind}"\nurl = "http://127.0.0.1:{port}"\nplace = "local"\n'
            f'embeddings = "{MODEL}"\nmodels = {{ "{model}" = "{MODEL}" }}')


# --- who asks --------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Ask:
    """One request. `new` tokens of its prompt were not in the one before."""

    form: str
    words: list[dict] | str | list[str]
    stream: bool = False
    tokens: int = 60
    model: str = MODEL
    more: dict = dataclasses.field(default_factory=dict)
    new: int = 40

    def __str__(self) -> str:
        size = f"{len(self.words)} texts" if "embed" in self.form else f"{self.tokens} tokens"
        return f"{self.form}, {'a stream' if self.stream else 'whole'}, {size}"


@dataclasses.dataclass
class Record:
    """What became of one; times are monotonic."""

    ask: Ask
    arrived: float
    first: float | None = None
    ended: float = 0.0
    headers: dict = dataclasses.field(default_factory=dict)
    text: str = ""
    error: str | None = None

    @property
    def attempts(self) -> str:
        return self.headers.get("x-edgeward-attempts", "")

    @property
    def target(self) -> str:
        return self.headers.get("x-edgeward-target", "")

    @property
    def was_there(self) -> bool:
        """Whether the box has worked on it, to its end or not."""
        return any(cause not in KEPT_AWAY for cause in self.causes())

    def causes(self) -> list[str]:
        """What became of its attempts at the box."""
        attempts = [attempt.split(":", 1) for attempt in self.attempts.split(",") if ":" in attempt]
        return [cause for target, cause in attempts if target != "cloud"]

    @property
    def reason(self) -> str:
        """Why it left the box, by the header."""
        return "+".join(self.causes()) or "not told"

    def __str__(self) -> str:
        error = f", {self.error}" if self.error else ""
        return f"{self.ask}: {self.attempts or 'no header'} in {self.ended - self.arrived:.1f} s{error}"


def pieces(stream, read):
    with contextlib.closing(stream) as events:
        for event in events:
            yield from read(event)


class Clients:
    """The three SDKs, for one person. Each form yields the headers, then the answer's pieces."""

    def __init__(self, port: int, patience: float = PATIENCE):
        url = f"http://127.0.0.1:{port}"
        # No client may hide a failure by asking again.
        self.openai = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=patience)
        self.anthropic = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0, timeout=patience)
        hooks = {"response": [lambda answer: setattr(self, "told", answer.headers)]}
        self.ollama = ollama.Client(url, timeout=patience, event_hooks=hooks)
        self.forms = {
            "openai chat": self.chat, "openai completions": self.completions, "openai responses": self.responses,
            "openai embeddings": self.embeddings, "anthropic messages": self.messages,
            "ollama chat": self.ollama_chat, "ollama generate": self.ollama_generate, "ollama embed": self.ollama_embed,
        }

    def ask(self, ask: Ask, first: threading.Event | None = None, leave: threading.Event | None = None) -> Record:
        """Asks, and tells `first` of the first piece; leaves when `leave` is set, at the next piece."""
        record = Record(ask, time.monotonic())
        try:
            with contextlib.closing(self.forms[ask.form](ask)) as answer:
                record.headers = {name.lower(): value for name, value in next(answer).items()}
                for piece in answer:
                    if piece and record.first is None:
                        record.first = time.monotonic()
                        if first:
                            first.set()
                    record.text += piece
                    if leave and leave.is_set():
                        break
            if not record.text:
                record.error = "an empty answer"
        except Exception as error:
            record.error = f"{type(error).__name__}: {error}"
            response = getattr(error, "response", None)
            record.headers = dict(getattr(response, "headers", None) or record.headers)
        finally:
            record.ended = time.monotonic()
            if first:
                first.set()
        return record

    def chat(self, ask: Ask):
        raw = self.openai.chat.completions.with_raw_response.create(
            model=ask.model, messages=ask.words, max_tokens=ask.tokens, temperature=0, stream=ask.stream, **ask.more)
        yield raw.headers
        if ask.stream:
            yield from pieces(raw.parse(), lambda event: [choice.delta.content or "" for choice in event.choices])
        else:
            yield raw.parse().choices[0].message.content

    def completions(self, ask: Ask):
        raw = self.openai.completions.with_raw_response.create(
            model=ask.model, prompt=ask.words, max_tokens=ask.tokens, temperature=0, stream=ask.stream, **ask.more)
        yield raw.headers
        if ask.stream:
            yield from pieces(raw.parse(), lambda event: [choice.text or "" for choice in event.choices])
        else:
            yield raw.parse().choices[0].text

    def responses(self, ask: Ask):
        raw = self.openai.responses.with_raw_response.create(
            model=ask.model, input=ask.words, max_output_tokens=ask.tokens, stream=ask.stream, **ask.more)
        yield raw.headers
        if ask.stream:
            yield from pieces(raw.parse(), lambda event: [event.delta] if event.type == "response.output_text.delta" else [])
        else:
            yield raw.parse().output_text

    def embeddings(self, ask: Ask):
        raw = self.openai.embeddings.with_raw_response.create(model=ask.model, input=ask.words)
        yield raw.headers
        vectors = raw.parse().data
        yield f"{len(vectors)} vectors" if len(vectors) == len(ask.words) else ""

    def messages(self, ask: Ask):
        raw = self.anthropic.messages.with_raw_response.create(
            model=ask.model, messages=ask.words, max_tokens=ask.tokens, stream=ask.stream,
            extra_body={"temperature": 0}, **ask.more)
        yield raw.headers
        if ask.stream:
            yield from pieces(
                raw.parse(), lambda event: [event.delta.text] if getattr(getattr(event, "delta", None), "text", None) else [])
        else:
            yield "".join(block.text for block in raw.parse().content if block.type == "text")

    def ollama_chat(self, ask: Ask):
        yield from self.ollama_answer(self.ollama.chat, "messages", ask, lambda event: event.message.content or "")

    def ollama_generate(self, ask: Ask):
        yield from self.ollama_answer(self.ollama.generate, "prompt", ask, lambda event: event.response or "")

    def ollama_answer(self, call, name: str, ask: Ask, read):
        options = {"num_predict": ask.tokens, "temperature": 0}
        answer = call(model=ask.model, stream=ask.stream, options=options, **{name: ask.words}, **ask.more)
        if not ask.stream:
            yield self.told
            yield read(answer)
            return
        with contextlib.closing(answer) as events:
            first = next(events)
            yield self.told
            yield read(first)
            for event in events:
                yield read(event)

    def ollama_embed(self, ask: Ask):
        answer = self.ollama.embed(model=ask.model, input=ask.words)
        yield self.told
        yield f"{len(answer.embeddings)} vectors" if len(answer.embeddings) == len(ask.words) else ""


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


# --- the quick run ---------------------------------------------------------------------------------------------------

def wait_for(what: str, holds) -> None:
    end = time.monotonic() + SCENE_MAX
    while not holds():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


def by(record: Record, attempts: str) -> Record:
    """Answered, and by whom the header says."""
    assert record.error is None, str(record)
    assert record.attempts == attempts, f"wanted {attempts}: {record}"
    wanted = attempts.rsplit(",", 1)[-1].split(":")[0]
    assert record.target == wanted and (record.text == Cloud.TEXT) == (wanted == "cloud"), f"{record.target}: {record.text!r}"
    return record


class Quick:
    """Scenes, each with what it wants. All edgewards stand before the same box; each has another `after`."""

    def __init__(self, program: pathlib.Path, knows: bool):
        self.box = SlowBox(20)
        self.front = OllamaFront(self.box, keep=PATIENCE, load=0)
        self.boxes = [
            box_target("box", "llamacpp", self.box.port, MODEL), box_target("ollama", "ollama", self.front.port, COLD)]
        self.program, self.knows, self.cloud = program, knows, start_cloud()
        self.all: dict[str, Edgeward] = {}
        self.pool = concurrent.futures.ThreadPoolExecutor(8)

    def edgeward(self, after: str) -> Edgeward:
        """Started when it is asked first, while the box is idle: what it knows of the slot is of then."""
        if after not in self.all:
            # What else runs on this machine is no reason to leave; and who never leaves needs nothing loaded beside it.
            warm_up = "false" if after == "never" else "true"
            memory = f'[memory]\nfloor = "64MiB"\nreserve = "16MiB"\nwarm_up = {warm_up}'
            said = after if self.knows else None
            self.all[after] = Edgeward(self.program, said, [memory, *self.boxes], self.cloud, FIRST_TOKEN)
            wait_for("what the box has", lambda: self.local(after, "box")["slots"])
        return self.all[after]

    def ask(self, after: str, ask: Ask, **events) -> Record:
        return Clients(self.edgeward(after).port, SCENE_MAX).ask(ask, **events)

    def long_one(self, after: str):
        """A stream that keeps the box until `leave` is set; given when its first token is there."""
        first, leave = threading.Event(), threading.Event()
        ask = Ask("openai chat", user("Write a long story about a fox."), True, 3000, more=GO_ON)
        stream = self.pool.submit(self.ask, after, ask, first=first, leave=leave)
        assert first.wait(SCENE_MAX), "no first token"
        wait_for("the box at work", lambda: stream.done() or self.box.busy())
        assert not stream.done(), f"the long stream: {stream.result()}"
        return stream, leave

    def slow(self, record: Record) -> None:
        took = record.ended - record.arrived
        assert took > FIRST_TOKEN, f"the box is too fast for this scene: {took:.1f} s"

    def ended(self, stream, leave) -> None:
        leave.set()
        stream.result(SCENE_MAX)
        self.rested()

    def rested(self) -> None:
        """Until the slot is free, which llama.cpp looks for once a second after a client has left."""
        wait_for("a free slot", lambda: not self.box.busy())

    def whole_answers_have_more_time_than_a_first_token(self) -> None:
        story = user("Write a long story about a fox.")
        streamed = by(self.ask("60s", Ask("openai chat", story, True, 100)), "box:committed")
        for form, after in (("openai chat", "60s"), ("anthropic messages", "60s"), ("ollama chat", "never")):
            record = by(self.ask(after, Ask(form, story, tokens=100)), "box:committed")
            self.slow(record)
            assert record.text == streamed.text, f"{form}: {record.text!r}\n{streamed.text!r}"

    def embeddings_have_more_time_than_a_first_token(self) -> None:
        texts = [f"the {at}th fox and a hen went to the market together" for at in range(16)]
        self.slow(by(self.ask("60s", Ask("openai embeddings", texts)), "box:committed"))

    def a_long_prompt_is_read_to_its_end(self) -> None:
        prompt = "Tell me a story about a fox and a hen. " * 25
        self.slow(by(self.ask("60s", Ask("openai chat", user(prompt), True, 4)), "box:committed"))

    def the_second_person_waits_for_the_first(self) -> None:
        first = threading.Event()
        one = Ask("openai chat", user("Write a long story about a fox."), True, 40)
        stream = self.pool.submit(self.ask, "60s", one, first=first)
        assert first.wait(SCENE_MAX)
        by(self.ask("60s", Ask("anthropic messages", user("Name three colours."), tokens=8)), "box:committed")
        by(stream.result(), "box:committed")

    def who_never_leaves_waits_as_long_as_it_takes(self) -> None:
        long_one = self.long_one("never")
        before = self.all["never"].status()["requests"]
        second = self.pool.submit(self.ask, "never", Ask("openai chat", user("Name three colours."), True, 8))
        wait_for("the second request", lambda: second.done() or self.all["never"].status()["requests"] > before)
        self.ended(*long_one)
        by(second.result(SCENE_MAX), "box:committed")

    def busy_is_told_and_the_conversation_comes_home(self) -> None:
        long_one = self.long_one("0s")
        talk = user("Name three colours.")
        try:
            first = by(self.ask("0s", Ask("openai chat", talk, True, 8)), "box:busy,cloud:committed")
        finally:
            self.ended(*long_one)
        talk += [{"role": "assistant", "content": first.text}, *user("And three more.")]
        wait_for("edgeward to know of the free slot", lambda: not self.local("0s", "box")["busy"])
        by(self.ask("0s", Ask("openai chat", talk, True, 8)), "box:committed")

    def unloaded(self, after: str) -> Residence:
        """The model behind Ollama's API is not loaded, and edgeward knows it, or asks anew: as before an unused hour."""
        self.edgeward(after)
        self.front.residence.unload()
        aged = lambda it: it["resident"] == [] or it["heard_secs"] > OLLAMA_HEARD
        wait_for("edgeward to know of the unloaded model", lambda: aged(self.local(after, "ollama")))
        return self.front.residence

    def loading_is_waited_for(self) -> None:
        for after in ("60s", "never"):
            residence = self.unloaded(after)
            loads, residence.load = residence.loads, FIRST_TOKEN + 1
            record = by(self.ask(after, Ask("ollama chat", user("Name three colours."), tokens=8, model=COLD)), "ollama:committed")
            self.slow(record)
            assert residence.loads == loads + 1, f"{residence.loads - loads} loads"

    def not_loaded_is_told_and_the_conversation_comes_home(self) -> None:
        residence = self.unloaded("0s")
        loads, residence.load = residence.loads, 0
        residence.gate.clear()
        talk = user("Name three colours.")
        try:
            first = by(self.ask("0s", Ask("openai chat", talk, True, 8, COLD)), "ollama:not_loaded,cloud:committed")
        finally:
            residence.gate.set()
        residence.wait_for(lambda it: it.loads > loads)
        talk += [{"role": "assistant", "content": first.text}, *user("And three more.")]
        wait_for("edgeward to know of the load", lambda: self.local("0s", "ollama")["resident"])
        by(self.ask("0s", Ask("openai chat", talk, True, 8, COLD)), "ollama:committed")

    def local(self, after: str, name: str) -> dict:
        return next(target["local"] for target in self.all[after].status()["targets"] if target["name"] == name)

    def nothing_is_held_against_the_box(self) -> None:
        held = [f"after = {after}: {one}" for after, it in self.all.items() for one in it.against({"box", "ollama"})]
        assert not held, "\n".join(held)

    SCENES = [
        whole_answers_have_more_time_than_a_first_token,
        embeddings_have_more_time_than_a_first_token,
        a_long_prompt_is_read_to_its_end,
        the_second_person_waits_for_the_first,
        who_never_leaves_waits_as_long_as_it_takes,
        busy_is_told_and_the_conversation_comes_home,
        loading_is_waited_for,
        not_loaded_is_told_and_the_conversation_comes_home,
        nothing_is_held_against_the_box,
    ]

    def run(self) -> int:
        wrong = 0
        for scene in self.SCENES:
            began, what = time.monotonic(), scene.__name__.replace("_", " ")
            try:
                self.rested()
                scene(self)
                print(f"ok     {time.monotonic() - began:5.1f} s  {what}", flush=True)
            except Exception as error:
                wrong += 1
                why = error if isinstance(error, AssertionError) else repr(error)
                print(f"FAILED {time.monotonic() - began:5.1f} s  {what}:\n    {why}", flush=True)
        if wrong:
            for after, it in self.all.items():
                print(f"--- edgeward with after = {after}\n{''.join(it.log[-60:])}")
        return wrong

    def end(self) -> None:
        for it in self.all.values():
            it.end()
        self.front.end()
        self.box.end()
        self.pool.shutdown()


# --- half an hour ----------------------------------------------------------------------------------------------------

SUBJECTS = ["a lighthouse", "the first snow", "an old clock", "a fox and a hen", "a lost key", "the market on a Sunday",
            "a long train ride", "how bread is made", "the sea at night", "a broken bicycle"]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "year": {"type": "integer"}},
          "required": ["name", "year"], "additionalProperties": False}
CHATS = ["openai chat", "anthropic messages", "ollama chat"]


class Person(threading.Thread):
    """Asks, reads, thinks, asks again, until the time is over. `takes`: how often it does what."""

    def __init__(self, rig: "Rig", seed: str, takes: dict[str, int]):
        super().__init__(daemon=True)
        self.rig, self.dice, self.takes = rig, random.Random(seed), takes
        self.clients = Clients(rig.edgeward.port)

    def run(self) -> None:
        while self.rig.may_ask():
            what = self.dice.choices(list(self.takes), self.takes.values())[0]
            getattr(self, what)()
            self.rig.pause(self.dice.uniform(1, 12))

    def ask(self, *args, leave: threading.Event | None = None, **more) -> Record:
        record = self.clients.ask(Ask(*args, **more), leave=leave)
        self.rig.records.append(record)
        return record

    def story(self) -> str:
        return f"Write a long story about {self.dice.choice(SUBJECTS)}, and begin with the number {self.dice.randrange(999)}."

    def talk(self) -> None:
        form, talk = self.dice.choice(CHATS), user(f"Tell me about {self.dice.choice(SUBJECTS)}.")
        for _ in range(self.dice.randrange(1, 5)):
            record = self.ask(form, talk, self.dice.random() < 0.8, self.dice.randrange(30, 120), new=40)
            talk = [*talk, {"role": "assistant", "content": record.text or "…"}, *user("And what happened then?")]
            self.rig.pause(self.dice.uniform(1, 8))
            if not self.rig.may_ask():
                return

    def long_whole(self) -> None:
        form = self.dice.choice([*CHATS, "openai responses", "ollama generate"])
        words = self.story()
        words = user(words) if form in CHATS else words
        self.ask(form, words, tokens=self.dice.randrange(250, 450), new=50)

    def long_prompt(self) -> None:
        text = " ".join(f"{self.dice.choice(SUBJECTS)} {self.dice.randrange(99)}," for _ in range(self.dice.randrange(30, 60)))
        stream = self.dice.random() < 0.5
        self.ask(self.dice.choice(CHATS), user(f"Say in a word what this is: {text}"), stream, 24, new=len(text) // 4 + 40)

    def embed(self) -> None:
        texts = [f"{self.dice.choice(SUBJECTS)} and {self.dice.choice(SUBJECTS)}" for _ in range(self.dice.randrange(12, 60))]
        forms = ["openai embeddings"] + (["ollama embed"] if self.rig.kind == "ollama" else [])
        self.ask(self.dice.choice(forms), texts, new=10 * len(texts))

    def complete(self) -> None:
        text = f"Once upon a time, number {self.dice.randrange(999)}, there was"
        self.ask("openai completions", text, self.dice.random() < 0.5, 80, new=20)

    def shape(self) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
        self.ask("openai chat", user(self.story()), tokens=120, more={"response_format": form}, new=50)

    def likely(self) -> None:
        self.ask("openai chat", user(self.story()), tokens=60, more={"logprobs": True, "top_logprobs": 2}, new=50)

    def think(self) -> None:
        """An answer that begins with seconds of silence; llama.cpp itself has none."""
        if self.rig.kind != "ollama":
            return self.talk()
        self.ask("ollama chat", user(self.story()), self.dice.random() < 0.5, 150, more={"think": True}, new=50 + 2 * SILENT)

    def leave(self) -> None:
        left = threading.Event()
        left.set()
        self.ask(self.dice.choice(CHATS), user(self.story()), True, 200, new=50, leave=left)


class Rig:
    """One kind of server for a part of the time."""

    #: People rest as long as it takes the model to be unloaded, once in a while; seconds.
    KEEP, LOAD, ROUND = 40, 3.0, 240
    PEOPLE = [
        {"talk": 10, "complete": 2, "long_prompt": 2, "think": 2, "leave": 2, "likely": 1},
        {"long_whole": 6, "embed": 4, "shape": 3, "long_prompt": 2, "talk": 2},
    ]

    def __init__(self, args: argparse.Namespace, kind: str, minutes: float):
        self.kind, self.minutes = kind, minutes
        self.box = SlowBox(args.speed, sleep=self.KEEP if kind == "llamacpp" else -1)
        self.front = OllamaFront(self.box, self.KEEP, self.LOAD) if kind == "ollama" else None
        target = box_target("box", kind, (self.front or self.box).port, MODEL)
        after = None if args.baseline or args.after == "default" else args.after
        self.edgeward = Edgeward(args.baseline or args.edgeward, after, [target], start_cloud(), None)
        self.after = {"never": float("inf"), "default": AFTER}.get(args.after) or seconds(args.after)
        self.records: list[Record] = []
        self.began, self.over = time.monotonic(), threading.Event()
        self.people = [Person(self, f"{args.seed}-{at}", takes) for at, takes in enumerate(self.PEOPLE)]

    def pause(self, length: float) -> None:
        self.over.wait(length)

    def may_ask(self) -> bool:
        """Whether the time is not over; rests while all do."""
        passed = (time.monotonic() - self.began) % self.ROUND
        if passed > self.ROUND - self.KEEP - 25:
            self.pause(self.ROUND - passed)
        return not self.over.is_set()

    def run(self) -> None:
        for person in self.people:
            person.start()
        for _ in range(int(self.minutes * 2) or 1):
            time.sleep(min(30, self.minutes * 60))
            left = sum(record.target == "cloud" for record in self.records)
            passed = time.monotonic() - self.began
            print(f"  {passed:5.0f} s: {len(self.records)} requests, {left} left the box", file=sys.stderr)
        self.over.set()
        for person in self.people:
            person.join()

    def heard(self) -> None:
        """Sets each request's arrival to when edgeward had it: two that are asked at once may come in either order."""
        began = {}
        for line in list(self.edgeward.log):
            if found := re.match(r"(\S+) +\w+ +request_done request=(\S+) .*\btook_us=(\d+)", line):
                said = datetime.datetime.fromisoformat(found[1]).timestamp() - (time.time() - time.monotonic())
                began[found[2]] = said - int(found[3]) / 1e6
        for record in self.records:
            record.arrived = began.get(record.headers.get("x-edgeward-request-id"), record.arrived)

    def would_have_waited(self, record: Record) -> float:
        """Seconds from a request's arrival to the box's first token, had it waited."""
        before = [other for other in self.records if other.was_there and other.arrived < record.arrived]
        # Ollama begins with nothing loaded.
        begin = self.began - (self.KEEP + 1 if self.front else 0)
        ended = max((other.ended for other in before), default=begin)
        load = self.LOAD if record.arrived - ended > self.KEEP else 0
        free = max(ended, record.arrived) + load
        # Embeddings have no first token: they are to begin within that time.
        new = 0 if "embed" in record.ask.form else record.ask.new + 1
        return free - record.arrived + self.box.prompt_seconds(new)

    def needless(self, record: Record, wait: float) -> bool:
        """Where memory is short, `after` binds nobody."""
        return wait <= self.after and "low_memory" not in record.causes()

    def report(self) -> bool:
        """Prints it; whether all is as wanted."""
        self.heard()
        records = sorted(self.records, key=lambda record: record.arrived)
        failures = [record for record in records if record.error]
        left = [(record, self.would_have_waited(record)) for record in records if record.target == "cloud"]
        needless = [record for record, wait in left if self.needless(record, wait)]
        speed = self.box.share / self.box.token
        forms = collections.Counter(f"{one.ask.form}{', a stream' if one.ask.stream else ''}" for one in records)
        print(f"\n{self.kind}, {self.minutes:.0f} min, about {speed:.0f} tokens a second, "
              f""
              f"{f'{self.front.residence.loads} loads' if self.front else 'loads by itself'}")
        print(f"requests: {len(records)} ({', '.join(f'{count} {form}' for form, count in forms.most_common())})")
        reasons = collections.Counter(record.reason for record, _ in left)
        without = collections.Counter(record.reason for record in needless)
        share = 100 * len(needless) / max(len(records), 1)
        print(f"left the box: {len(left)}; without need: {len(needless)}, {share:.1f} %")
        for reason, count in reasons.most_common():
            print(f"  {reason}: {count}, without need {without[reason]}")
        for record, wait in left:
            print(f"    at {record.arrived - self.began:5.0f} s {record}; the box would have begun after {wait:.1f} s"
                  f"{', WITHOUT NEED' if self.needless(record, wait) else ''}")
        print(f"failures: {len(failures)}")
        for record in failures:
            print(f"    at {record.arrived - self.began:5.0f} s {record}")
        held = self.edgeward.against({"box"})
        print(f"held against the box: {len(held)}")
        for one in held:
            print(f"    {one}")
        pressure = [line.strip() for line in self.edgeward.log if " pressure " in line]
        if pressure:
            print(f"memory of this machine was short, which counts as need: {len(pressure)} lines, as {pressure[0]}")
        none = len(left) == 0 if self.after == float("inf") else share < 1
        return none and not failures and not held

    def end(self) -> None:
        self.edgeward.end()
        if self.front:
            self.front.end()
        self.box.end()


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|m)", text).groups()
    return float(number) * {"ms": 0.001, "s": 1, "m": 60}[unit]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the short form, which asserts")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--after", default="default", help="never, default, or a time as 10s")
    parser.add_argument("--server", choices=["llamacpp", "ollama", "both"], default="both")
    parser.add_argument("--speed", type=float, default=15, help="tokens a second, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--edgeward", type=pathlib.Path, default=PROGRAM, help="the built program")
    parser.add_argument("--baseline", type=pathlib.Path, help="an older program, without [elsewhere] in its configuration")
    args = parser.parse_args()
    if args.quick:
        quick = Quick(args.baseline or args.edgeward, not args.baseline)
        try:
            return 1 if quick.run() else 0
        finally:
            quick.end()
    kinds = ["llamacpp", "ollama"] if args.server == "both" else [args.server]
    good = True
    print(f"after = {args.after}{f', {args.baseline}' if args.baseline else ''}")
    for kind in kinds:
        rig = Rig(args, kind, args.minutes / len(kinds))
        try:
            rig.run()
            good &= rig.report()
        finally:
            rig.end()
    print("\nas wanted" if good else "\nNOT as wanted: none left with never, else less than 1 % without need; no failure, "
          "none held against the box")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
