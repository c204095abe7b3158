"""The first example of the documents of openai."""

from openai import OpenAI

client = OpenAI()
response = client.responses.create(
    model="demo",
    instructions="You are a coding assistant that talks like a pirate.",
    input="How do I check if a Python object is an instance of a class?",
)
print(response.output_text)
completion = client.chat.completions.create(
    model="demo",
    messages=[
        {"role": "developer", "content": "Talk like a pirate."},
        {"role": "user", "content": "How do I check if an object is an instance of a class?"},
    ],
)
print(completion.choices[0].message.content)
stream = client.responses.create(
    model="demo",
    input="Write a one-sentence bedtime story about a unicorn.",
    stream=True,
)
print("".join(event.delta for event in stream if event.type == "response.output_text.delta"))
