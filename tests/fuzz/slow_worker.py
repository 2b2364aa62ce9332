"""Answers after a while: for the test of how long `tests.fuzz.child` waits."""

from __future__ import annotations

import time

from tests.fuzz.child import serve


def answer(question: dict[str, float]) -> str:
    """Sleep, or keep the processor busy, for some seconds."""
    time.sleep(question.get("sleep", 0))
    end = time.process_time() + question.get("work", 0)
    while time.process_time() < end:
        pass
    return "done"


if __name__ == "__main__":
    serve(answer)
