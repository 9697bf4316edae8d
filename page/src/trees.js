/** The parse trees of a case. Each node is a button that marks the region it rests on. */
import { element } from "./elements.js";
import { drawTree, nodeWords } from "./tree_drawing.js";
import { percent } from "./numbers.js";
import { levelControl } from "./tree_levels.js";

/** @typedef {import("./types.js").Case} Case */
/** @typedef {import("./types.js").Tree} Tree */
/** @typedef {import("./types.js").Box} Box */

const NOTHING = "No group of capsules carries enough of the evidence to be shown.";

/** The target of a tree, as in `look.js`. @param {Tree} tree */
const keyOf = (tree) => (tree.about === "classes" ? "diagnosis" : `concept-${tree.index}`);

/**
 * The section with the trees, null where there are none, and a function that shows that of a target.
 * @param {Case} theCase
 * @param {(region: Box | null) => void} frame frames a region of the image of the case
 */
export function trees(theCase, frame) {
  if (!theCase.trees.length) return { section: null, show: () => frame(null) };
  const figures = theCase.trees.map((tree) => figureOf(tree, theCase.picture, frame));
  const without = element(
    "p",
    { class: "no-tree soft control", hidden: true },
    "No tree was made for this concept: only the diagnosis and the most present concepts have one.",
  );
  const parents = theCase.strict
    ? "Each capsule has a single parent."
    : "A region can stand under several parents: it sent evidence to each.";
  const section = element(
    "section",
    { class: "trees" },
    element("h3", {}, "Parse tree"),
    element(
      "p",
      { class: "soft" },
      "From the top down, neighbouring capsules on each grid and the routes that carried most of the evidence; " +
        `exact zeros are left out. ${parents} ${accuracyOf(theCase)}`,
      element("span", { class: "control" }, "Close and open it level by level, and choose a node to see the region it rests on."),
    ),
    without,
    ...figures.map(({ figure }) => figure),
  );

  /** @param {string} key */
  function show(key) {
    for (const each of figures) {
      each.close();
      each.figure.classList.toggle("closed", each.key !== key);
    }
    without.hidden = figures.some((each) => each.key === key);
    frame(null);
  }

  return { section, show };
}

/** How well contributions add up. @param {Case} theCase */
const accuracyOf = ({ residual }) =>
  residual === null ? "" : `All contributions, for and against, add up to the change from an empty image to within ${percent(residual)}. `;

/** @param {Tree} tree @param {string | null} picture @param {(region: Box | null) => void} frame */
function figureOf(tree, picture, frame) {
  const { svg, circles, mark } = drawTree(tree, picture);
  const detail = element("figcaption", { class: "control detail", role: "status" });
  const nothing = !circles.length && element("p", { class: "soft" }, NOTHING);
  const scroll = element("div", { class: "scroll" }, svg);
  const levels = levelControl(tree, svg, close);
  const figure = element("figure", { class: "tree", "data-key": keyOf(tree) }, levels, scroll, nothing, detail);

  function close() {
    for (const { circle } of circles) circle.setAttribute("aria-pressed", "false");
    mark(null);
    detail.textContent = "";
    frame(null);
  }

  for (const { node, circle } of circles) {
    const words = nodeWords(node);
    const marks = { tabindex: "0", role: "button", "aria-pressed": "false", "aria-label": words };
    for (const [key, value] of Object.entries(marks)) circle.setAttribute(key, value);
    const open = () => {
      const wasOpen = circle.getAttribute("aria-pressed") === "true";
      close();
      if (wasOpen) return;
      circle.setAttribute("aria-pressed", "true");
      mark(node.region);
      frame(node.region);
      detail.textContent = words;
    };
    circle.addEventListener("click", open);
    circle.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      open();
    });
  }
  return { key: keyOf(tree), figure, close };
}
