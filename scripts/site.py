"""Hooks of mkdocs: pages from outside docs/, links to them, and a check that pages load nothing from outside.

mkdocs reads one folder. These texts stay where readers of the repository look for them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
#: Texts outside docs/, and their pages.
TEXTS = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "profiles/README.md": "profiles.md",
}
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")
#: What a browser loads by itself: scripts, images, and links of these kinds.
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\ssrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect|dns-prefetch))"
    r"[^>]*\shref=[\"']?((?:https?:)?//[^\"'\s>]+)"
)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the texts outside docs/."""
    for source, page in TEXTS.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Point the links of a page at pages of the site; links to other files of the repository become text."""
    home = {name: source for source, name in TEXTS.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def point(match: re.Match[str]) -> str:
        text, path, anchor = match.groups(default="")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(home), path))
        if target in TEXTS or target.startswith("docs/"):
            name = TEXTS.get(target, target.removeprefix("docs/"))
            return f"[{text}]({posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"
        if not (ROOT / target).exists():
            raise PluginError(f"{home} links to {path}, which does not exist")
        return text

    return LINK.sub(point, markdown)


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Refuse a page that loads something from another machine."""
    if found := [script or link for script, link in LOADED.findall(output)]:
        raise PluginError(f"{page.file.src_uri} loads from outside: {', '.join(found)}")
    return output
