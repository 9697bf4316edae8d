/**
 * The one preparation between a file's pixels and a model, by the rules and the rounding of `data/preparation.py`.
 *
 * @typedef {{size: number, channels: 1 | 3, square: "pad" | "crop" | "stretch", scaling: "range" | "percentile", centre: number}} Preparation
 */
import { resizedBytes, resizedFloats } from "./resize.js";

/** @typedef {import("./raw.js").RawImage} RawImage */
/** @typedef {{top: number, left: number, rows: number, columns: number}} Part of a picture */

const BRIGHTEST = 0.995;
const LUMA = [0.299, 0.587, 0.114].map(Math.fround); // ITU-R BT.601

/** Half to even, as Python and PyTorch round. @param {number} x */
export function roundHalfEven(x) {
  const below = Math.floor(x);
  if (x - below !== 0.5) return Math.round(x);
  return below % 2 === 0 ? below : below + 1;
}

/**
 * So many rows and columns in the middle of a picture of this height and width.
 * @param {number} height
 * @param {number} width
 * @param {number} rows
 * @param {number} columns
 * @returns {Part}
 */
const middle = (height, width, rows, columns) => ({
  top: Math.floor((height - rows) / 2),
  left: Math.floor((width - columns) / 2),
  rows,
  columns,
});

/**
 * The part of the image that is used, and where it lies in the square.
 * @param {Preparation} preparation
 * @param {number} height
 * @param {number} width
 */
export function boxes({ size, square, centre }, height, width) {
  let [rows, columns] = [height, width].map((side) => Math.max(1, roundHalfEven(side * centre)));
  if (square === "crop") rows = columns = Math.min(rows, columns);
  const used = middle(height, width, rows, columns);
  if (square !== "pad") return { used, target: middle(size, size, size, size) };
  const scale = size / Math.max(rows, columns);
  const [down, across] = [rows, columns].map((side) => Math.max(1, roundHalfEven(side * scale)));
  return { used, target: middle(size, size, down, across) };
}

/**
 * The prepared image as bytes (channels * size * size), one channel after the other.
 * @param {Preparation} preparation
 * @param {RawImage} raw
 */
export function levels(preparation, raw) {
  const { size, channels } = preparation;
  const { used, target } = boxes(preparation, raw.height, raw.width);
  const values = cut(raw, used), shape = { height: used.rows, width: used.columns, channels: raw.channels };
  const bytes =
    values instanceof Uint8Array && preparation.scaling === "range"
      ? resizedBytes(values, shape, target)
      : Uint8Array.from(resizedFloats(scaled(values, lowAndSpan(preparation, raw)), shape, target), quantise);
  const image = new Uint8Array(channels * size * size);
  for (let y = 0; y < target.rows; y++) {
    for (let x = 0; x < target.columns; x++) {
      const from = (y * target.columns + x) * raw.channels;
      const to = (target.top + y) * size + target.left + x;
      for (let c = 0; c < channels; c++) {
        const same = raw.channels === 1 ? from : from + c;
        image[c * size * size + to] = raw.channels > channels ? luma(bytes, from) : bytes[same];
      }
    }
  }
  return image;
}

/** What the model gets: (channels * size * size) in [0, 1]. @param {Uint8Array} bytes */
export const dequantise = (bytes) => Float32Array.from(bytes, (each) => each / 255);

const quantise = (/** @type {number} */ x) => roundHalfEven(Math.fround(Math.min(Math.max(x, 0), 1) * 255));

/** @param {ArrayLike<number>} bytes @param {number} at */
function luma(bytes, at) {
  let sum = 0;
  for (let c = 0; c < 3; c++) sum = Math.fround(sum + Math.fround(Math.fround(bytes[at + c] / 255) * LUMA[c]));
  return quantise(sum);
}

/** @param {RawImage} raw @param {Part} part @returns {Uint8Array | Uint16Array} */
function cut({ pixels, width, channels }, { top, left, rows, columns }) {
  const part = pixels.slice(0, rows * columns * channels);
  for (let y = 0; y < rows; y++) {
    const from = ((top + y) * width + left) * channels;
    part.set(pixels.subarray(from, from + columns * channels), y * columns * channels);
  }
  return part;
}

/** @param {ArrayLike<number>} values @param {{low: number, span: number}} range */
function scaled(values, { low, span }) {
  const start = Math.fround(low), width = Math.fround(span);
  return Float32Array.from(values, (each) => Math.min(Math.max(Math.fround(Math.fround(each - start) / width), 0), 1));
}

/** What becomes black, and how far above it white is; at least one grey level. @param {Preparation} preparation @param {RawImage} raw */
function lowAndSpan({ scaling }, raw) {
  if (scaling === "range") return { low: raw.range[0], span: raw.range[1] - raw.range[0] };
  const counts = new Uint32Array(65536);
  for (const each of raw.pixels) counts[each]++;
  const low = counts.findIndex((count) => count > 0);
  return { low, span: Math.max(percentile(counts, raw.pixels.length), low + 1) - low };
}

/** As NumPy interpolates between the two nearest values. @param {Uint32Array} counts @param {number} total */
function percentile(counts, total) {
  const place = BRIGHTEST * (total - 1);
  const below = Math.floor(place);
  const part = place - below;
  const at = (/** @type {number} */ rank) => {
    let value = 0;
    for (let seen = counts[0]; seen <= rank; seen += counts[value]) value++;
    return value;
  };
  const [a, b] = [at(below), at(Math.min(below + 1, total - 1))];
  return part >= 0.5 ? b - (b - a) * (1 - part) : a + (b - a) * part;
}
