"""What all figures share: an SVG that is read in light and dark, and on a phone.

One file serves both schemes. A page includes it twice, as Material for MkDocs has it:
`![...](../figures/NAME.en.svg#only-light)![...](../figures/NAME.en.svg#only-dark)`. The generator
shows one of the two. The name after # is that of the SVG's root too, so that `:target` gives the
second its dark colours. On its own the file is light, with white paper.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape

import cv2
import numpy as np

WIDTH = 480  # units; as many pixels on a page, fewer on a phone
LETTERS = 15  # units: 11 px on a phone, whose column is 358 px wide
LETTER_WIDTH = 0.55  # of the letters' height, the mean of Latin letters
PLATE = 20  # units high: the plate of a text on a picture
WEBP_QUALITY = 42

# Text has a contrast of 4.5 or more to the paper, lines of 3 (tests/unit/docs/test_figures.py).
LIGHT = {
    "ink": "#1c2333", "soft": "#586072", "line": "#8a93a6", "faint": "#d9dde5", "paper": "#ffffff",
    "blue": "#1f63c4", "orange": "#b04e00", "green": "#1a7a3c", "red": "#c4232f",
    "purple": "#7a3fb8",
}  # fmt: skip
DARK = {
    "ink": "#e8eaf0", "soft": "#aeb5c4", "line": "#7f889c", "faint": "#3a4052", "paper": "#1e2129",
    "blue": "#79b0ff", "orange": "#ffab61", "green": "#6fd391", "red": "#ff8a8f",
    "purple": "#cba2ff",
}  # fmt: skip
BLACK = "#14181f"  # on pictures
HUES = ("blue", "orange", "green", "red", "purple")
FONTS = (
    "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','PingFang SC','Microsoft YaHei',"
    "'Noto Sans CJK SC','Source Han Sans SC',sans-serif"
)
MONOSPACE = "ui-monospace,'SF Mono',Consolas,'DejaVu Sans Mono','Noto Sans Mono CJK SC',monospace"

Point = tuple[float, float]


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


def _style() -> str:
    rules = [
        f".figure{{{_variables(LIGHT)};font:{LETTERS}px {FONTS}}}",
        f".figure:target,[data-md-color-scheme=slate] .figure{{{_variables(DARK)}}}",
        ".figure text{fill:var(--ink)}",
        # A dark page is seen through: its background has another shade in each theme.
        ".figure .paper,.figure .sheet{fill:var(--paper)}",
        ".figure:target .sheet,[data-md-color-scheme=slate] .figure .sheet{fill:none}",
        ".figure .middle{text-anchor:middle}.figure .end{text-anchor:end}",
        ".figure .bold{font-weight:600}",
        f".figure .code{{font-family:{MONOSPACE}}}",
        ".figure .stroke{fill:none;stroke-width:2;stroke:var(--ink);stroke-linejoin:round}",
        ".figure .thin{stroke-width:1}.figure .two{stroke-width:2}.figure .wide{stroke-width:3}",
        ".figure .dashed{stroke-dasharray:6 4}",
        ".figure a:focus-visible rect,.figure a:hover rect{stroke:var(--ink);stroke-width:4}",
    ]
    for name in (*HUES, "soft", "line", "faint", "ink"):
        rules.append(
            f".figure .s-{name}{{stroke:var(--{name})}}.figure .f-{name}{{fill:var(--{name})}}"
            f".figure .t-{name}{{fill:var(--{name});fill-opacity:.15}}"
        )
    # Over a picture, which looks the same in both schemes.
    rules += [f".figure .p-{name}{{stroke:{DARK[name]}}}" for name in HUES]
    rules += [
        ".figure .strong{fill-opacity:.45}",
        f".figure .halo{{stroke:{BLACK};stroke-width:4}}.figure .dark{{fill:{BLACK}}}",
        ".figure .light,.figure .light-text{fill:#fff}.figure .light-line{stroke:#fff}",
        f".figure .on-picture{{fill:#fff;paint-order:stroke;stroke:{BLACK};stroke-width:4}}",
    ]
    return "".join(rules)


def text_width(text: str, size: float = LETTERS) -> float:
    """Return about how many units wide a text is; Chinese signs are as wide as high."""
    return sum(size if ord(sign) > 0x2E7F else size * LETTER_WIDTH for sign in text)


def plate_width(text: str) -> float:
    """Return how wide the plate of a text is."""
    return text_width(text) + 6


class Figure:
    """An SVG, of which the parts are added from the back to the front.

    title: of a figure that is a part of its page. One in a file is named by the page that shows it.
    """

    def __init__(self, height: float, language: str, title: str = "") -> None:
        self.width, self.height, self.language, self.title = WIDTH, height, language, title
        self._parts: list[str] = []
        self._pictures: dict[tuple[str, float, float], tuple[int, Point]] = {}

    def add(self, tag: str, inside: str | None = None, **attributes: object) -> None:
        """Add an element; `_` in a name of an attribute means `-`, `class_` is `class`."""
        self._parts.append(element(tag, inside, **attributes))

    def raw(self, part: str) -> None:
        """Add what is SVG already: the begin or end of a group or link."""
        self._parts.append(part)

    def text(
        self, x: float, y: float, text: str, style: str = "", size: float = LETTERS, **more: object
    ) -> None:
        """Write a line, its baseline at y; styles: middle, end, bold, code, f-HUE."""
        if size != LETTERS:
            more["font_size"] = size
        self.add("text", escape(text), x=x, y=y, class_=style, **more)

    def rectangle(
        self, x: float, y: float, width: float, height: float, style: str, radius: float = 0
    ) -> None:
        """Draw a rectangle; styles: stroke, s-HUE, f-HUE, t-HUE (a tint), dashed, thin, wide."""
        self.add("rect", x=x, y=y, width=width, height=height, rx=radius or None, class_=style)

    def box(
        self, box_xyxy: Sequence[float], style: str, scale: float = 1, at: Point = (0, 0)
    ) -> None:
        """Draw a box of pixels, scaled, from the point where pixel (0, 0) lies."""
        left, top, right, bottom = (float(value) * scale for value in box_xyxy)
        self.rectangle(at[0] + left, at[1] + top, right - left, bottom - top, style)

    def plate(self, x: float, y: float, text: str) -> None:
        """Write a line on a dark plate, for pictures; its upper left corner is (x, y)."""
        self.rectangle(x, y, plate_width(text), PLATE, "dark", 3)
        self.text(x + 3, y + LETTERS, text, "light-text bold")

    def line(self, points: Iterable[Point], style: str = "stroke") -> None:
        """Draw a line through points."""
        path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.add("path", d=f"M{path}", class_=style)

    def arrow(self, points: Sequence[Point], style: str = "stroke", hue: str = "ink") -> None:
        """Draw a line with a head at its last point."""
        (x, y), (to_x, to_y) = points[-2:]
        length = max(np.hypot(to_x - x, to_y - y), 1e-9)
        along = np.array([to_x - x, to_y - y]) / length
        across = np.array([-along[1], along[0]])
        end = np.array([to_x, to_y])
        base = end - 8 * along
        self.line([*points[:-1], (base[0], base[1])], f"{style} s-{hue}")
        corners = (end, base + 4.5 * across, base - 4.5 * across)
        outline = "L".join(f"{number(x)} {number(y)}" for x, y in corners)
        self.add("path", d=f"M{outline}Z", class_=f"f-{hue}")

    def dot(self, x: float, y: float, radius: float, style: str) -> None:
        """Draw a disc or a circle."""
        self.add("circle", cx=x, cy=y, r=radius, class_=style)

    def image(self, pixels: np.ndarray, x: float, y: float, width: float, height: float) -> None:
        """Put in an image (H, W, 3) uint8 BGR, with as many pixels as a dense screen shows.

        One that is there already, of the same size, is stored once.
        """
        size_wh = round(2 * width), round(2 * height)
        if size_wh[0] < pixels.shape[1]:
            pixels = cv2.resize(pixels, size_wh, interpolation=cv2.INTER_AREA)
        _, content = cv2.imencode(".webp", pixels, [cv2.IMWRITE_WEBP_QUALITY, WEBP_QUALITY])
        data = base64.b64encode(content.tobytes()).decode()
        if (data, width, height) in self._pictures:
            first, (first_x, first_y) = self._pictures[data, width, height]
            named = f'<image id="picture{first}"'
            self._parts[first] = self._parts[first].replace("<image x", f"{named} x", 1)
            self.add("use", href=f"#picture{first}", x=x - first_x, y=y - first_y)
            return
        self._pictures[data, width, height] = len(self._parts), (x, y)
        self.add(
            "image", x=x, y=y, width=width, height=height, preserveAspectRatio="none",
            href=f"data:image/webp;base64,{data}",
        )  # fmt: skip

    def svg(self, title: str) -> str:
        """Return the file; a part of a page follows the colours of that page."""
        size = f"{number(self.width)} {number(self.height)}"
        names = "" if self.title else ' id="only-dark"'
        title = escape(self.title or title)
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg"{names} class="figure" lang="{self.language}" '
            f'width="{number(self.width)}" viewBox="0 0 {size}" '
            f'role="{"group" if self.title else "img"}" aria-label="{title}">',
            f"<title>{title}</title>",
            f"<style>{_style()}</style>",
            element("rect", class_="sheet", width=self.width, height=self.height),
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


class Axes:
    """A panel with axes: values to units of a figure."""

    def __init__(
        self,
        figure: Figure,
        area: tuple[float, float, float, float],
        x_range: tuple[float, float],
        y_range: tuple[float, float],
    ) -> None:
        """area: left, top, width, height of the panel."""
        self.figure, self.area = figure, area
        self.x_range, self.y_range = x_range, y_range

    def at(self, x: float, y: float) -> Point:
        """Return where a value lies."""
        left, top, width, height = self.area
        (x_low, x_high), (y_low, y_high) = self.x_range, self.y_range
        return (
            left + (x - x_low) / (x_high - x_low) * width,
            top + height - (y - y_low) / (y_high - y_low) * height,
        )

    def frame(self, x_ticks: Iterable[float] = (), y_ticks: Iterable[float] = ()) -> None:
        """Draw grid lines with their values, and the two axes."""
        left, top, width, height = self.area
        for value in x_ticks:
            x, _ = self.at(value, self.y_range[0])
            self.figure.line([(x, top), (x, top + height)], "stroke thin s-faint")
            self.figure.text(x, top + height + 18, _tick(value), "middle f-soft")
        for value in y_ticks:
            _, y = self.at(self.x_range[0], value)
            self.figure.line([(left, y), (left + width, y)], "stroke thin s-faint")
            self.figure.text(left - 6, y + 5, _tick(value), "end f-soft")
        corner = [(left, top), (left, top + height), (left + width, top + height)]
        self.figure.line(corner, "stroke thin s-line")

    def curve(self, xs: Iterable[float], ys: Iterable[float], style: str) -> None:
        """Draw a line through values."""
        points = [self.at(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
        self.figure.line(points, f"stroke {style}")


def _tick(value: float) -> str:
    return f"{value:,g}"


def element(tag: str, inside: str | None = None, **attributes: object) -> str:
    """Return an SVG element; numbers are written to a tenth of a unit."""
    written = [
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value not in (None, "")
    ]
    end = "/>" if inside is None else f">{inside}</{tag}>"
    return f"<{tag}{''.join(written)}{end}"


def _value(value: object) -> str:
    return escape(value) if isinstance(value, str) else number(float(value))  # type: ignore[arg-type]


def number(value: float) -> str:
    """Return a number of units, to a tenth, as short as it can be written."""
    rounded = round(float(value), 1)
    return str(int(rounded)) if rounded == int(rounded) else str(rounded)
