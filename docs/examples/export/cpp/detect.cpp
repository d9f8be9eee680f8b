// Detect with a file of export.py, .onnx or OpenVINO's .xml. Needs OpenVINO alone.
//
//     detect best.onnx picture.ppm
//
// Prints a line a box, the best first: label score x1 y1 x2 y2, in pixels of the picture.

#include <openvino/runtime/core.hpp>
#include <openvino/runtime/properties.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

const float CONFIDENCE = 0.25f, IOU = 0.45f;  // detect.py's defaults

struct Picture { int height, width; std::vector<unsigned char> pixels; };  // (H, W, 3), RGB
struct Placement { int input_height, input_width, height, width, top, left; };  // of the picture
struct Box { float x1, y1, x2, y2, score; int label; };

// What export.py wrote into the file: each value is JSON.
std::string about(const ov::Model& model, const std::string& name) {
    if (!model.has_rt_info("framework", name)) throw std::runtime_error("no file of export.py");
    return model.get_rt_info<std::string>("framework", name);
}

void add_utf8(std::string& text, unsigned code) {
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // bytes
    text += char(more ? 0xF0 << (3 - more) | code >> 6 * more : code);
    for (int i = more; i-- > 0;) text += char(0x80 | (code >> 6 * i & 0x3F));
}

std::vector<std::string> strings_of_json(const std::string& list) {
    std::vector<std::string> found;
    const auto code = [&](size_t i) { return std::stoul(list.substr(i + 2, 4), nullptr, 16); };
    bool inside = false;
    for (size_t i = 0; i < list.size(); ++i) {
        if (list[i] == '"') {
            if ((inside = !inside)) found.emplace_back();
        } else if (inside && list.compare(i, 2, "\\u") == 0) {
            const unsigned one = code(i);
            const bool pair = one >> 10 == 0x36 && list.compare(i + 6, 2, "\\u") == 0;
            const auto two = pair ? 0x10000 + ((one & 0x3FF) << 10 | (code(i + 6) & 0x3FF)) : 0;
            add_utf8(found.back(), pair ? two : one);
            i += pair ? 11 : 5;
        } else if (inside) {
            if (list[i] == '\\' && i + 1 < list.size()) ++i;  // a quote or a backslash follows
            found.back() += list[i];
        }
    }
    return found;
}

// A binary PPM of 8 bits, as every image tool writes it.
Picture read_ppm(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const auto word = [&file] {
        std::string text;
        while (file >> text && text[0] == '#') std::getline(file, text);
        return text;
    };
    if (word() != "P6") throw std::runtime_error(path + " is no binary PPM file");
    const int width = std::atoi(word().c_str()), height = std::atoi(word().c_str());
    if (word() != "255" || std::min(width, height) < 1 || double(width) * height > 1e8)
        throw std::runtime_error(path + ": 8 bits and at most 100,000,000 pixels are needed");
    file.get();
    Picture picture{height, width, std::vector<unsigned char>(size_t(3) * height * width)};
    if (!file.read(reinterpret_cast<char*>(picture.pixels.data()), picture.pixels.size()))
        throw std::runtime_error(path + " ends too early");
    return picture;
}

// multiple: of the sides, in a file that takes any size; 0 in others.
Placement place(const Picture& picture, int high, int wide, int multiple) {
    const double scale = std::min(double(high) / picture.height, double(wide) / picture.width);
    const int height = std::max(1, int(std::nearbyint(picture.height * scale)));
    const int width = std::max(1, int(std::nearbyint(picture.width * scale)));
    if (multiple) {
        high = (height + multiple - 1) / multiple * multiple;
        wide = (width + multiple - 1) / multiple * multiple;
    }
    return {high, wide, height, width, (high - height) / 2, (wide - width) / 2};
}

// Which pixels of the picture make one of the network, and by how much.
using Taps = std::vector<std::pair<int, double>>;

// Bilinear, as detect.py does.
std::vector<Taps> taps(int before, int after) {
    const double step = double(before) / after;
    std::vector<Taps> result;
    for (int i = 0; i < after; ++i) {
        const double centre = std::clamp((i + 0.5) * step - 0.5, 0.0, before - 1.0);
        Taps one;
        for (int j = int(centre); j < before; ++j) {
            const double weight = 1 - std::abs(j - centre);
            if (weight <= 0) break;
            one.emplace_back(j, weight);
        }
        result.push_back(one);
    }
    return result;
}

