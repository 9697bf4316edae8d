/** Numbers as a reader sees them. */

/** @param {number} value @param {number} digits */
export const percent = (value, digits = 1) => `${(100 * value).toFixed(digits)} %`;

/** @param {number} value @param {number} digits */
export const share = (value, digits) => `${(100 * value).toFixed(digits)}%`;

/** @param {number} value */
export const signed = (value) => (value < 0 ? "\u2212" : "+") + Math.abs(value).toFixed(2);
