/**
 * PNG files, read as Pillow reads them.
 *
 * A canvas multiplies colours by their opacity and has eight bits, so a browser's own decoder would not give the pixels
 * of a transparent picture, or of one with 16 bits. Packed bytes are unpacked by the browser.
 */
import { checkSize, DefectError, overBlack, upright } from "./raw.js";

/**
 * @typedef {object} Header
 * @property {number} width
 * @property {number} height
 * @property {number} depth bits of a sample
 * @property {number} colour its type: 0 grey, 2 colour, 3 palette, 4 grey and 6 colour with opacity
 * @property {number} interlaced
 *
 * @typedef {object} Parts
 * @property {Uint8Array<ArrayBuffer>[]} packed
 * @property {number} orientation
 * @property {Uint8Array | null} palette
 * @property {Uint8Array | null} transparent
 *
 * @typedef {Uint8Array | Uint16Array} Samples
 */

/** @type {Record<number, number>} */
const CHANNELS = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 }; // by the colour type
/** @type {Record<number, number[]>} */
const DEPTHS = { 0: [1, 2, 4, 8, 16], 2: [8, 16], 3: [1, 2, 4, 8], 4: [8, 16], 6: [8, 16] };
const ADAM7 = [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [0, 1, 1, 2]]; // x, y, steps
const DAMAGED = "is a damaged PNG; replace the file";

export const isPng = (/** @type {Uint8Array} */ bytes) => [137, 80, 78, 71, 13, 10, 26, 10].every((each, i) => bytes[i] === each);

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<import("./raw.js").RawImage>}
 */
export async function readPng(bytes) {
  const file = parts(bytes);
  const { width, height, depth, colour } = file;
  if (!DEPTHS[colour]?.includes(depth)) throw new DefectError(DAMAGED);
  checkSize(height, width);
  const samples = unfiltered(await inflate(file.packed), file);
  return upright({ ...asPixels(samples, file), height, width }, file.orientation);
}

/** The header, palette, transparency, orientation and packed pixels of a file. @param {Uint8Array<ArrayBuffer>} bytes @returns {Header & Parts} */
function parts(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  /** @type {Parts} */
  const file = { packed: [], orientation: 1, palette: null, transparent: null };
  /** @type {Header | null} */
  let header = null;
  for (let at = 8; at + 12 <= bytes.length; ) {
    const length = view.getUint32(at);
    const kind = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    const end = at + 8 + length;
    if (end + 4 > bytes.length) throw new DefectError(DAMAGED);
    const data = bytes.subarray(at + 8, end);
    if (kind[0] < "a" && crc(bytes, at + 4, end) !== view.getUint32(end)) throw new DefectError(DAMAGED);
    if (kind === "IHDR") {
      if (length < 13) throw new DefectError(DAMAGED);
      const [depth, colour, , , interlaced] = data.subarray(8);
      header = { width: view.getUint32(at + 8), height: view.getUint32(at + 12), depth, colour, interlaced };
    }
    if (kind === "PLTE") file.palette = data;
    if (kind === "tRNS") file.transparent = data;
    if (kind === "IDAT") file.packed.push(data);
    if (kind === "eXIf" && !file.packed.length) file.orientation = orientationOf(data);
    if (kind === "IEND") break;
    at = end + 4;
  }
  if (!header || !file.packed.length) throw new DefectError(DAMAGED);
  return { ...header, ...file };
}

/** @param {Uint8Array<ArrayBuffer>[]} packed */
async function inflate(packed) {
  const stream = new Blob(packed).stream().pipeThrough(new DecompressionStream("deflate"));
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new DefectError(DAMAGED);
  }
}

/**
 * The samples (height * width * channels) as the file has them, not scaled, without filters and interlacing.
 * @param {Uint8Array} lines
 * @param {Header} header
 * @returns {Samples}
 */
function unfiltered(lines, { width, height, depth, colour, interlaced }) {
  const channels = CHANNELS[colour];
  const samples = new (depth === 16 ? Uint16Array : Uint8Array)(height * width * channels);
  let at = 0;
  for (const [x0, y0, dx, dy] of interlaced ? ADAM7 : [[0, 0, 1, 1]]) {
    const columns = Math.ceil((width - x0) / dx);
    const rows = Math.ceil((height - y0) / dy);
    if (columns <= 0 || rows <= 0) continue;
    const length = Math.ceil((columns * channels * depth) / 8);
    if (at + rows * (length + 1) > lines.length) throw new DefectError(DAMAGED);
    /** @type {Uint8Array} */
    let above = new Uint8Array(length);
    for (let row = 0; row < rows; row++, at += length + 1) {
      const line = lines.subarray(at + 1, at + 1 + length);
      unfilter(lines[at], line, above, Math.max(1, (channels * depth) >> 3));
      above = line;
      if (depth === 8 && !interlaced) samples.set(line, row * length);
      else for (let i = 0; i < columns * channels; i++) {
        const pixel = Math.floor(i / channels);
        samples[((y0 + row * dy) * width + x0 + pixel * dx) * channels + (i % channels)] = sample(line, i, depth);
      }
    }
  }
  return samples;
}

/** @param {Uint8Array} line @param {number} i @param {number} depth */
function sample(line, i, depth) {
  if (depth === 8) return line[i];
  if (depth === 16) return (line[2 * i] << 8) | line[2 * i + 1];
  const bit = i * depth;
  return (line[bit >> 3] >> (8 - depth - (bit & 7))) & ((1 << depth) - 1);
}

