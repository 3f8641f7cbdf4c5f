"""A real client against every kind of target through edgeward: `translated.py CLIENT EDGEWARD [TARGETS]`.

A target of `targets.py` is asked for by its kind as the model's name; `over-KIND` is asked of failing ones first.
Without TARGETS a real server stands behind the names `translated` and `native`.
"""

import argparse
import dataclasses
import json
import sys
import urllib.request

import targets

KINDS = ("openai", "ollama", "anthropic", "gemini")
SYSTEM = "You are a fox. 🦊"
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
          "required": ["place"]}
RESULTS = ("21 degrees", "18 degrees")
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LIMIT = 16
TOOLS = [("weather", "Tells the weather.", SCHEMA)]


@dataclasses.dataclass
class Reply:
    """What a client was given."""

    thinking: str = ""
    text: str = ""
    calls: list = dataclasses.field(default_factory=list)
    finish: str = ""
    usage: tuple = ()
    model: str = ""
    # The assistant's message as the client sends it back.
    message: object = None


def weather() -> type:
    import pydantic

    class Weather(pydantic.BaseModel):
        place: str
        days: list[int]

    return Weather


class OpenAi:
    finish = {"stop": "stop", "length": "length", "calls": "tool_calls"}
    thinks = True

    def __init__(self, url: str) -> None:
        import openai

        self.api = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=60)
        self.error, self.bad, self.server_error = openai.APIError, openai.BadRequestError, openai.InternalServerError

    def system(self, text: str) -> list:
        return [{"role": "system", "content": text}]

    def user(self, text: str, image: str | None = None) -> dict:
        if image is None:
            return {"role": "user", "content": text}
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
        return {"role": "user", "content": [{"type": "text", "text": text}, url]}

    def results(self, calls: list, texts: tuple) -> list:
        return [{"role": "tool", "tool_call_id": id, "content": text} for (id, _, _), text in zip(calls, texts)]

    def ask(self, model: str, messages: list, stream: bool, tools: list = []) -> Reply:
        more = {"tools": [{"type": "function", "function": {"name": name, "description": about, "parameters": schema}}
                          for name, about, schema in tools]} if tools else {}
        if not stream:
            answer = self.api.chat.completions.create(model=model, messages=messages, max_tokens=LIMIT, **more)
            message = answer.choices[0].message
            calls = [(it.id, it.function.name, it.function.arguments) for it in message.tool_calls or []]
            thinking, text, finish = getattr(message, "reasoning_content", ""), message.content, answer.choices[0].finish_reason
            usage = answer.usage
        else:
            more["stream_options"] = {"include_usage": True}
            answer = self.api.chat.completions.create(model=model, messages=messages, max_tokens=LIMIT, stream=True, **more)
            thinking = text = finish = ""
            calls, usage = {}, None
            for chunk in answer:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    thinking += getattr(choice.delta, "reasoning_content", None) or ""
                    text += choice.delta.content or ""
                    finish = choice.finish_reason or finish
                    for call in choice.delta.tool_calls or []:
                        id, name, words = calls.get(call.index, ("", "", ""))
                        calls[call.index] = (id or call.id, name or call.function.name, words + (call.function.arguments or ""))
                answer.model = chunk.model
            calls = [calls[at] for at in range(len(calls))]
        message = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [{"id": id, "type": "function", "function": {"name": name, "arguments": words}}
                                     for id, name, words in calls]
        calls = [(id, name, json.loads(words)) for id, name, words in calls]
        usage = (usage.prompt_tokens, usage.completion_tokens)
        return Reply(thinking or "", text or "", calls, finish, usage, answer.model, [message])


    def structured(self, model: str) -> object:
        answer = self.api.chat.completions.parse(model=model, messages=[self.user("[[json]]")], response_format=weather())
        return answer.choices[0].message.parsed

    def texts(self, model: str) -> list[str]:
        answer = self.api.completions.create(model=model, prompt="Hello.", stream=True)
        streamed = "".join(part.choices[0].text for part in answer if part.choices)
        return [streamed, self.api.completions.create(model=model, prompt="Hello.").choices[0].text]