ov::Tensor letterbox(const Picture& picture, const Placement& place) {
    const auto rows = taps(picture.height, place.height);
    const auto columns = taps(picture.width, place.width);
    const size_t height = place.input_height, width = place.input_width;
    ov::Tensor input(ov::element::f32, {1, 3, height, width});
    std::fill_n(input.data<float>(), input.get_size(), 114.0f / 255);
    float* values = input.data<float>() + place.top * width + place.left;
    for (int channel = 0; channel < 3; ++channel, values += height * width)
        for (int y = 0; y < place.height; ++y)
            for (int x = 0; x < place.width; ++x) {
                double sum = 0;
                for (const auto& [row, down] : rows[y])
                    for (const auto& [column, across] : columns[x]) {
                        const size_t pixel = size_t(row) * picture.width + column;
                        sum += down * across * picture.pixels[pixel * 3 + channel];
                    }
                values[y * width + x] = float(std::floor(sum + 0.5) / 255);
            }
    return input;
}

float overlap(const Box& a, const Box& b) {
    const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
    const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
    const float common = std::max(0.0f, width) * std::max(0.0f, height);
    const float areas = (a.x2 - a.x1) * (a.y2 - a.y1) + (b.x2 - b.x1) * (b.y2 - b.y1);
    return common / std::max(areas - common, 1e-9f);
}

// rows: cx, cy, w, h in pixels of the input, objectness and a number for each class.
std::vector<Box> best_boxes(const ov::Tensor& rows) {
    std::vector<Box> found, kept;
    const size_t columns = rows.get_shape()[2];
    const float* row = rows.data<const float>();
    for (size_t i = 0; i < rows.get_shape()[1]; ++i, row += columns) {
        const float* best = std::max_element(row + 5, row + columns);
        const float score = row[4] * *best, half_width = row[2] / 2, half_height = row[3] / 2;
        if (row[4] > CONFIDENCE && score > CONFIDENCE)
            found.push_back({row[0] - half_width, row[1] - half_height, row[0] + half_width,
                             row[1] + half_height, score, int(best - row - 5)});
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Box& a, const Box& b) { return a.score > b.score; });
    for (const Box& box : found)
        if (std::none_of(kept.begin(), kept.end(), [&](const Box& better) {
                return better.label == box.label && overlap(better, box) > IOU;
            }))
            kept.push_back(box);
    return kept;
}

// A coordinate of the input, where the picture lies from start on -> of the picture.
float back(float in, int start, int length, int side) {
    return std::clamp((in - start) * side / length, 0.0f, float(side));
}

int main(int count, char** words) try {
    if (count != 3) throw std::runtime_error("usage: detect best.onnx picture.ppm");
    ov::Core core;
    const auto model = core.read_model(words[1]);
    if (about(*model, "image") != "\"floats\"" || about(*model, "output") != "\"rows\"")
        throw std::runtime_error("a file without --nms is needed");
    const auto names = strings_of_json(about(*model, "class_names"));
    const bool any_size = about(*model, "dynamic") == "true";
    int height = 0, width = 0;
    std::sscanf(about(*model, "image_size").c_str(), "[%d, %d]", &height, &width);
    const Picture picture = read_ppm(words[2]);
    const int multiple = any_size ? std::stoi(about(*model, "stride")) : 0;
    const Placement in = place(picture, height, width, multiple);

    // Else a CPU that has bfloat16 computes in it, and scores differ by 0.02.
    const auto exact = ov::hint::inference_precision(ov::element::f32);
    auto request = core.compile_model(model, "CPU", exact).create_infer_request();
    request.set_input_tensor(letterbox(picture, in));
    request.infer();
    for (const Box& box : best_boxes(request.get_output_tensor()))
        std::printf("%s %.4f %.2f %.2f %.2f %.2f\n", names.at(box.label).c_str(), box.score,
                    back(box.x1, in.left, in.width, picture.width),
                    back(box.y1, in.top, in.height, picture.height),
                    back(box.x2, in.left, in.width, picture.width),
                    back(box.y2, in.top, in.height, picture.height));
} catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
}
