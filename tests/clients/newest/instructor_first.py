"""The first example of the documents of instructor."""

import instructor
from openai import OpenAI
from pydantic import BaseModel


class User(BaseModel):
    name: str
    age: int


client = instructor.from_openai(OpenAI())
user = client.chat.completions.create(
    model="demo",
    response_model=User,
    messages=[{"role": "user", "content": "John is 25 years old"}],
)
print(user)