class Responses(OpenAi):
    """The same client's newer endpoint."""

    finish = {"stop": "completed", "length": "incomplete", "calls": "completed"}

    def user(self, text: str, image: str | None = None) -> dict:
        content = [{"type": "input_text", "text": text}]
        if image is not None:
            content.append({"type": "input_image", "image_url": f"data:image/png;base64,{image}", "detail": "auto"})
        return {"role": "user", "content": content}

    def results(self, calls: list, texts: tuple) -> list:
        return [{"type": "function_call_output", "call_id": id, "output": text} for (id, _, _), text in zip(calls, texts)]

    def ask(self, model: str, messages: list, stream: bool, tools: list = []) -> Reply:
        more = {"tools": [{"type": "function", "name": name, "description": about, "parameters": schema, "strict": False}
                          for name, about, schema in tools]} if tools else {}
        if not stream:
            answer = self.api.responses.create(model=model, input=messages, max_output_tokens=LIMIT, **more)
        else:
            text, answer = "", None
            for event in self.api.responses.create(model=model, input=messages, max_output_tokens=LIMIT, stream=True, **more):
                if event.type == "response.failed":
                    raise self.error(event.response.error.message, request=None, body=None)
                text += event.delta if event.type == "response.output_text.delta" else ""
                if event.type in ("response.completed", "response.incomplete"):
                    answer = event.response
            assert answer is not None, "the stream has no end"
            assert text == answer.output_text, (text, answer.output_text)
        calls = [(it.call_id, it.name, json.loads(it.arguments)) for it in answer.output if it.type == "function_call"]
        thinking = "".join(part.text for it in answer.output if it.type == "reasoning" for part in it.content or it.summary)
        usage = (answer.usage.input_tokens, answer.usage.output_tokens)
        history = [it.model_dump(exclude_none=True) for it in answer.output]
        return Reply(thinking, answer.output_text, calls, answer.status, usage, answer.model, history)


    def structured(self, model: str) -> object:
        return self.api.responses.parse(model=model, input="[[json]]", text_format=weather()).output_parsed


class Anthropic:
    finish = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"}

    def __init__(self, url: str) -> None:
        import anthropic

        self.api = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0, timeout=60)
        self.error, self.bad, self.server_error = anthropic.APIError, anthropic.BadRequestError, anthropic.InternalServerError

    def system(self, text: str) -> list:
        return [{"role": "system", "content": text}]

    def user(self, text: str, image: str | None = None) -> dict:
        if image is None:
            return {"role": "user", "content": text}
        source = {"type": "base64", "media_type": "image/png", "data": image}
        return {"role": "user", "content": [{"type": "text", "text": text}, {"type": "image", "source": source}]}

    def results(self, calls: list, texts: tuple) -> list:
        return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}
                                             for (id, _, _), text in zip(calls, texts)]}]

    def ask(self, model: str, messages: list, stream: bool, tools: list = []) -> Reply:
        more = {"tools": [{"name": name, "description": about, "input_schema": schema} for name, about, schema in tools]} if tools else {}
        if messages[0]["role"] == "system":
            more["system"], messages = messages[0]["content"], messages[1:]
        asked = {"model": model, "messages": messages, "max_tokens": LIMIT, **more}
        if stream:
            with self.api.messages.stream(**asked) as events:
                text = "".join(events.text_stream)
                answer = events.get_final_message()
        else:
            answer = self.api.messages.create(**asked)
            text = "".join(it.text for it in answer.content if it.type == "text")
        thinking = "".join(it.thinking for it in answer.content if it.type == "thinking")
        calls = [(it.id, it.name, it.input) for it in answer.content if it.type == "tool_use"]
        message = {"role": "assistant", "content": [it.model_dump(exclude_none=True) for it in answer.content]}
        usage = (answer.usage.input_tokens, answer.usage.output_tokens)
        return Reply(thinking, text, calls, answer.stop_reason, usage, answer.model, [message])


    def structured(self, model: str) -> object:
        answer = self.api.messages.parse(model=model, max_tokens=LIMIT, messages=[self.user("[[json]]")], output_format=weather())
        return answer.parsed_output


