"""The first example of the documents of CrewAI: an agent, a task, a crew."""

from crewai import LLM, Agent, Crew, Task

researcher = Agent(role="Senior Data Researcher", goal="Uncover developments in AI",
                   backstory="You're a seasoned researcher.",
                   llm=LLM(model="demo", provider="openai"))
task = Task(description="Conduct a thorough research about AI agents.",
            expected_output="A list with the most relevant information", agent=researcher)
print(Crew(agents=[researcher], tasks=[task]).kickoff())
