/** Buttons that open the drawing of a parse tree level by level; on paper all of it is there. */
import { element } from "./elements.js";

/** @typedef {import("./types.js").Tree} Tree */

const READABLE = 12; // nodes side by side

/**
 * The buttons, null for a tree with a single level. At first it is open as far down as it can be read.
 * @param {Tree} tree
 * @param {SVGElement} svg its drawing: what belongs to a level says so in `data-level`
 * @param {() => void} onClose is called before a level is closed
 */
export function levelControl(tree, svg, onClose) {
  const names = new Map(tree.nodes.map((node) => [node.level, node.name]));
  const levels = [...names.keys()].sort((a, b) => b - a);
  if (levels.length < 2) return null;
  let open = 1;
  const status = element("span", { class: "soft", role: "status" });
  const next = button("Open the next level", () => show(open + 1));
  const all = button("Open all", () => show(levels.length));
  const fewer = button("Close a level", () => { onClose(); show(open - 1); });

  /** @param {number} count */
  function show(count) {
    open = count;
    const lowest = levels[open - 1];
    for (const part of svg.querySelectorAll("[data-level]"))
      part.classList.toggle("beyond", Number(part.getAttribute("data-level")) < lowest);
    svg.style.setProperty("--closed", String(levels.length - open)); // the image moves up into their room
    next.disabled = all.disabled = open === levels.length;
    fewer.disabled = open === 1;
    status.textContent = `${open} of ${levels.length} levels open, down to ${names.get(lowest)}`;
  }

  const tooWide = levels.findIndex((level) => tree.nodes.filter((node) => node.level === level).length > READABLE);
  show(tooWide < 0 ? levels.length : Math.max(tooWide, 1));
  return element("div", { class: "levels control" }, next, all, fewer, status);
}

/** @param {string} text @param {() => void} act */
function button(text, act) {
  const made = element("button", { type: "button" }, text);
  made.addEventListener("click", act);
  return made;
}
