"""The first example of the documents of anthropic."""

from anthropic import Anthropic

client = Anthropic()
message = client.messages.create(
    max_tokens=1024,
    messages=[{"role": "user", "content": "Hello, Claude"}],
    model="demo",
)
print(message.content[0].text)
with client.messages.stream(
    max_tokens=1024,
    messages=[{"role": "user", "content": "Say hello there!"}],
    model="demo",
) as stream:
    print("".join(stream.text_stream))
