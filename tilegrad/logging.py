"""`tg.logging`: levels by module, verbose logs, checks (see `profile/logs.py`)."""

from .profile.logs import (
    CHECKS,
    CheckError,
    check,
    configure,
    debug,
    error,
    fatal,
    flags,
    info,
    logger,
    set_level,
    v,
    warning,
)

CHECK, CHECK_EQ, CHECK_NE = CHECKS["CHECK"], CHECKS["CHECK_EQ"], CHECKS["CHECK_NE"]
CHECK_LT, CHECK_LE, CHECK_GT, CHECK_GE = (CHECKS[f"CHECK_{word}"] for word in ("LT", "LE", "GT", "GE"))

__all__ = [
    "CHECK", "CHECK_EQ", "CHECK_GE", "CHECK_GT", "CHECK_LE", "CHECK_LT", "CHECK_NE", "CheckError", "check", "configure",
    "debug", "error", "fatal", "flags", "info", "logger", "set_level", "v", "warning",
]  # fmt: skip
