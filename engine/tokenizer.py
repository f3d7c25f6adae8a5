"""Text to token numbers and back: what serving needs of a vocabulary, and vocabularies for models that have no text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

Message = Mapping[str, str]
"""One turn of a conversation: `role` and `content`."""


class Conversation(NamedTuple):
    """Tokens up to where the answer starts, and where each turn begins in them (empty where that is not known)."""

    tokens: list[int]
    turns: tuple[int, ...] = ()


class TextError(ValueError):
    """A text or conversation that this vocabulary cannot express; the message is for the one who sent it."""


class Tokenizer(Protocol):
    """`stop_ids` end an answer."""

    stop_ids: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt, with whatever the model wants at its start. Raises TextError."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, control tokens left out; an unfinished character at the end becomes U+FFFD."""
        ...

    def chat(self, messages: Sequence[Message]) -> Conversation:
        """Lay a conversation out as the model expects it. Raises TextError."""
        ...


class NumberTokenizer:
    """For a model whose tokens stand for no text: prompts and answers are token numbers with blanks between."""

    stop_ids: frozenset[int] = frozenset()

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        words = text.split()
        if not all(word.isascii() and word.isdigit() and int(word) < self.vocab_size for word in words):
            raise TextError(
                f"this model has no text vocabulary: a prompt is token numbers from 0 to {self.vocab_size - 1}, "
                "as a list or with blanks between them"
            )
        return [int(word) for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f"{token} " for token in ids)

    def chat(self, messages: Sequence[Message]) -> Conversation:
        return Conversation(self.encode(" ".join(message["content"] for message in messages)))


class ByteTokenizer:
    """For random weights: every UTF-8 byte of a prompt is a token, so that any load client can send its text."""

    stop_ids: frozenset[int] = frozenset()

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        return [byte % self.vocab_size for byte in text.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        """One printable ASCII character a token: random weights say nothing that a text could be made of."""
        return "".join(chr(33 + token % 94) for token in ids)

    def chat(self, messages: Sequence[Message]) -> Conversation:
        return Conversation(self.encode("\n".join(f"{message['role']}: {message['content']}" for message in messages)))
