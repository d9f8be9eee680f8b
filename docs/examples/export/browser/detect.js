// Detect with an ONNX file of export.py in a browser. Needs onnxruntime-web alone.

import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";

const CONFIDENCE = 0.25, IOU = 0.45; // detect.py's defaults

/** Load an ONNX file, an ArrayBuffer: { session, about }. */
export async function loadModel(buffer) {
  const about = aboutModel(new Uint8Array(buffer));
  if (about.image !== "floats" || about.output !== "rows")
    throw new Error("a file of export.py is needed, without --nms");
  return { session: await ort.InferenceSession.create(buffer), about };
}

/** Detect in a picture, an ImageData: the boxes, the best first, in its pixels. */
export async function detect({ session, about }, picture) {
  const [height, width] = about.image_size;
  const place = placeOf(picture, height, width, about.dynamic ? about.stride : 0);
  const shape = [1, 3, place.inputHeight, place.inputWidth];
  const input = new ort.Tensor("float32", letterbox(picture, place), shape);
  const results = await session.run({ [session.inputNames[0]]: input });
  const rows = results[session.outputNames[0]];
  const x = (inside) => clamp((inside - place.left) * picture.width / place.width, picture.width);
  const y = (inside) => clamp((inside - place.top) * picture.height / place.height, picture.height);
  return bestBoxes(rows.data, rows.dims[2]).map((box) => ({
    label: about.class_names[box.number], number: box.number, score: box.score,
    x1: x(box.x1), y1: y(box.y1), x2: x(box.x2), y2: y(box.y2),
  }));
}

const clamp = (value, highest) => Math.min(Math.max(value, 0), highest);

// What export.py wrote into the file: metadata_props, field 14 of ONNX's ModelProto, each of them a
// key (1) and a value (2), which is JSON. onnxruntime-web does not show them.
function aboutModel(bytes) {
  const about = {}, text = new TextDecoder();
  for (const [number, entry] of fieldsOf(bytes)) {
    if (number !== 14) continue;
    const { 1: key, 2: value } = Object.fromEntries(fieldsOf(entry));
    try {
      about[text.decode(key)] = JSON.parse(text.decode(value));
    } catch { /* of another program */ }
  }
  return about;
}

// The fields of a message of Protocol Buffers that have a length: [number, bytes].
function* fieldsOf(bytes) {
  let at = 0;
  const varint = () => {
    let value = 0, scale = 1, byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  while (at < bytes.length) {
    const key = varint(), kind = key % 8;
    if (kind === 0) varint();
    else if (kind === 1) at += 8;
    else if (kind === 5) at += 4;
    else if (kind === 2) {
      const start = at, length = varint();
      yield [(key - kind) / 8, bytes.subarray(at, at += length)];
      if (at <= start) return;
    } else throw new Error("no ONNX file");
  }
}

// Where the picture lies in the input. multiple: of its sides, in a file that takes any size.
function placeOf(picture, inputHeight, inputWidth, multiple) {
  const scale = Math.min(inputHeight / picture.height, inputWidth / picture.width);
  const height = Math.max(1, roundToEven(picture.height * scale));
  const width = Math.max(1, roundToEven(picture.width * scale));
  if (multiple) {
    inputHeight = Math.ceil(height / multiple) * multiple;
    inputWidth = Math.ceil(width / multiple) * multiple;
  }
  const top = Math.floor((inputHeight - height) / 2), left = Math.floor((inputWidth - width) / 2);
  return { inputHeight, inputWidth, height, width, top, left };
}

// A half goes to the even number, as in Python: else half the pictures of an odd side, made half as
// large, would differ by a row.
function roundToEven(value) {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + low % 2 : Math.round(value);
}

// (3, H, W) in [0, 1]. A canvas resizes in another way in each browser; this is as the model's
// pictures were.
function letterbox(picture, place) {
  const { inputHeight, inputWidth, height, width, top, left } = place;
  const rows = taps(picture.height, height), columns = taps(picture.width, width);
  const values = new Float32Array(3 * inputHeight * inputWidth).fill(114 / 255);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      for (let channel = 0; channel < 3; channel++) {
        let sum = 0;
        for (const [row, down] of rows[y])
          for (const [column, across] of columns[x])
            sum += down * across * picture.data[(row * picture.width + column) * 4 + channel];
        values[(channel * inputHeight + y + top) * inputWidth + x + left] = Math.round(sum) / 255;
      }
  return values;
}

// Which pixels make one of the input: [index, weight], ... Bilinear.
function taps(before, after) {
  const step = before / after;
  return Array.from({ length: after }, (_, i) => {
    const centre = clamp((i + 0.5) * step - 0.5, before - 1);
    const found = [];
    for (let j = Math.floor(centre); j < before; j++) {
      const weight = 1 - Math.abs(j - centre);
      if (weight <= 0) break;
      found.push([j, weight]);
    }
    return found;
  });
}

// data: rows of cx, cy, w, h in pixels of the input, objectness and a number for each class.
function bestBoxes(data, columns) {
  const found = [], kept = [];
  for (let at = 0; at < data.length; at += columns) {
    if (data[at + 4] <= CONFIDENCE) continue;
    const [x, y, width, height, objectness, ...classes] = data.subarray(at, at + columns);
    const best = Math.max(...classes), score = objectness * best;
    if (score > CONFIDENCE)
      found.push({ score, number: classes.indexOf(best), x1: x - width / 2, y1: y - height / 2,
                   x2: x + width / 2, y2: y + height / 2 });
  }
  found.sort((a, b) => b.score - a.score);
  for (const box of found)
    if (!kept.some((better) => better.number === box.number && overlap(better, box) > IOU))
      kept.push(box);
  return kept;
}

function overlap(a, b) {
  const width = Math.min(a.x2, b.x2) - Math.max(a.x1, b.x1);
  const height = Math.min(a.y2, b.y2) - Math.max(a.y1, b.y1);
  const common = Math.max(0, width) * Math.max(0, height);
  const areas = (a.x2 - a.x1) * (a.y2 - a.y1) + (b.x2 - b.x1) * (b.y2 - b.y1);
  return common / Math.max(areas - common, 1e-9);
}
