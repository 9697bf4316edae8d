/** Marks that a reviewer draws on the image: boxes and lines, each with a comment. */
import { drawn, element } from "../elements.js";

/** @typedef {"box" | "line"} Kind */
/** @typedef {[number, number]} Point x and y from 0 to 1 */
/** @typedef {{kind: Kind, points: Point[], shape: SVGElement, item: HTMLLIElement, comment: HTMLInputElement}} Drawn */

const SMALLEST = 0.01, STEP = 0.02, MOST_POINTS = 2000, MOST_MARKS = 50;
/** @type {Point[]} */
const MIDDLE = [[0.35, 0.35], [0.65, 0.65]];

export class Marks {
  /** @param {HTMLElement} stage the element that has the image in it */
  constructor(stage) {
    this.stage = stage;
    /** @type {Drawn[]} */
    this.marks = [];
    /** @type {Kind | null} */
    this.drawing = null;
    this.svg = drawn("svg", { class: "marks", viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" });
    stage.append(this.svg);
    this.list = element("ol", { class: "mark-list" });
    this.box = this.tool("box", "Draw a box");
    this.line = this.tool("line", "Draw freehand");
    const middle = element("button", { type: "button" }, "Add a box by keyboard");
    middle.addEventListener("click", () => this.add("box", MIDDLE.map(([x, y]) => [x, y]))?.comment.focus());
    this.element = element("div", { class: "mark-tools" }, this.box, this.line, middle, this.list);
    this.svg.addEventListener("pointerdown", (event) => this.begin(event));
  }

  /** The marks as the server takes them. */
  values() {
    return this.marks.map(({ kind, points, comment }) => ({ kind, points, comment: comment.value.trim() }));
  }

  /** @param {Kind} kind @param {string} name */
  tool(kind, name) {
    const button = element("button", { type: "button", "aria-pressed": "false" }, name);
    button.addEventListener("click", () => this.use(this.drawing === kind ? null : kind));
    return button;
  }

  /** @param {Kind | null} kind */
  use(kind) {
    this.drawing = kind;
    this.box.setAttribute("aria-pressed", String(kind === "box"));
    this.line.setAttribute("aria-pressed", String(kind === "line"));
    this.svg.classList.toggle("drawing", kind !== null);
    if (kind !== null) this.stage.scrollIntoView({ block: "nearest" });
  }

  /** @param {PointerEvent} event */
  begin(event) {
    const kind = this.drawing;
    if (kind === null || event.button !== 0) return;
    event.preventDefault();
    this.svg.setPointerCapture(event.pointerId);
    const first = this.at(event);
    /** @type {Point[]} */
    let points = [first, first];
    const shape = shapeOf(kind);
    this.svg.append(shape);
    const move = (/** @type {PointerEvent} */ to) => {
      points = kind === "box" ? [first, this.at(to)] : [...points, this.at(to)].slice(0, MOST_POINTS);
      place(shape, kind, points);
    };
    const end = () => {
      this.svg.removeEventListener("pointermove", move);
      shape.remove();
      this.use(null); // so that a finger scrolls again
      const large = points.some(([x, y]) => Math.abs(x - first[0]) > SMALLEST || Math.abs(y - first[1]) > SMALLEST);
      if (large) this.add(kind, points)?.comment.focus({ preventScroll: true });
    };
    this.svg.addEventListener("pointermove", move);
    this.svg.addEventListener("pointerup", end, { once: true });
    this.svg.addEventListener("pointercancel", end, { once: true });
  }

  /** @param {PointerEvent} event @returns {Point} */
  at(event) {
    const edge = this.svg.getBoundingClientRect();
    return [part((event.clientX - edge.left) / edge.width), part((event.clientY - edge.top) / edge.height)];
  }

  /** @param {Kind} kind @param {Point[]} points */
  add(kind, points) {
    if (this.marks.length === MOST_MARKS) return null;
    const shape = shapeOf(kind), number = this.marks.length + 1, what = kind === "box" ? "Box" : "Line";
    const comment = element("input", { type: "text", maxlength: 1000, "aria-label": `Comment on mark ${number}`, placeholder: "What is here?" });
    const remove = element("button", { type: "button", "aria-label": `Remove mark ${number}` }, "Remove");
    const move = element("button", { type: "button", class: "move" }, `${what}: move it`);
    move.title = "Arrow keys move it; with Shift they change its size";
    const item = element("li", {}, comment, " ", kind === "box" && move, " ", remove);
    const mark = { kind, points, shape, item, comment };
    remove.addEventListener("click", () => {
      this.marks.splice(this.marks.indexOf(mark), 1);
      shape.remove();
      item.remove();
      this.box.focus();
    });
    move.addEventListener("keydown", (event) => moveByKey(mark, event));
    for (const each of [move, comment]) {
      each.addEventListener("focus", () => shape.classList.add("chosen"));
      each.addEventListener("blur", () => shape.classList.remove("chosen"));
    }
    place(shape, kind, points);
    this.marks.push(mark);
    this.svg.append(shape);
    this.list.append(item);
    return mark;
  }
}

/** @param {Drawn} mark @param {KeyboardEvent} event */
function moveByKey(mark, event) {
  const by = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] }[event.key];
  if (!by) return;
  event.preventDefault();
  const [[left, top], [right, bottom]] = mark.points, [x, y] = by;
  const fits = [left + x, top + y, right + x, bottom + y].every((edge) => edge >= 0 && edge <= 1);
  if (event.shiftKey) {
    if (right + x > left && bottom + y > top) mark.points = [[left, top], [part(right + x), part(bottom + y)]];
  } else if (fits) mark.points = [[part(left + x), part(top + y)], [part(right + x), part(bottom + y)]];
  place(mark.shape, mark.kind, mark.points);
}

/** A number from 0 to 1, to four digits. @param {number} value */
const part = (value) => Math.round(1e4 * Math.min(1, Math.max(0, value))) / 1e4;

/** @param {Kind} kind */
const shapeOf = (kind) => drawn(kind === "box" ? "rect" : "polyline", { class: "mark" });

/** @param {SVGElement} shape @param {Kind} kind @param {Point[]} points */
function place(shape, kind, points) {
  if (kind === "line") {
    shape.setAttribute("points", points.map((point) => point.join(",")).join(" "));
    return;
  }
  const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
  const left = Math.min(...xs), top = Math.min(...ys);
  const edges = { x: left, y: top, width: Math.max(...xs) - left, height: Math.max(...ys) - top };
  for (const [name, value] of Object.entries(edges)) shape.setAttribute(name, String(value));
}
