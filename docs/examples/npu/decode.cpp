// Decode the raw maps of a file of `export.py --raw` (or --raw sigmoid) with anchors. C++17 alone.
//
//     c++ -O2 -std=c++17 decode.cpp -o decode
//     decode FOLDER
//
// FOLDER has what decode.py wrote: maps.bin, the maps in their order as float32, and about.txt, a
// line `classes height width sigmoid` and a line `stride w h w h ...` per level, in pixels. On a
// board, call add_boxes() with the outputs of the converted file.
// Prints a line a box, the best first: class score x1 y1 x2 y2, in pixels of the network's input.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

const float CONFIDENCE = 0.25f, IOU = 0.45f;  // detect.py's defaults

struct Level { int stride; std::vector<float> anchors; };  // w, h, w, h, ... in pixels
struct Box { float x1, y1, x2, y2, score; int label; };

float activated(float x, bool has_sigmoid) { return has_sigmoid ? x : 1 / (1 + std::exp(-x)); }

// map: (A * (5 + classes), height, width) of one level.
void add_boxes(std::vector<Box>& found, const float* map, int classes, int height, int width,
               const Level& level, bool has_sigmoid) {
    const int plane = height * width;
    for (size_t anchor = 0; anchor < level.anchors.size() / 2; ++anchor)
        for (int cell = 0; cell < plane; ++cell) {
            const float* at = map + anchor * (5 + classes) * plane + cell;
            const auto value = [&](int row) { return activated(at[row * plane], has_sigmoid); };
            int best = 0;
            for (int one = 1; one < classes; ++one)
                if (at[(5 + one) * plane] > at[(5 + best) * plane]) best = one;
            const float score = value(4) * value(5 + best);
            if (!(score > CONFIDENCE)) continue;
            const float x = (value(0) * 2 - 0.5f + cell % width) * level.stride;
            const float y = (value(1) * 2 - 0.5f + cell / width) * level.stride;
            const float w = value(2) * 2, h = value(3) * 2;
            const float half_width = w * w * level.anchors[2 * anchor] / 2;
            const float half_height = h * h * level.anchors[2 * anchor + 1] / 2;
            found.push_back({x - half_width, y - half_height, x + half_width, y + half_height,
                             score, best});
        }
}

float overlap(const Box& a, const Box& b) {
    const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
    const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
    const float common = std::max(0.0f, width) * std::max(0.0f, height);
    const float areas = (a.x2 - a.x1) * (a.y2 - a.y1) + (b.x2 - b.x1) * (b.y2 - b.y1);
    return common / std::max(areas - common, 1e-9f);
}

std::vector<Box> suppressed(std::vector<Box> found) {
    std::vector<Box> kept;
    std::stable_sort(found.begin(), found.end(),
                     [](const Box& a, const Box& b) { return a.score > b.score; });
    for (const Box& box : found)
        if (std::none_of(kept.begin(), kept.end(), [&](const Box& better) {
                return better.label == box.label && overlap(better, box) > IOU;
            }))
            kept.push_back(box);
    return kept;
}

int main(int count, char** words) try {
    if (count != 2) throw std::runtime_error("usage: decode FOLDER");
    const std::string folder = words[1];
    std::ifstream about(folder + "/about.txt"), maps(folder + "/maps.bin", std::ios::binary);
    int classes = 0, height = 0, width = 0, has_sigmoid = 0;
    if (!(about >> classes >> height >> width >> has_sigmoid) || classes < 1)
        throw std::runtime_error(folder + "/about.txt is missing or no file of decode.py");
    std::string line;
    std::getline(about, line);
    std::vector<Box> found;
    while (std::getline(about, line)) {
        std::istringstream numbers(line);
        Level level;
        if (!(numbers >> level.stride) || level.stride < 1) break;
        for (float side; numbers >> side;) level.anchors.push_back(side);
        const int rows = height / level.stride, columns = width / level.stride;
        std::vector<float> map(level.anchors.size() / 2 * (5 + classes) * rows * columns);
        const auto bytes = std::streamsize(map.size() * sizeof(float));
        if (!maps.read(reinterpret_cast<char*>(map.data()), bytes))
            throw std::runtime_error(folder + "/maps.bin ends too early");
        add_boxes(found, map.data(), classes, rows, columns, level, has_sigmoid);
    }
    for (const Box& box : suppressed(found))
        std::printf("%d %.4f %.3f %.3f %.3f %.3f\n", box.label, box.score, box.x1, box.y1, box.x2,
                    box.y2);
} catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
}
