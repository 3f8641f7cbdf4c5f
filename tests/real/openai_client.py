"""The `openai` client against one base URL: stream, whole answer, embeddings, models, and a disconnect mid-stream."""

import argparse
import json
import time
import urllib.request

import openai

QUESTION = [{"role": "user", "content": "Name three colours."}]
# How long llama.cpp may take to see that its client is gone: it looks once a second, and after each batch.
SLOT_FREE_SECONDS = 10


def busy_slots(slots_url: str) -> int:
    with urllib.request.urlopen(slots_url, timeout=30) as answer:
        return sum(slot["is_processing"] for slot in json.load(answer))


def stream(client: openai.OpenAI, model: str) -> str:
    chunks = list(
        client.chat.completions.create(
            model=model, messages=QUESTION, temperature=0, max_tokens=16, stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    usage = [chunk.usage for chunk in chunks if chunk.usage]
    assert text, "a stream without text"
    assert reasons == ["length"], reasons
    assert len(usage) == 1 and usage[0].completion_tokens == 16, usage
    return text


def stream_without_usage(client: openai.OpenAI, model: str) -> str:
    chunks = list(
        client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=16, stream=True)
    )
    assert not any(chunk.usage for chunk in chunks), "usage that was not asked for"
    assert all(chunk.choices for chunk in chunks), "a chunk without choices"
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def whole(client: openai.OpenAI, model: str) -> str:
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=16)
    assert answer.usage.completion_tokens == 16, answer.usage
    assert answer.model == model, answer.model
    return answer.choices[0].message.content


def embeddings(client: openai.OpenAI, model: str) -> None:
    answer = client.embeddings.create(model=model, input=["a fox", "a vixen", "a steam engine"])
    vectors = [item.embedding for item in answer.data]
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert len({len(vector) for vector in vectors}) == 1 and len(vectors[0]) > 100
    assert abs(sum(x * x for x in vectors[0]) - 1) < 0.01, "not normalised"


def disconnect(client: openai.OpenAI, model: str, slots_url: str) -> float:
    """Leaves after the third token of an answer that would run for minutes. Seconds until the slot was free."""
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, stream=True, max_tokens=3500, extra_body={"ignore_eos": True}
    )
    for count, _ in enumerate(answer):
        if count == 3:
            break
    assert busy_slots(slots_url) == 1, "the server is not computing"
    answer.close()
    left = time.monotonic()
    while busy_slots(slots_url) > 0:
        assert time.monotonic() - left < SLOT_FREE_SECONDS, "the slot is still busy after the client left"
        time.sleep(0.01)
    return time.monotonic() - left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base_url")
    parser.add_argument("model")
    parser.add_argument("slots_url", help="the model server's own /slots")
    args = parser.parse_args()
    client = openai.OpenAI(base_url=args.base_url, api_key="unused", max_retries=0, timeout=120)

    streamed = stream(client, args.model)
    assert stream_without_usage(client, args.model) == streamed
    assert whole(client, args.model) == streamed
    print("stream and whole answer agree")
    embeddings(client, args.model)
    print("embeddings")
    names = [model.id for model in client.models.list()]
    assert args.model in names, names
    print("models")
    print(f"slot free {disconnect(client, args.model, args.slots_url):.3f} s after the disconnect")
    print("done")


if __name__ == "__main__":
    main()
