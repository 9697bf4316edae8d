/** A number from 0 to 1 as a bar. */
import { element } from "./elements.js";

/** @param {number} value */
export function bar(value) {
  const fill = element("span", { class: "fill" });
  fill.style.width = `${(100 * value).toFixed(1)}%`;
  return element("span", { class: "track" }, fill);
}
