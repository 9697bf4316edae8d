/**
 * From a file to pixels: PNG by our own reader, JPEG and BMP by the browser's. What a file is, its first bytes say.
 */
import { isPng, readPng } from "./png.js";
import { checkSize, DefectError } from "./raw.js";

/** Formats that Python reads and a browser does not, by how their files begin. */
/** @type {[string, number[]][]} */
const ELSEWHERE = [
  ["TIFF", [0x49, 0x49, 0x2a, 0]],
  ["TIFF", [0x4d, 0x4d, 0, 0x2a]],
  ["TIFF", [0x49, 0x49, 0x2b, 0]],
  ["TIFF", [0x4d, 0x4d, 0, 0x2b]],
  ["GIF", [0x47, 0x49, 0x46]],
  ["WebP", [0x52, 0x49, 0x46, 0x46]],
  ["gzip file", [0x1f, 0x8b]],
];
const CONVERT = "this page reads PNG, JPEG and BMP; convert it, or use `parsecaps explain`";

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */
/** @typedef {import("./raw.js").RawImage} RawImage */

const begins = (/** @type {Bytes} */ bytes, /** @type {number[]} */ start, at = 0) => start.every((each, i) => bytes[at + i] === each);

/**
 * The pixels of an image file, upright.
 * @param {Bytes} bytes
 * @returns {Promise<RawImage>}
 */
export async function decode(bytes) {
  if (!bytes.length) throw new DefectError("is empty; replace the file");
  if (begins(bytes, [0x44, 0x49, 0x43, 0x4d], 128)) throw new DefectError(`is a DICOM; ${CONVERT}`);
  if (isPng(bytes)) return readPng(bytes);
  if (begins(bytes, [0xff, 0xd8, 0xff])) return readJpeg(bytes);
  if (begins(bytes, [0x42, 0x4d])) return readBmp(bytes);
  const known = ELSEWHERE.find(([, start]) => begins(bytes, start));
  throw new DefectError(known ? `is a ${known[0]}; ${CONVERT}` : `is not an image of a known format; ${CONVERT}`);
}

/** @param {Bytes} bytes */
async function readJpeg(bytes) {
  const { height, width, components } = jpegHeader(bytes);
  checkSize(height, width);
  if (components === 4) {
    throw new DefectError("is a JPEG with four colours (CMYK), which browsers mix in their own ways; convert it to RGB");
  }
  const pixels = await byBrowser(bytes, "image/jpeg");
  return components === 1 ? firstChannel(pixels) : pixels;
}

/** @param {Bytes} bytes */
async function readBmp(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 54) throw new DefectError("is a damaged BMP; replace the file");
  checkSize(Math.abs(view.getInt32(22, true)), view.getInt32(18, true));
  const bits = view.getUint16(28, true);
  if (bits === 16 || bits === 32) throw new DefectError(`is a BMP with ${bits} bits for each pixel; save it as PNG`);
  const pixels = await byBrowser(bytes, "image/bmp");
  return bits <= 8 && isGrey(pixels.pixels) ? firstChannel(pixels) : pixels;
}

/** Height, width and number of colours of a JPEG, from the marker that starts its frame. @param {Bytes} bytes */
function jpegHeader(bytes) {
  const number = (/** @type {number} */ at) => (bytes[at] << 8) | bytes[at + 1];
  for (let at = 2; at + 9 < bytes.length && bytes[at] === 0xff; ) {
    const kind = bytes[at + 1];
    if (kind === 0xff) at += 1;
    else if (kind === 0x01 || (kind >= 0xd0 && kind <= 0xd8)) at += 2;
    else if (kind >= 0xc0 && kind <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(kind)) {
      return { height: number(at + 5), width: number(at + 7), components: bytes[at + 9] };
    } else at += 2 + Math.max(2, number(at + 2));
  }
  throw new DefectError("is a damaged JPEG; replace the file");
}

/**
 * The pixels as the file has them: turned as the camera noted, and no colour profile applied.
 * @param {Bytes} bytes
 * @param {"image/jpeg" | "image/bmp"} type
 * @returns {Promise<RawImage & {pixels: Uint8Array}>}
 */
async function byBrowser(bytes, type) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(new Blob([bytes], { type }), {
      imageOrientation: "from-image",
      colorSpaceConversion: "none",
      premultiplyAlpha: "none",
    });
  } catch {
    const kind = type === "image/jpeg" ? "JPEG" : "BMP";
    throw new DefectError(`is a damaged ${kind}, or one that this browser cannot read; replace the file`);
  }
  const { height, width } = bitmap;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", { willReadFrequently: true, alpha: false });
  if (!context) throw new DefectError(`is ${width} x ${height} pixels large, too much for this browser; scale it down`);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const drawn = context.getImageData(0, 0, width, height).data;
  const pixels = new Uint8Array(height * width * 3);
  for (let i = 0, to = 0; i < drawn.length; i += 4) {
    pixels[to++] = drawn[i];
    pixels[to++] = drawn[i + 1];
    pixels[to++] = drawn[i + 2];
  }
  return { pixels, height, width, channels: 3, range: [0, 255] };
}

/** @param {RawImage} raw @returns {RawImage} */
function firstChannel(raw) {
  const pixels = Uint8Array.from({ length: raw.height * raw.width }, (_, i) => raw.pixels[3 * i]);
  return { ...raw, pixels, channels: 1 };
}

/** @param {Uint8Array} pixels */
function isGrey(pixels) {
  for (let i = 0; i < pixels.length; i += 3) if (pixels[i] !== pixels[i + 1] || pixels[i] !== pixels[i + 2]) return false;
  return true;
}