class Ollama:
    finish = {"stop": "stop", "length": "length", "calls": "stop"}

    def __init__(self, url: str) -> None:
        import ollama

        self.api = ollama.Client(host=url, timeout=60)
        self.error = self.bad = self.server_error = ollama.ResponseError

    def system(self, text: str) -> list:
        return [{"role": "system", "content": text}]

    def user(self, text: str, image: str | None = None) -> dict:
        return {"role": "user", "content": text} | ({"images": [image]} if image else {})

    def results(self, calls: list, texts: tuple) -> list:
        return [{"role": "tool", "tool_name": name, "content": text} for (_, name, _), text in zip(calls, texts)]

    def ask(self, model: str, messages: list, stream: bool, tools: list = []) -> Reply:
        tools = [{"type": "function", "function": {"name": name, "description": about, "parameters": schema}}
                 for name, about, schema in tools]
        answer = self.api.chat(model=model, messages=messages, stream=stream, tools=tools or None, options={"num_predict": LIMIT})
        thinking = text = ""
        calls = []
        for part in answer if stream else [answer]:
            thinking += part.message.thinking or ""
            text += part.message.content or ""
            calls += part.message.tool_calls or []
        assert part.done, part
        message = {"role": "assistant", "content": text, "thinking": thinking, "tool_calls": calls}
        calls = [(None, it.function.name, dict(it.function.arguments)) for it in calls]
        return Reply(thinking, text, calls, part.done_reason, (part.prompt_eval_count, part.eval_count), part.model, [message])


    def structured(self, model: str) -> object:
        schema = weather().model_json_schema()
        answer = self.api.chat(model=model, messages=[self.user("[[json]]")], format=schema)
        return weather().model_validate_json(answer.message.content)

    def texts(self, model: str) -> list[str]:
        streamed = "".join(part.response for part in self.api.generate(model=model, prompt="Hello.", stream=True))
        return [streamed, self.api.generate(model=model, prompt="Hello.").response]


CLIENTS = {"openai": OpenAi, "responses": Responses, "anthropic": Anthropic, "ollama": Ollama}


def same(got: object, wanted: object, what: str) -> None:
    assert got == wanted, f"{what}: {got!r} instead of {wanted!r}"


