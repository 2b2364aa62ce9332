"""Generate text with causal language models: caches of keys and values, sampling, continuous batching, streaming."""

from .cache import CacheView, KeyValueCache
from .completion import Completion, OverloadedError
from .generator import TextGenerator
from .token_sampling import Sampling
from .tokenizers import ByteTokenizer, CharacterTokenizer

__all__ = [
    "ByteTokenizer",
    "CacheView",
    "CharacterTokenizer",
    "Completion",
    "TextGenerator",
    "KeyValueCache",
    "OverloadedError",
    "Sampling",
]
