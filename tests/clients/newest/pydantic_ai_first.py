"""The first example of the documents of pydantic-ai."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

agent = Agent(OpenAIChatModel("demo"), instructions="Be concise, reply with one sentence.")
print(agent.run_sync('Where does "hello world" come from?').output)
