"""An agent framework, pydantic-ai, with tools through edgeward: `agent.py EDGEWARD TARGETS`, as `translated.py`."""

import asyncio
import json
import sys
import urllib.request

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import targets
from translated import KINDS, SYSTEM

ASKED: list[str] = []


def weather(place: str, days: list[int]) -> str:
    """Tells the weather."""
    ASKED.append(place)
    return f"{len(days)} fine days"


async def ask(agent: Agent, streams: bool) -> None:
    ASKED.clear()
    if streams:
        async with agent.run_stream("[[agent]]") as answer:
            text = await answer.get_output()
    else:
        text = (await agent.run("[[agent]]")).output
    assert text == targets.RESULT, text
    assert sorted(ASKED) == sorted(targets.PLACES), ASKED


async def main(edgeward: str, servers: str) -> None:
    openai = OpenAIProvider(base_url=f"{edgeward}/v1", api_key="unused")
    anthropic = AnthropicProvider(base_url=edgeward, api_key="unused")
    models = [(OpenAIChatModel, openai, KINDS), (AnthropicModel, anthropic, KINDS)]
    # The scripted servers do not speak OpenAI's Responses, with which the others are asked untouched.
    models.append((OpenAIResponsesModel, openai, ("anthropic", "gemini")))
    wrong = []
    for model, provider, kinds in models:
        for kind in kinds:
            agent = Agent(model(kind, provider=provider), instructions=SYSTEM, tools=[weather])
            for streams in (False, True):
                try:
                    await ask(agent, streams)
                except Exception as error:
                    wrong.append(f"{model.__name__} {kind} stream={streams}: {type(error).__name__}: {error}")
    with urllib.request.urlopen(f"{servers}/faults", timeout=30) as faults:
        wrong += json.load(faults)
    sys.exit("\n".join(wrong) if wrong else None)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
