"""Tokenizers with one token for each character or byte; any object with `encode` and `decode` can replace them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import ArgumentError


class CharacterTokenizer:
    """Number the characters of an alphabet.

    >>> tokenizer = CharacterTokenizer("abc")
    >>> tokenizer.encode("cab"), tokenizer.decode([0, 1])
    ([2, 0, 1], 'ab')
    """

    def __init__(self, characters: Iterable[str]) -> None:
        self.characters: Sequence[str] = list(characters)
        self.numbers = {character: n for n, character in enumerate(self.characters)}

    def encode(self, text: str) -> list[int]:
        """Return the number of each character."""
        unknown = sorted({c for c in text if c not in self.numbers})
        if unknown:
            raise ArgumentError(f"the alphabet lacks {', '.join(map(repr, unknown[:8]))}")
        return [self.numbers[c] for c in text]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of numbers."""
        return "".join(self.characters[n] for n in tokens)


class ByteTokenizer:
    """Take the bytes of UTF-8 as tokens.

    >>> ByteTokenizer().encode("né"), ByteTokenizer().decode([110, 195, 169])
    ([110, 195, 169], 'né')
    """

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text."""
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of bytes; others than UTF-8 become replacement characters."""
        return bytes(n for n in tokens if n < 256).decode(errors="replace")
