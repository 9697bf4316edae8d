/** Maps: where the evidence was, from blue to yellow as it grows, and clear where there was none. */
import { element } from "./elements.js";

/** @typedef {import("./types.js").PlaceMap} PlaceMap */

const LOW = [0, 210, 255];
const HIGH = [255, 240, 40];

/** The colours (red, green, blue, opacity) of all 256 levels; weak evidence shows more than its share. */
const COLOURS = Array.from({ length: 256 }, (_, level) => {
  const value = level / 255;
  return [...LOW.map((low, i) => low + (HIGH[i] - low) * value), 255 * Math.sqrt(value)].map(Math.round);
});

/**
 * Draw a map on a canvas, one pixel for each of its places; the style of the page enlarges it over the image.
 * @param {HTMLCanvasElement} canvas
 * @param {PlaceMap} map
 */
export function paint(canvas, map) {
  canvas.width = canvas.height = map.side;
  const context = canvas.getContext("2d");
  if (context === null) return;
  const levels = atob(map.levels);
  const pixels = context.createImageData(map.side, map.side);
  for (let i = 0; i < map.side * map.side; i++) pixels.data.set(COLOURS[levels.charCodeAt(i)], 4 * i);
  context.putImageData(pixels, 0, 0);
}

/**
 * A canvas with a map; without words it is hidden from those who hear the page.
 * @param {PlaceMap} map
 * @param {string} words
 */
export function mapCanvas(map, words = "") {
  const spoken = words ? { role: "img", "aria-label": words } : { "aria-hidden": "true" };
  const canvas = element("canvas", { class: "map", ...spoken });
  paint(canvas, map);
  return canvas;
}

/** Whether nothing speaks for it. @param {PlaceMap} map */
export const isEmpty = (map) => !(map.max > 0);
