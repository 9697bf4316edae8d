/** The parse tree of one image and one target, as `explain/parse_tree.py` makes it. */
import { allRegions, choose, core } from "./evidence.js";
import { boxes } from "./prepare.js";
import { resizedFloats } from "./resize.js";

/** @typedef {import("../types.js").Tree} Tree */
/** @typedef {import("../types.js").Box} Box */
/** @typedef {import("./evidence.js").Level} Level */
/** @typedef {import("./evidence.js").Region} Region */
/** @typedef {import("./prepare.js").Preparation} Preparation */
/** @typedef {{first: number, step: number, width: number, size: number}} Grid of primary capsules, in pixels */
/** @typedef {{height: number, width: number}} Shape */

const MAX_NODES = 24;
const MIN_SHARE = 0.01;

/**
 * Nodes top level first, and the strongest first within a level.
 * @param {Level[]} levels
 * @param {ArrayLike<number>} top the shares of the capsules of the highest level
 * @param {Grid} grid
 * @param {Preparation} preparation
 * @param {Shape} shape of the original image
 * @returns {Pick<Tree, "share" | "nodes">}
 */
export function treeNodes(levels, top, grid, preparation, shape) {
  const shown = choose(allRegions(levels, top, MIN_SHARE), MAX_NODES);
  const ordered = [...shown].sort((a, b) => b.level - a.level || b.share - a.share);
  const ids = new Map(ordered.map((region, i) => [region, `${region.level}:${i}`]));
  const places = new Map(ordered.map((region) => [region, placeOf(grid, core(region), levels[region.level].width)]));
  /** @type {Map<Region, Box>} */
  const rests = new Map();
  for (const region of [...ordered].reverse()) { // from the leaves up
    const below = ordered.filter((child) => child.parent === region).map((child) => /** @type {Box} */ (rests.get(child)));
    rests.set(region, below.length ? around(below) : /** @type {Box} */ (places.get(region)));
  }
  const nodes = ordered.map((region) => {
    const level = levels[region.level], strongest = region.capsules[0];
    const rest = /** @type {Box} */ (rests.get(region));
    return {
      id: /** @type {string} */ (ids.get(region)),
      parent: (region.parent && ids.get(region.parent)) ?? "root",
      level: region.level,
      name: region.level ? `block ${region.level}` : "primary capsules",
      capsules: region.capsules,
      row: Math.floor(strongest / level.width),
      column: strongest % level.width,
      activity: level.activity[strongest],
      share: region.share,
      place: /** @type {Box} */ (places.get(region)),
      region: rest,
      original: original(rest, preparation, shape),
    };
  });
  const share = shown.filter((region) => region.level === 0).reduce((sum, region) => sum + region.share, 0);
  return { share, nodes };
}

/** Where the places of a grid of this width begin, and where the last ends. @param {Grid} grid @param {number} width */
function edgesOf({ first, step, width: primary, size }, width) {
  const between = Array.from({ length: primary - 1 }, (_, i) => Math.floor(first + step * (i + 0.5)));
  let edges = [0, ...between, size];
  while (edges.length - 1 > width) edges = [...edges.slice(0, -1).filter((_, place) => place % 2 === 0), size]; // halved
  return edges;
}

/** The smallest box of pixels around some capsules. @param {Grid} grid @param {number[]} capsules @param {number} width @returns {Box} */
function placeOf(grid, capsules, width) {
  const edges = edgesOf(grid, width);
  const rows = capsules.map((each) => Math.floor(each / width)), columns = capsules.map((each) => each % width);
  return [edges[Math.min(...rows)], edges[Math.min(...columns)], edges[Math.max(...rows) + 1], edges[Math.max(...columns) + 1]];
}

/** The smallest box around boxes. @param {Box[]} all @returns {Box} */
function around(all) {
  const side = (/** @type {number} */ i) => all.map((box) => box[i]);
  return [Math.min(...side(0)), Math.min(...side(1)), Math.max(...side(2)), Math.max(...side(3))];
}

/**
 * The region in the pixels of the original image; null in the padding around it.
 * @param {Box} region @param {Preparation} preparation @param {Shape} shape @returns {Box | null}
 */
function original(region, preparation, { height, width }) {
  const { used, target } = boxes(preparation, height, width);
  const rows = carried(region[0] - target.top, region[2] - target.top, target.rows, used.rows);
  const columns = carried(region[1] - target.left, region[3] - target.left, target.columns, used.columns);
  const inside = (/** @type {Float32Array} */ one, /** @type {Float32Array} */ other) => {
    const most = other.reduce((highest, value) => Math.max(highest, value), 0);
    const there = Array.from(one.keys()).filter((i) => Math.fround(one[i] * most) > 0.5);
    return there.length ? [there[0], there[there.length - 1] + 1] : null;
  };
  const down = inside(rows, columns), across = inside(columns, rows);
  if (!down || !across) return null;
  return [used.top + down[0], used.left + across[0], used.top + down[1], used.left + across[1]];
}

/** How much of each of `to` pixels lies between two of `from` pixels. @param {number} start @param {number} end @param {number} from @param {number} to */
function carried(start, end, from, to) {
  const mask = Float32Array.from({ length: from }, (_, i) => Number(i >= start && i < end));
  return resizedFloats(mask, { height: 1, width: from, channels: 1 }, { rows: 1, columns: to });
}
