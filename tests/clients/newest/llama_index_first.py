"""The first example of the documents of llama-index."""

import asyncio
import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


def multiply(a: float, b: float) -> float:
    """Useful for multiplying two numbers."""
    return a * b


agent = FunctionAgent(
    tools=[multiply],
    llm=OpenAILike(model="demo", api_base=os.environ["OPENAI_BASE_URL"], api_key="none",
                   is_chat_model=True, is_function_calling_model=True, context_window=32768),
    system_prompt="You are a helpful assistant that can multiply two numbers.",
)


async def main():
    print(str(await agent.run("What is 1234 * 4567?")))


asyncio.run(main())
