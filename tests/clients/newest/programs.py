"""The programs of others that run their own documented first example against inferd, each at the
version that was its newest when the row was last changed. test_newest.py installs and runs them,
scripts/client_table prints docs/clients.md from this table and from what they did.

The model is scripted (../scripted.py): `answers` are pairs of a condition over the conversation and
a text. `prints` are texts that the example must print, in this order. A program whose `where` is ""
has an environment of its own, since few of them agree on the versions of what they need."""

from dataclasses import dataclass

ALWAYS = "true"


@dataclass(frozen=True)
class Program:
    title: str
    packages: tuple     # with versions; the first is the program
    answers: tuple
    prints: tuple
    does: str
    routes: tuple       # that the example must have asked
    where: str = ""     # the environment that has it: venv or venv-clients


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


PIRATE = "Arr, ask isinstance, matey!"
HELLO = "Hello there, how may I help?"
PROGRAMS = {
    "openai": Program(
        "openai (Python)", ("openai==3.57.0",), ((ALWAYS, PIRATE),), (PIRATE,) * 3,
        "responses, chat, a stream", (RESPONSES, CHAT)),
    "anthropic": Program(
        "anthropic (Python)", ("anthropic==2.14.0",), ((ALWAYS, HELLO),), (HELLO,) * 2,
        "a message, a stream", (MESSAGES,)),
    "litellm": Program(
        "litellm", ("litellm==1.110.2",), ((ALWAYS, HELLO),), (HELLO,) * 2, "chat, a stream",
        (CHAT,)),
    "langchain_openai": Program(
        "langchain-openai", ("langchain-openai==1.7.4",), ((ALWAYS, "J'adore la programmation."),),
        ("J'adore la programmation.",) * 2, "chat, a stream", (CHAT,)),
    "llama_index": Program(
        "llama-index", ("llama-index-core==0.14.25", "llama-index-llms-openai-like==0.8.1"),
        (("messages[-1]['role'] == 'tool'", "1234 times 4567 is 5635678."),
         (ALWAYS, call("multiply", '{"a": 1234, "b": 4567}'))),
        ("5635678",), "an agent with a tool, streamed", (CHAT,), "venv-clients"),
    "pydantic_ai": Program(
        "pydantic-ai", ("pydantic-ai-slim[openai]==2.68.0",),
        ((ALWAYS, "From a C tutorial of 1974."),), ("From a C tutorial of 1974.",), "chat",
        (CHAT,)),
    "instructor": Program(
        "instructor", ("instructor==1.17.0",),
        ((ALWAYS, call("User", '{"name": "John", "age": 25}')),), ("name='John' age=25",),
        "a Pydantic model by a forced call", (CHAT,), "venv-clients"),
    "openai_agents": Program(
        "openai-agents", ("openai-agents==0.24.0",),
        ((ALWAYS, "Calls within calls, a mirror."),), ("Calls within calls, a mirror.",),
        "an agent over responses", (RESPONSES,), "venv"),
    "smolagents": Program(
        "smolagents", ("smolagents[openai]==1.26.0",),
        ((ALWAYS, "Thought: I sum.\n<code>\nfinal_answer(sum(range(1, 11)))\n</code>"),), ("55",),
        "an agent that writes code", (CHAT,)),
    "haystack": Program(
        "haystack", ("haystack-ai==3.4.1",), ((ALWAYS, "Jean lives in Paris."),),
        ("Jean lives in Paris.",), "a pipeline with a retriever", (CHAT,)),
    "dspy": Program(
        "dspy", ("dspy==3.4.1",),
        ((ALWAYS, "[[ ## reasoning ## ]]\nOne pair of 36.\n\n[[ ## answer ## ]]\n0.0277\n\n"
                  "[[ ## completed ## ]]"),),
        ("0.0277",), "a chain of thought", (CHAT,)),
    "crewai": Program(
        "crewai", ("crewai==1.15.30",),
        ((ALWAYS, "Thought: I now can give a great answer\nFinal Answer: Agents call tools."),),
        ("Agents call tools.",), "an agent with a task", (CHAT,)),
    "aider": Program(
        "aider", ("aider-chat==0.86.2",), ((ALWAYS, "hello.py\n```\nprint('hello')\n```\n"),),
        ("print('hello')",), "an edit of a file, streamed", (CHAT,)),
}

# What cannot be had where these were run, and why.
ABSENT = {
    "openai (Node), Vercel's AI SDK, opencode, the command line programs of Continue and Cline":
        "they are packages of npm, whose registry was not reachable",
}
