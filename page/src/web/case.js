/**
 * The case of one image, as `explain/explainer.py` makes it: what the network gives, in the form that a page shows.
 *
 * @typedef {object} About the model of the page, written by `export/web`
 * @property {string} title
 * @property {import("../types.js").Model} model
 * @property {import("./prepare.js").Preparation} preparation
 * @property {number} temperature
 * @property {number[]} thresholds above which a concept counts as seen
 * @property {import("./tree.js").Grid | null} grid
 * @property {import("../types.js").Reasoning | null} reasoning_by_image without weights, which the network gives
 * @property {string | null} method of the maps; null without
 * @property {string[]} notes what cannot be given, and why
 */
import { softmax } from "../reasoning.js";
import { reasonsOf } from "./counterfactual.js";
import { base64 } from "./packed.js";
import { resizedFloats } from "./resize.js";
import { roundHalfEven } from "./prepare.js";
import { treeNodes } from "./tree.js";

/** @typedef {import("../types.js").Case} Case */
/** @typedef {import("./network.js").Outputs} Outputs */

const NUM_TREES = 3;
const MAP_SIDE = 32;

/**
 * @param {About} about
 * @param {string} name
 * @param {Uint8Array} levels the prepared image (channels * size * size)
 * @param {import("./tree.js").Shape} shape of the image before its preparation
 * @param {Outputs} outputs
 * @returns {Case}
 */
export function caseOf(about, name, levels, shape, outputs) {
  const { model, preparation, temperature } = about, { size } = preparation;
  const logits = Array.from(outputs.logits.data), presence = Array.from(outputs.presence?.data ?? [], (each) => Math.min(each, 1));
  if (![...logits, ...presence].every(Number.isFinite)) throw new Error("the network gives numbers that are not finite for it");
  const chances = softmax(logits.map((each) => each / temperature)), best = chances.indexOf(Math.max(...chances));
  const map = (/** @type {number} */ target) =>
    outputs.maps ? placeMap(outputs.maps.data.subarray(target * size * size, (target + 1) * size * size), size) : null;
  const own = reasoningOf(about, logits, presence, outputs), reasoning = own ?? model.reasoning;
  return {
    name,
    picture: pictureOf(levels, size),
    size,
    diagnosis: model.classes[best],
    probabilities: Object.fromEntries(model.classes.map((each, k) => [each, chances[k]])),
    possible: null,
    abstain: null,
    truth: null,
    method: about.method,
    class_map: map(presence.length),
    concepts: presence.map((value, j) => ({
      name: model.concepts[j], presence: value, seen: value > about.thresholds[j], truth: null, map: map(j),
    })),
    trees: treesOf(about, best, presence, shape, outputs),
    similar: [],
    residual: outputs.residual ? outputs.residual.data[0] : null,
    choice: null,
    reasons: reasoning && reasonsOf(reasoning, presence),
    reasoning: own,
    strict: null,
    traversals: [],
    notes: about.notes,
  };
}

/** How concepts add up in this image, where each has its own weights. @param {About} about @param {number[]} logits @param {number[]} presence @param {Outputs} outputs */
function reasoningOf({ reasoning_by_image: shared }, logits, presence, outputs) {
  if (!shared || !outputs.concept_weights) return null;
  const all = Array.from(outputs.concept_weights.data), m = presence.length;
  const weight = logits.map((_, k) => all.slice(k * m, (k + 1) * m));
  const bias = logits.map((sum, k) => presence.reduce((left, value, j) => left - value * weight[k][j], sum));
  return { ...shared, weight, bias };
}

/** The trees of the diagnosis and of the most present concepts. @param {About} about @param {number} best @param {number[]} presence @param {import("./tree.js").Shape} shape @param {Outputs} outputs */
function treesOf({ model, preparation, grid }, best, presence, shape, outputs) {
  if (!grid || !outputs.tree_top) return [];
  const most = presence.map((_, j) => j).sort((a, b) => presence[b] - presence[a]);
  const of = (/** @type {string} */ output, /** @type {number} */ target) => {
    const { data, dims } = outputs[output], length = data.length / dims[0];
    return data.subarray(target * length, (target + 1) * length);
  };
  return [presence.length, ...most].slice(0, NUM_TREES).map((target) => {
    const isClass = target === presence.length;
    const levels = [];
    for (let k = 0; outputs[`tree_activity_${k}`]; k++) {
      const activity = outputs[`tree_activity_${k}`].data;
      const width = Math.round(Math.sqrt(activity.length)), down = k ? of(`tree_down_${k}`, target) : null;
      levels.push({ width, activity, down });
    }
    return {
      about: /** @type {"classes" | "concepts"} */ (isClass ? "classes" : "concepts"),
      index: isClass ? best : target,
      name: isClass ? model.classes[best] : model.concepts[target],
      value: outputs.tree_value.data[target],
      neutral: outputs.tree_neutral.data[target],
      strict: Boolean(outputs.tree_strict?.data[0]),
      image_size: preparation.size,
      ...treeNodes(levels, of("tree_top", target), grid, preparation, shape),
    };
  });
}

/** A map (size * size) as bytes, at most 32 a side; what is below 0 spoke against, and is not shown. @param {Float32Array} found @param {number} size */
function placeMap(found, size) {
  const positive = found.map((each) => (each > 0 ? each : 0)), highest = maximum(positive), side = Math.min(MAP_SIDE, size);
  const shape = { height: size, width: size, channels: 1 }, shown = { rows: side, columns: side };
  const small = resizedFloats(positive.map((each) => each / (highest || 1)), shape, shown), top = maximum(small);
  const levels = Uint8Array.from(small, (each) => roundHalfEven((255 * each) / (top || 1)));
  return { side, levels: base64(levels), max: highest * top };
}

/** @param {ArrayLike<number>} values */
function maximum(values) {
  let highest = 0;
  for (let i = 0; i < values.length; i++) highest = Math.max(highest, values[i]);
  return highest;
}

/** The prepared image as a PNG in an address. @param {Uint8Array} levels @param {number} size */
function pictureOf(levels, size) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const pixels = context.createImageData(size, size), count = size * size;
  for (let i = 0; i < count; i++) {
    for (let c = 0; c < 3; c++) pixels.data[4 * i + c] = levels[levels.length === count ? i : c * count + i];
    pixels.data[4 * i + 3] = 255;
  }
  context.putImageData(pixels, 0, 0);
  return canvas.toDataURL("image/png");
}