/**
 * Undo the filter of one line, in place.
 * @param {number} kind
 * @param {Uint8Array} line
 * @param {Uint8Array} above
 * @param {number} step how many bytes lie between a pixel and the one to its left
 */
function unfilter(kind, line, above, step) {
  if (kind > 4) throw new DefectError(DAMAGED);
  for (let i = 0; i < line.length; i++) {
    const a = i >= step ? line[i - step] : 0;
    const b = above[i];
    if (kind === 1) line[i] += a;
    else if (kind === 2) line[i] += b;
    else if (kind === 3) line[i] += (a + b) >> 1;
    else if (kind === 4) {
      const c = i >= step ? above[i - step] : 0;
      const pa = Math.abs(b - c), pb = Math.abs(a - c), pc = Math.abs(a + b - 2 * c);
      line[i] += pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
    }
  }
}

/**
 * Pixels as Pillow gives them: 16 bits of grey stay, 16 bits of colour become their high byte.
 * @param {Samples} samples
 * @param {Header & Parts} file
 * @returns {Pick<import("./raw.js").RawImage, "pixels" | "channels" | "range">}
 */
function asPixels(samples, { depth, colour, palette, transparent }) {
  const range = /** @type {[number, number]} */ ([0, 255]);
  if (colour === 0 && depth === 16) return { pixels: samples, channels: 1, range: [0, 65535] };
  if (colour === 3) return { ...coloured(samples, palette, transparent), range };
  const bytes = toBytes(samples, depth);
  if (colour === 6) return { pixels: overBlack(bytes, 3), channels: 3, range };
  if (colour === 4) {
    const grey = overBlack(bytes, 1);
    return depth === 16 ? { pixels: repeated(grey), channels: 3, range } : { pixels: grey, channels: 1, range };
  }
  const channels = colour === 2 ? 3 : 1;
  if (transparent) {
    if (transparent.length < 2 * channels) throw new DefectError(DAMAGED);
    clear(bytes, channels, keyColour(transparent, channels, depth));
  }
  return { pixels: bytes, channels, range };
}

/** @param {Samples} samples @param {number} depth @returns {Uint8Array} */
function toBytes(samples, depth) {
  if (depth === 8) return /** @type {Uint8Array} */ (samples);
  const scale = 255 / ((1 << depth) - 1); // 255, 85 or 17
  return Uint8Array.from(samples, depth === 16 ? (each) => each >> 8 : (each) => each * scale);
}

/** Grey as colour. @param {Uint8Array} grey */
function repeated(grey) {
  const colour = new Uint8Array(grey.length * 3);
  for (let i = 0; i < colour.length; i++) colour[i] = grey[Math.floor(i / 3)];
  return colour;
}

/**
 * The one colour that is transparent; Pillow compares its low byte with pixels of eight bits, whatever the depth.
 * @param {Uint8Array} transparent
 * @param {number} channels
 * @param {number} depth
 */
function keyColour(transparent, channels, depth) {
  if (depth === 1) return [transparent[0] || transparent[1] ? 255 : 0];
  return Array.from({ length: channels }, (_, c) => transparent[2 * c + 1]);
}

/** @param {Uint8Array} bytes @param {number} channels @param {number[]} key */
function clear(bytes, channels, key) {
  for (let i = 0; i < bytes.length; i += channels) {
    if (key.every((each, c) => bytes[i + c] === each)) bytes.fill(0, i, i + channels);
  }
}

/**
 * @param {Samples} indices
 * @param {Uint8Array | null} palette
 * @param {Uint8Array | null} transparent
 * @returns {{pixels: Uint8Array, channels: 3}}
 */
function coloured(indices, palette, transparent) {
  if (!palette) throw new DefectError(DAMAGED);
  const colours = new Uint8Array(256 * 4); // an index beyond the palette is black
  for (let i = 0; i < 256; i++) {
    for (let c = 0; c < 3; c++) colours[4 * i + c] = palette[3 * i + c] ?? 0;
    colours[4 * i + 3] = transparent?.[i] ?? 255;
  }
  const laid = overBlack(colours, 3);
  const pixels = new Uint8Array(indices.length * 3);
  for (let i = 0; i < indices.length; i++) {
    for (let c = 0; c < 3; c++) pixels[3 * i + c] = laid[3 * indices[i] + c];
  }
  return { pixels, channels: 3 };
}

/** The orientation in an EXIF block that begins with its byte order; 1 where it cannot be read. @param {Uint8Array} exif */
function orientationOf(exif) {
  const view = new DataView(exif.buffer, exif.byteOffset, exif.byteLength);
  try {
    const little = view.getUint16(0) === 0x4949;
    const first = view.getUint32(4, little);
    for (let i = 0; i < view.getUint16(first, little); i++) {
      const entry = first + 2 + 12 * i;
      if (view.getUint16(entry, little) === 0x0112) return view.getUint16(entry + 8, little);
    }
  } catch {
    // what cannot be read turns nothing
  }
  return 1;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

/** @param {Uint8Array} bytes @param {number} from @param {number} to */
function crc(bytes, from, to) {
  let value = 0xffffffff;
  for (let i = from; i < to; i++) value = CRC_TABLE[(value ^ bytes[i]) & 255] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}
