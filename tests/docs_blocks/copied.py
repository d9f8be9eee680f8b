"""Code as a reader takes it from a page of the built site: by the copy button, block by block."""

from dataclasses import dataclass
from html.parser import HTMLParser

LANGUAGE = "language-"
VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


@dataclass
class Copied:
    """A block of code of a page.

    Attributes:
        text: what the copy button takes.
        file: name of the file that the block shows; "" for code to run, or its output.
        tab: label of the tab that it lies in; "" outside of tabs.
    """

    language: str
    text: str = ""
    file: str = ""
    tab: str = ""


def code_blocks(html: str) -> list[Copied]:
    """Return the blocks of code of a built page, in order."""
    reader = _Reader()
    reader.feed(html)
    for block in reader.blocks:
        block.text = block.text.rstrip()
    return reader.blocks


class _Reader(HTMLParser):
    """Collects blocks; `open` holds the classes of the elements around the present place."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Copied] = []
        self.open: list[tuple[str, set[str]]] = []
        self.labels: list[list[str]] = []  # of the tabs around
        self.tabs: list[int] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        classes = set((dict(attributes).get("class") or "").split())
        self.open.append((tag, classes))
        if "tabbed-set" in classes:
            self.labels.append([])
            self.tabs.append(-1)
        elif "tabbed-block" in classes:
            self.tabs[-1] += 1
        elif tag == "label" and self._inside("tabbed-labels"):
            self.labels[-1].append("")
        elif "highlight" in classes:
            language = next((name for name in classes if name.startswith(LANGUAGE)), "")
            tab = self.labels[-1][self.tabs[-1]] if self.labels else ""
            self.blocks.append(Copied(language.removeprefix(LANGUAGE), tab=tab))

    def handle_endtag(self, tag: str) -> None:
        while any(name == tag for name, _ in self.open):
            name, classes = self.open.pop()
            if "tabbed-set" in classes:
                self.labels.pop()
                self.tabs.pop()
            if name == tag:
                break

    def handle_data(self, data: str) -> None:
        if self._inside("highlight"):
            if self._inside("filename"):
                self.blocks[-1].file += data
            elif any(tag == "code" for tag, _ in self.open):
                self.blocks[-1].text += data
        elif self._inside("tabbed-labels") and self.labels[-1]:
            self.labels[-1][-1] += data.strip()

    def _inside(self, name: str) -> bool:
        return any(name in classes for _, classes in self.open)
