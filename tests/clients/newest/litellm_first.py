"""The first example of the documents of litellm."""

from litellm import completion

messages = [{"content": "Hello, how are you?", "role": "user"}]
response = completion(model="openai/demo", messages=messages)
print(response.choices[0].message.content)
text = ""
for part in completion(model="openai/demo", messages=messages, stream=True):
    text += part.choices[0].delta.content or ""
print(text)
