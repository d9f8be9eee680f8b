"""Launches of a plain and of a fused function: host above, device below, over time."""

from docs.figures.drawing import Figure

WORDS = {
    "en": ("eight operations", "fused", "host", "device", "time", "saved"),
    "zh": ("八个算子", "融合", "主机", "设备", "时间", "省下"),
}
LEFT, LAUNCH, RUN, HIGH = 76, 46, 14, 30
NUMBER, FUSED = 8, 26  # operations; units that the fused one runs for


def draw_launches(language: str) -> Figure:
    plain, fused, host, device, time, saved = WORDS[language]
    figure = Figure(266, language)
    end = LEFT + LAUNCH * NUMBER + RUN
    fused_end = LEFT + LAUNCH + FUSED
    for top, name, number, run in ((30, plain, NUMBER, RUN), (146, fused, 1, FUSED)):
        figure.text(LEFT, top - 10, name, "bold")
        for row, label in enumerate((host, device)):
            figure.text(LEFT - 10, top + row * (HIGH + 6) + 20, label, "end f-soft")
        for place in range(number):
            x = LEFT + place * LAUNCH
            figure.rectangle(x, top, LAUNCH - 2, HIGH, "t-orange s-orange", 3)
            figure.rectangle(x + LAUNCH, top + HIGH + 6, run - 1, HIGH, "f-blue", 2)
    y = 146 + HIGH / 2
    figure.line([(fused_end, 100), (fused_end, 220)], "stroke thin dashed s-green")
    figure.line([(end, 30), (end, 220)], "stroke thin dashed s-green")
    figure.arrow([(fused_end + 4, y), (end - 4, y)], "stroke", "green")
    figure.text((fused_end + end) / 2, y - 8, saved, "middle bold f-green")
    figure.arrow([(LEFT, 236), (472, 236)], "stroke", "line")
    figure.text(472, 258, time, "end f-soft")
    return figure
