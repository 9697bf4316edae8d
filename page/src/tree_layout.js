/** Where the parts of a parse tree stand in its drawing: the same places as in `report/explanations.py`. */

/** @typedef {import("./types.js").Tree} Tree */
/** @typedef {import("./types.js").TreeNode} TreeNode */
/** @typedef {{x: number, y: number}} Point */

export const WIDTH = 540, MARGIN = 14, TOP = 64, IMAGE = 256;
const LABELS = 114, ROW = 74, FOOT = 24;

/**
 * The points of the nodes and of "root", the height of each level, and where the image lies below them.
 * @param {Tree} tree
 */
export function layout(tree) {
  const levels = [...new Set(tree.nodes.map((node) => node.level))].sort((a, b) => b - a);
  const rows = new Map(levels.map((level, i) => [level, TOP + ROW * (i + 1)]));
  const across = positions(tree);
  /** @type {Map<string, Point>} */
  const at = new Map([["root", { x: across.get("root") ?? 0, y: TOP }]]);
  for (const node of tree.nodes) at.set(node.id, { x: across.get(node.id) ?? 0, y: rows.get(node.level) ?? 0 });
  const image = { x: LABELS + (WIDTH - LABELS - MARGIN - IMAGE) / 2, y: TOP + ROW * (levels.length + 1) };
  return { at, rows, image, height: image.y + IMAGE + FOOT };
}

/**
 * Where each node stands across: leaves side by side, others above the middle of their children, which stand in the
 * order in which they lie in the image, so that no routes cross.
 * @param {Tree} tree
 */
function positions(tree) {
  /** @type {Map<string, TreeNode[]>} */
  const children = new Map();
  for (const node of [...tree.nodes].sort((a, b) => a.region[1] + a.region[3] - b.region[1] - b.region[3]))
    children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const leaves = tree.nodes.filter((node) => node.level === 0).length;
  const room = (WIDTH - LABELS - MARGIN) / Math.max(leaves, 1);
  /** @type {Map<string, number>} */
  const across = new Map();
  let placed = 0;

  /** @param {string} key @returns {number} */
  function place(key) {
    const below = (children.get(key) ?? []).map((child) => place(child.id));
    if (!below.length) placed += 1;
    const x = below.length ? (below[0] + below[below.length - 1]) / 2 : LABELS + room * (placed - 0.5);
    across.set(key, x);
    return x;
  }

  place("root");
  return across;
}
