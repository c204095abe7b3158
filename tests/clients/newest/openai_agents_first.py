"""The first example of the documents of openai-agents."""

from agents import Agent, Runner, set_tracing_disabled

set_tracing_disabled(True)  # traces go to OpenAI
agent = Agent(name="Assistant", instructions="You are a helpful assistant", model="demo")
result = Runner.run_sync(agent, "Write a haiku about recursion in programming.")
print(result.final_output)
