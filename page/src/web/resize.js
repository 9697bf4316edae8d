/**
 * Bilinear resampling with antialiasing, by the arithmetic of PyTorch's `interpolate` on a CPU.
 *
 * First along the rows, then along the columns. Bytes: weights are whole numbers of 16 bits, and each pass is rounded
 * to bytes. Other values: weights and sums have single precision, and which products are rounded before they are added
 * is as in PyTorch's builds for x86: those that are made four at a time are, the rest is fused.
 */

/** @typedef {{start: number, weights: number[]}} Window */

/**
 * For each of `to` pixels where its window begins, and its weights, which sum to 1.
 * @param {number} from
 * @param {number} to
 * @param {(x: number) => number} round
 * @returns {Window[]}
 */
function windows(from, to, round) {
  const scale = round(from / to);
  const support = scale >= 1 ? scale : 1;
  const inverse = scale >= 1 ? round(1 / scale) : 1;
  const longest = Math.ceil(support) * 2 + 1;
  return Array.from({ length: to }, (_, i) => {
    const centre = round(scale * (i + 0.5));
    const start = Math.max(Math.trunc(round(centre - support) + 0.5), 0);
    const length = Math.min(Math.min(Math.trunc(round(centre + support) + 0.5), from) - start, longest);
    /** @type {number[]} */
    const weights = [];
    let total = 0;
    for (let j = 0; j < length; j++) {
      const distance = Math.abs(round((round(j + start - centre) + 0.5) * inverse));
      weights.push(distance < 1 ? round(1 - distance) : 0);
      total = round(total + weights[j]);
    }
    return { start, weights: weights.map((each) => (total ? round(each / total) : each)) };
  });
}

/** Weights as whole numbers, and by how many bits they are too large. @param {number} from @param {number} to */
function wholeWindows(from, to) {
  const found = windows(from, to, (x) => x);
  const largest = Math.max(...found.map((each) => Math.max(...each.weights)));
  let bits = 0;
  while (bits < 22 && Math.trunc(0.5 + largest * 2 ** (bits + 1)) < 2 ** 15) bits++;
  const whole = found.map(({ start, weights }) => ({ start, weights: weights.map((w) => Math.trunc(0.5 + w * 2 ** bits)) }));
  return { whole, bits };
}

/**
 * Resample along one axis: `outer` blocks of `from` places of `inner` values each.
 * @param {Bytes} values
 * @param {number} outer
 * @param {number} from
 * @param {number} to
 * @param {number} inner
 * @returns {Bytes}
 */
function alongBytes(values, outer, from, to, inner) {
  if (from === to) return values;
  const { whole, bits } = wholeWindows(from, to);
  const half = 2 ** (bits - 1);
  const result = new Uint8ClampedArray(outer * to * inner);
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < to; i++) {
      const { start, weights } = whole[i];
      for (let k = 0; k < inner; k++) {
        let sum = half;
        let place = (o * from + start) * inner + k;
        for (let j = 0; j < weights.length; j++, place += inner) sum += weights[j] * values[place];
        result[(o * to + i) * inner + k] = sum >> bits;
      }
    }
  }
  return result;
}

/**
 * @param {Float32Array} values
 * @param {number} outer
 * @param {number} from
 * @param {number} to
 * @param {number} inner
 */
function alongFloats(values, outer, from, to, inner) {
  const found = windows(from, to, Math.fround);
  const result = new Float32Array(outer * to * inner);
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < to; i++) {
      const { start, weights } = found[i];
      for (let k = 0; k < inner; k++) {
        let place = (o * from + start) * inner + k;
        let sum = Math.fround(weights[0] * values[place]);
        const fused = weights.length - ((weights.length - 1) % 4);
        for (let j = 1; j < weights.length; j++) {
          const product = weights[j] * values[(place += inner)];
          sum = Math.fround(sum + (j < fused ? Math.fround(product) : product));
        }
        result[(o * to + i) * inner + k] = sum;
      }
    }
  }
  return result;
}

/** @typedef {Uint8Array | Uint8ClampedArray} Bytes */
/** @typedef {{height: number, width: number, channels: number}} Shape */
/** @typedef {{rows: number, columns: number}} Size */

/** An image (height * width * channels) of bytes at another size. @param {Bytes} values @param {Shape} shape @param {Size} size */
export function resizedBytes(values, { height, width, channels }, { rows, columns }) {
  return alongBytes(alongBytes(values, height, width, columns, channels), 1, height, rows, columns * channels);
}

/** The same in single precision. @param {Float32Array} values @param {Shape} shape @param {Size} size */
export function resizedFloats(values, { height, width, channels }, { rows, columns }) {
  return alongFloats(alongFloats(values, height, width, columns, channels), 1, height, rows, columns * channels);
}
