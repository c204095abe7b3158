"""The first example of the documents of langchain-openai."""

from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="demo", temperature=0)
messages = [
    ("system", "You are a helpful translator. Translate the user sentence to French."),
    ("human", "I love programming."),
]
print(llm.invoke(messages).content)
print("".join(chunk.content for chunk in llm.stream(messages)))
