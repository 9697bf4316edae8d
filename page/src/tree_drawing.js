/** A parse tree as SVG: layers from the diagnosis or concept at the top to the image at the bottom. */
import { drawn, newId, pictureAddress } from "./elements.js";
import { share } from "./numbers.js";
import { IMAGE, layout, MARGIN, TOP, WIDTH } from "./tree_layout.js";

/** @typedef {import("./types.js").Tree} Tree */
/** @typedef {import("./types.js").TreeNode} TreeNode */
/** @typedef {import("./types.js").Box} Box */
/** @typedef {import("./tree_layout.js").Point} Point */

/**
 * The drawing, its nodes with their circles, and a function that marks a region of the image in it.
 * @param {Tree} tree
 * @param {string | null} picture the address of the prepared image
 */
export function drawTree(tree, picture) {
  const { at, rows, image, height } = layout(tree);
  const point = (/** @type {string} */ id) => /** @type {Point} */ (at.get(id));
  const strongest = Math.max(...tree.nodes.map((node) => node.share));
  const names = new Map(tree.nodes.map((node) => [node.level, node.name]));
  const circles = tree.nodes.map((node) => ({ node, circle: capsule(node, point(node.id)) }));
  const title = newId(), description = newId();
  const frame = { x: image.x, y: image.y, width: IMAGE, height: IMAGE };
  const href = pictureAddress(picture);
  const ground = drawn(
    "g",
    { class: "ground" },
    href && drawn("image", { ...frame, href, preserveAspectRatio: "none" }),
    drawn("rect", { class: "frame", ...frame }),
    ...tree.nodes.filter((node) => node.level === 0).flatMap((node) => place(tree, node, point(node.id), image)),
  );
  const svg = drawn(
    "svg",
    { class: "pt", viewBox: `0 0 ${WIDTH} ${height}`, role: "group", "aria-labelledby": `${title} ${description}` },
    drawn("title", { id: title }, `Parse tree: ${tree.name}`),
    drawn("desc", { id: description }, describe(tree)),
    drawn("text", { class: "head", x: MARGIN, y: 24 }, tree.name + (tree.strict ? " (strict tree)" : "")),
    drawn("text", { class: "faint", x: MARGIN, y: 42 }, heading(tree)),
    ...tree.nodes.map((node) => route(node, point(node.parent), point(node.id), strongest)),
    ...[...rows].map(([level, y]) => 
      drawn("text", { class: "faint", x: MARGIN, y: y + 4, "data-level": level }, names.get(level))),
    ground,
    drawn("circle", { class: "capsule", cx: point("root").x, cy: TOP, r: 11 }),
    ...circles.map(({ circle }) => circle),
  );
  const scale = IMAGE / tree.image_size;

  /** @param {Box | null} region */
  function mark(region) {
    ground.querySelector(".region")?.remove();
    if (region) ground.append(drawn("rect", { class: "region", ...boxAt(region, scale, image) }));
  }

  return { svg, circles, mark };
}

/** What a node is, in words. @param {TreeNode} node */
export function nodeWords(node) {
  const [top, left, bottom, right] = node.region;
  const where = node.capsules.length > 1 ? `${node.capsules.length} capsules around` : "the capsule at";
  return (
    `${node.name}, ${where} row ${node.row + 1}, column ${node.column + 1}: ${share(node.share, 1)} of the evidence, ` +
    `activity ${node.activity.toFixed(2)}; it rests on rows ${top} to ${bottom}, columns ${left} to ${right}`
  );
}

/** @param {Tree} tree */
const kind = (tree) => (tree.about === "concepts" ? "presence" : "logit");

/** @param {Tree} tree */
function heading(tree) {
  const empty = `${tree.neutral.toFixed(2)} for an empty picture`;
  return `${kind(tree)} ${tree.value.toFixed(2)} (${empty}), ${share(tree.share, 0)} of the evidence shown`;
}

/** @param {Tree} tree */
function describe(tree) {
  const leaves = tree.nodes.filter((node) => node.level === 0).length;
  const carrier = tree.strict ? "strict tree shown carries" : "routes shown carry";
  return (
    `${tree.name}, ${kind(tree)} ${tree.value.toFixed(2)}. The ${carrier} ${share(tree.share, 0)} of the evidence, ` +
    `from ${leaves} regions of the image through ${tree.nodes.length - leaves} groups of capsules.`
  );
}

/** @param {TreeNode} node @param {Point} from @param {Point} to @param {number} strongest */
function route(node, from, to, strongest) {
  const half = (from.y + to.y) / 2;
  const d = `M${from.x} ${from.y}C${from.x} ${half} ${to.x} ${half} ${to.x} ${to.y}`;
  const width = 0.8 + (9 * node.share) / strongest;
  return drawn("path", { class: "route", d, "stroke-width": width, "data-level": node.level });
}

/** @param {TreeNode} node @param {Point} at */
function capsule(node, at) {
  const r = 3.5 + 9 * Math.sqrt(node.share);
  const look = node.level === 0 ? "leaf" : "capsule";
  const placed = { class: look, cx: at.x, cy: at.y, r, "data-level": node.level };
  return drawn("circle", placed, drawn("title", {}, nodeWords(node)));
}

/** @param {Tree} tree @param {TreeNode} node @param {Point} at @param {Point} image */
function place(tree, node, at, image) {
  const box = boxAt(node.place, IMAGE / tree.image_size, image);
  const most = Math.max(...tree.nodes.filter((other) => other.level === 0).map((other) => other.share));
  const line = `M${at.x} ${at.y}L${box.x + box.width / 2} ${box.y}`;
  return [
    drawn("path", { class: "fall", d: line, "data-level": 0 }),
    drawn("rect", { class: "place", ...box, "fill-opacity": 0.15 + (0.4 * node.share) / most, "data-level": 0 }),
  ];
}

/** @param {Box} box @param {number} scale @param {Point} image */
function boxAt([top, left, bottom, right], scale, image) {
  const corner = { x: image.x + left * scale, y: image.y + top * scale };
  return { ...corner, width: (right - left) * scale, height: (bottom - top) * scale };
}
