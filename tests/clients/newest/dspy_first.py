"""The first example of the documents of DSPy."""

import dspy

dspy.configure(lm=dspy.LM("openai/demo"))
math = dspy.ChainOfThought("question -> answer: float")
print(math(question="Two dice are tossed. What is the probability that the sum equals two?").answer)
