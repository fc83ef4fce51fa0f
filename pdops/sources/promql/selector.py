"""Write PromQL selectors: parse the user's, add matchers, quote what is foreign."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pdops.errors import UsageError

_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*(?:,|$)"""
)
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")


@dataclass(frozen=True, slots=True)
class Selector:
    """Label matchers as (label, operator, quoted value)."""

    matchers: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Read `{label="value",…}`; the braces may be left out.

        Raises:
            UsageError: the text is not such a selector, or names a metric.
        """
        inner = text.strip()
        if inner.startswith("{") and inner.endswith("}"):
            inner = inner[1:-1].strip()
        matchers: list[tuple[str, str, str]] = []
        position = 0
        while position < len(inner):
            found = _MATCHER.match(inner, position)
            if found is None or found[1] == "__name__":
                raise UsageError(
                    "not a selector of labels",
                    where=text[:200],
                    why=f"cannot use it from {inner[position : position + 40]!r} on",
                    hint="""write it as '{cluster="prod-eu"}'""",
                )
            matchers.append((found[1], found[2], found[3]))
            position = found.end()
        return cls(tuple(matchers))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that are matched, each once."""
        return tuple(dict.fromkeys(label for label, _, _ in self.matchers))

    def plus(self, label: str, operator: str, value: str) -> Selector:
        """Return the selector with one more matcher; `value` is not quoted yet."""
        return Selector((*self.matchers, (label, operator, quoted(value))))

    def of(self, name: str = "", window_s: int | None = None) -> str:
        """Return `name{…}`, or `name{…}[Ns]`."""
        inner = ",".join(f"{label}{operator}{value}" for label, operator, value in self.matchers)
        return f"{name}{{{inner}}}" + (f"[{window_s}s]" if window_s is not None else "")

    def __str__(self) -> str:
        return self.of()


def quoted(text: str) -> str:
    """Return a PromQL string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def any_of(texts: Iterable[str]) -> str:
    """Return a regular expression that matches exactly these texts."""
    return "|".join(_SPECIAL.sub(r"\\\1", text) for text in texts)