class Trial:
    """One client's tests."""

    def __init__(self, name: str, edgeward: str, servers: str) -> None:
        self.name, self.client, self.servers = name, CLIENTS[name](edgeward), servers
        # The scripted servers do not speak OpenAI's Responses, with which these kinds are asked untouched.
        self.kinds = KINDS[2:] if name == "responses" else KINDS

    def look(self, path: str) -> object:
        with urllib.request.urlopen(f"{self.servers}{path}", timeout=30) as answer:
            return json.load(answer)

    def last(self, kind: str) -> dict:
        last = self.look("/last")
        same(last["target"], kind, "who was asked")
        return last

    def text(self, kind: str, stream: bool) -> None:
        reply = self.client.ask(kind, [*self.client.system(SYSTEM), self.client.user("Hello.")], stream)
        said = self.last(kind)
        same(said["system"], [SYSTEM], "instructions")
        same(said["texts"], ["Hello."], "words")
        self.expect(reply, targets.TEXT, "stop")
        same(reply.thinking, targets.THOUGHT, "thinking")
        same(reply.usage, (11, 7), "usage")

    def expect(self, reply: Reply, text: str, finish: str) -> None:
        same(reply.text, text, "text")
        same(reply.finish, self.client.finish[finish], "finish")

    def image(self, kind: str, stream: bool) -> None:
        reply = self.client.ask(kind, [self.client.user("What is this?", IMAGE)], stream)
        same(self.last(kind)["images"], [IMAGE], "images")
        self.expect(reply, targets.TEXT, "stop")

    def length(self, kind: str, stream: bool) -> None:
        self.expect(self.client.ask(kind, [self.client.user("[[length]]")], stream), "Cut sh", "length")

    def tools(self, kind: str, stream: bool) -> None:
        """Two calls at once, and their results to a target of each kind in turn."""
        history = [*self.client.system(SYSTEM), self.client.user("[[tools]]")]
        reply = self.client.ask(kind, history, stream, TOOLS)
        self.expect(reply, "I will look.", "calls")
        wanted = [("weather", {"place": place, "days": [1, 2]}) for place in targets.PLACES]
        same([(name, arguments) for _, name, arguments in reply.calls], wanted, "calls")
        history += [*reply.message, *self.client.results(reply.calls, RESULTS)]
        for other in self.kinds:
            answer = self.client.ask(other, history, stream, TOOLS)
            self.expect(answer, targets.RESULT, "stop")
            said = self.last(other)
            same(said["system"], [SYSTEM], f"instructions at {other}")
            same([(name, arguments) for _, name, arguments in said["calls"]], wanted, f"calls at {other}")
            for (_, text), given in zip(said["results"], RESULTS, strict=True):
                assert given in text, f"results at {other}: {said['results']}"
            ids = {"openai": ["functions.weather:0", "functions.weather:1"],
                   "anthropic": ["toolu_01weather0", "toolu_01weather1"]}.get(kind)
            if other == kind and ids and self.name != "ollama":
                same([id for id, _, _ in said["calls"]], ids, "a target's own ids")

    def broken(self, kind: str, stream: bool) -> None:
        for scene in ("error", "cut"):
            try:
                reply = self.client.ask(kind, [self.client.user(f"[[{scene}]]")], stream)
            except self.client.error as error:
                assert stream or isinstance(error, self.client.server_error), error
                continue
            raise AssertionError(f"{scene}: no error, but {reply}")

    def failover(self, kind: str, stream: bool) -> None:
        reply = self.client.ask(f"over-{kind}", [*self.client.system(SYSTEM), self.client.user("Hello.", IMAGE)], stream)
        same(self.last(kind)["images"], [IMAGE], "images")
        self.expect(reply, targets.TEXT, "stop")

    def bad(self) -> None:
        unfit = [{"role": "wizard", "content": "Hello."}]
        if self.name != "ollama":
            unfit.append({"role": "user", "content": {"un": "fit"}})
            unfit += self.client.results([("nobody", "weather", {})], RESULTS)
        for message in unfit:
            try:
                self.client.ask("openai", [message], True)
            except self.client.bad as error:
                same(error.status_code, 400, "status")
                assert "0]" in str(error), error
                continue
            raise AssertionError(f"no error for {message}")

    def beside(self) -> None:
        """What is no conversation."""
        api = self.client.api
        for kind in self.kinds:
            answer = self.client.structured(kind)
            same((answer.place, answer.days), (targets.PLACES[0], [1, 2]), f"JSON from {kind}")
            if kind == "gemini":
                asked = self.last(kind)["body"]["generationConfig"]
                same(asked["responseMimeType"], "application/json", "what was asked for")
        if self.name in ("openai", "ollama"):
            # Of the scripted servers only these are asked in another dialect than that of texts without roles.
            for kind in ("anthropic", "gemini"):
                same(self.client.texts(kind), [targets.TEXT] * 2, f"texts from {kind}")
        if self.name == "ollama":
            return
        same(api.models.retrieve("gemini").id, "gemini", "a model")
        assert {*KINDS} <= {model.id for model in api.models.list()}, "models are missing"
        if self.name == "anthropic":
            same(api.models.retrieve("gemini").type, "model", "a model's type")
            for kind in KINDS:
                raw = api.messages.with_raw_response.count_tokens(model=kind, messages=[self.client.user("A fox. " * 50)])
                count = raw.parse().input_tokens
                if kind == "anthropic":
                    same(count, targets.COUNTED, "tokens")
                else:
                    same(raw.headers["x-edgeward-degraded"], "estimate", "how they were counted")
                    assert 50 < count < 400, count
            same(self.client.ask("llamacpp", [self.client.user("Hello.")], True).text, targets.TEXT, "text")

    def run(self) -> None:
        wrong = []
        trials = (self.text, self.image, self.length, self.tools, self.broken, self.failover)
        for trial in trials:
            for kind in self.kinds:
                for stream in (False, True):
                    try:
                        trial(kind, stream)
                    except Exception as error:
                        wrong.append(f"{trial.__name__} {kind} stream={stream}: {type(error).__name__}: {error}")
        self.bad()
        self.beside()
        wrong += self.look("/faults")
        sys.exit("\n".join(wrong) if wrong else None)


def real(client: object) -> None:
    for model in ("translated", "native"):
        for stream in (False, True):
            reply = client.ask(model, [*client.system(SYSTEM), client.user("Name three colours.")], stream)
            assert reply.text.strip(), f"{model} stream={stream}: no text"
            assert reply.finish in client.finish.values(), f"{model} stream={stream}: {reply.finish}"
            assert min(reply.usage) > 0, f"{model} stream={stream}: {reply.usage}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("edgeward", help="its base URL")
    parser.add_argument("targets", nargs="?", help="that of targets.py")
    args = parser.parse_args()
    if args.targets is None:
        return real(CLIENTS[args.client](args.edgeward))
    Trial(args.client, args.edgeward, args.targets).run()


if __name__ == "__main__":
    main()
