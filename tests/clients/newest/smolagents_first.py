"""The first example of the documents of smolagents."""

import os

from smolagents import CodeAgent, OpenAIModel

model = OpenAIModel(model_id="demo", api_base=os.environ["OPENAI_BASE_URL"], api_key="none")
agent = CodeAgent(tools=[], model=model)
print(agent.run("Calculate the sum of numbers from 1 to 10"))
