"""The first example of the documents of haystack."""

from haystack import Document, Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore

store = InMemoryDocumentStore()
store.write_documents([
    Document(content="My name is Jean and I live in Paris."),
    Document(content="My name is Mark and I live in Berlin."),
    Document(content="My name is Giorgio and I live in Rome."),
])
template = [ChatMessage.from_user(
    "Given these documents, answer the question.\nDocuments:\n"
    "{% for doc in documents %}{{ doc.content }}{% endfor %}\nQuestion: {{question}}\nAnswer:")]
pipeline = Pipeline()
pipeline.add_component("retriever", InMemoryBM25Retriever(document_store=store))
pipeline.add_component("prompt_builder", ChatPromptBuilder(template=template,
                                                           required_variables="*"))
pipeline.add_component("llm", OpenAIChatGenerator(model="demo"))
pipeline.connect("retriever", "prompt_builder.documents")
pipeline.connect("prompt_builder.prompt", "llm.messages")
question = "Who lives in Paris?"
results = pipeline.run({"retriever": {"query": question}, "prompt_builder": {"question": question}})
print(results["llm"]["replies"][0].text)
