"""The frame of every page: one file that fetches nothing, with our style, the button for the theme, and scripts that a
policy names by their digests, so that nothing else is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from onnxrewrite.report.html.markup import Markup, digest, escaped

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src "


@dataclass(frozen=True)
class Frame:
    """A page around what it tells.

    Attributes:
        kicker: The command that made it.
        name: The first heading.
        title: The title of the window.
        subtitle: Below the heading.
        skip: A section's id, and what the link to it says to those who cannot see the page.
        styles: Files beside ``page.css``.
        scripts: Files beside ``theme.js``.
    """

    kicker: str
    name: str
    title: str
    subtitle: str
    skip: tuple[str, str]
    styles: Sequence[str] = ()
    scripts: Sequence[str] = ()

    def around(self, body: Markup, data: str = "") -> str:
        """The whole page; ``data`` is what the scripts read, ``json_script``."""
        scripts = [file(name) for name in ("theme.js", *self.scripts)]
        target, words = self.skip
        parts = {
            "policy": escaped(_POLICY + " ".join(map(digest, scripts))),
            "title": escaped(self.title),
            "style": Markup("\n".join(file(name) for name in ("page.css", *self.styles))),
            "target": escaped(target),
            "skip": escaped(words),
            "kicker": escaped(self.kicker),
            "name": escaped(self.name),
            "subtitle": escaped(self.subtitle),
            "body": body,
            "data": escaped(data),
            "scripts": Markup("\n".join(f"<script>{script}</script>" for script in scripts)),
        }
        return filled(file("frame.html"), parts)


def filled(template: str, parts: Mapping[str, Markup]) -> Markup:
    """The template with its ``{{name}}`` filled in, each once; what is filled in is not looked at again."""
    pieces = template.split("{{")
    found = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        found += [parts[name], rest]
    return Markup("".join(found))


def file(name: str) -> str:
    """A file of this folder."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
