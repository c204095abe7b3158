"""Pydantic models with bounds, so that every answer ends within a few hundred tokens."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Person(BaseModel):
    """A person."""
    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)
    pet: Literal["cat", "dog"]


class Team(BaseModel):
    """Persons with one that leads them."""
    model_config = ConfigDict(extra="forbid")
    leader: Person
    members: list[Person] = Field(min_length=2, max_length=2)
