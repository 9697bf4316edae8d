/**
 * What a file gives before it is prepared, as `data/raw_image.py` has it, and the error that names what would do.
 *
 * @typedef {object} RawImage
 * @property {Uint8Array | Uint16Array} pixels (height * width * channels), row by row
 * @property {number} height
 * @property {number} width
 * @property {1 | 3} channels
 * @property {[number, number]} range black and white
 */

export const MAX_PIXELS = 120_000_000;

/** What is wrong with a file, in a sentence without its name. */
export class DefectError extends Error {}

/** Refuse an image without pixels, or with more than fit into memory. @param {number} height @param {number} width */
export function checkSize(height, width) {
  const large = `is ${width} x ${height} pixels large`;
  if (height < 1 || width < 1) throw new DefectError(`${large}; give an image with at least one pixel`);
  if (height * width > MAX_PIXELS) throw new DefectError(`${large}, above the limit of ${MAX_PIXELS / 1e6} million; scale it down`);
}

/**
 * Colour times opacity, rounded: the picture laid over black. (n * (channels + 1)) to (n * channels).
 * @param {Uint8Array} pixels
 * @param {number} channels
 */
export function overBlack(pixels, channels) {
  const count = pixels.length / (channels + 1);
  const laid = new Uint8Array(count * channels);
  for (let i = 0; i < count; i++) {
    const from = i * (channels + 1);
    const opacity = pixels[from + channels];
    for (let c = 0; c < channels; c++) laid[i * channels + c] = Math.floor((pixels[from + c] * opacity + 127) / 255);
  }
  return laid;
}

/** Turn an image by an EXIF orientation from 1 to 8, so that it is upright. @param {RawImage} raw @param {number} orientation @returns {RawImage} */
export function upright(raw, orientation) {
  if (!(orientation >= 2 && orientation <= 8)) return raw;
  const { pixels, height, width, channels } = raw;
  const lying = orientation >= 5;
  const rows = lying ? width : height;
  const columns = lying ? height : width;
  const fromRight = [2, 3, 7, 8].includes(orientation); // along the columns of the file
  const fromBottom = [3, 4, 6, 7].includes(orientation); // along its rows
  const turned = pixels.slice();
  for (let y = 0, to = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      const [along, down] = lying ? [y, x] : [x, y];
      const from = ((fromBottom ? height - 1 - down : down) * width + (fromRight ? width - 1 - along : along)) * channels;
      for (let c = 0; c < channels; c++) turned[to++] = pixels[from + c];
    }
  }
  return { ...raw, pixels: turned, height: rows, width: columns };
}
