/** The view of an explanation document: its cases, one at a time, with the index of a series. */
import { CaseIndex } from "./case_index.js";
import { CaseView } from "./case_view.js";
import { element } from "./elements.js";
import { allPrototypes } from "./known_cases.js";

/** @typedef {import("./types.js").ExplanationDocument} ExplanationDocument */
/** @typedef {import("./types.js").Case} Case */

export const VERSION = 4;

/** @type {Record<string, string>} */
const METHODS = {
  routes: "the routes of the network",
  "grad-cam": "Grad-CAM",
  "integrated-gradients": "integrated gradients",
  occlusion: "occlusion",
};

/** @type {WeakMap<Element, View>} */
const views = new WeakMap();

/**
 * Draw the view of a document into an element. Called again, it shows the other document; a case that was there before
 * stays as its reader left it: open or not, its target, opacity and settings. A case is known again as the same object,
 * or as one with the same content.
 * @param {Element} root
 * @param {ExplanationDocument} explanation
 * @param {{open?: number, panel?: import("./case_view.js").Panel}} options `open`: the place of the case to open,
 *   counted from 0; `panel`: makes what a program adds to each new case
 */
export function mount(root, explanation, { open, panel } = {}) {
  if (explanation.version !== VERSION)
    throw new Error(`the explanation has version ${explanation.version}, not ${VERSION}; make it again`);
  let view = views.get(root);
  if (view === undefined || !same(view.model, explanation.model)) {
    view = new View(root, explanation.model);
    views.set(root, view);
  }
  view.panel = panel;
  view.update(explanation, open);
}

class View {
  /** @param {Element} root @param {import("./types.js").Model} model */
  constructor(root, model) {
    this.model = model;
    /** @type {import("./case_view.js").Panel | undefined} */
    this.panel = undefined;
    /** @type {CaseView[]} */
    this.cases = [];
    /** @type {CaseView | null} */
    this.current = null;
    /** @type {import("./types.js").ConceptPrototypes[]} */
    this.prototypes = [];
    this.index = new CaseIndex(model.classes, {
      choose: (theCase) => this.open(this.cases.find((each) => each.case === theCase) ?? null, true),
      filter: () => this.filter(),
    });
    this.header = element("div", { class: "header" });
    this.place = element("div", { class: "cases" });
    this.steps = element("p", { class: "steps control" }, this.step("Previous case", -1), " ", this.step("Next case", 1));
    this.after = element("div", { class: "after" });
    root.replaceChildren(this.header, this.place, this.after);
  }

  /** @param {ExplanationDocument} explanation @param {number} [open] */
  update(explanation, open) {
    this.prototypes = explanation.prototypes;
    const before = [...this.cases];
    this.cases = explanation.cases.map((theCase) => {
      const place = before.findIndex((each) => each.case.name === theCase.name && same(each.case, theCase));
      if (place < 0) return new CaseView(this.model, theCase, () => this.prototypes, this.panel);
      return before.splice(place, 1)[0];
    });
    for (const gone of before) gone.article.remove();
    this.cases.forEach(({ article }, i) => {
      article.dataset.number = String(i + 1);
      if (this.place.children[i] !== article) this.place.insertBefore(article, this.place.children[i] ?? null);
    });
    const many = this.cases.length > 1;
    this.index.update(this.cases.map((each) => each.case));
    attach(this.index.nav, many, (nav) => this.header.after(nav));
    attach(this.steps, many, (steps) => this.place.after(steps));
    this.header.replaceChildren(...header(explanation));
    this.after.replaceChildren(...after(explanation));
    const wanted = open === undefined ? this.current : this.cases[open];
    this.current = wanted && this.cases.includes(wanted) ? wanted : null;
    if (open !== undefined && this.current && !this.index.fits(this.current.case)) this.index.clear();
    this.filter();
  }

  /** The cases that the filters let through. */
  left() {
    return this.cases.filter((each) => this.index.fits(each.case));
  }

  filter() {
    const left = this.left();
    for (const each of this.cases) each.article.classList.toggle("filtered", !left.includes(each));
    this.index.filter(left.map((each) => each.case));
    const stays = this.current !== null && left.includes(this.current);
    this.open(stays ? this.current : (left[0] ?? this.current), false);
  }

  /** @param {CaseView | null} view @param {boolean} focus */
  open(view, focus) {
    this.current = view;
    for (const each of this.cases) each.show(each === view);
    this.index.mark(view && view.case);
    if (focus) view?.focus();
  }

  /** @param {string} name @param {number} by */
  step(name, by) {
    const button = element("button", { type: "button", "data-step": by }, name);
    button.addEventListener("click", () => {
      const left = this.left(), place = this.current === null ? 0 : left.indexOf(this.current);
      if (left.length) this.open(left[(place + by + left.length) % left.length], true);
    });
    return button;
  }
}

/** @param {ExplanationDocument} explanation */
function header({ title, cases }) {
  const heading = title ? [element("h1", {}, title)] : [];
  if (!cases.length) return heading;
  const methods = [...new Set(cases.flatMap(({ method }) => (method === null ? [] : [METHODS[method] ?? method])))];
  const images = cases.length === 1 ? "this image" : `these ${cases.length} images`;
  const maps = `Maps come from ${methods.join(" and ")}: they show where the evidence was, not whether it is right. `;
  const said = `What the model says of ${images}, and why. ${methods.length ? maps : ""}Not a medical device.`;
  return [...heading, element("p", { class: "soft" }, said)];
}

/** @param {ExplanationDocument} explanation */
function after({ cases, prototypes, errors }) {
  const sections = prototypes.length ? [allPrototypes(prototypes)] : [];
  const notes = [...new Set(cases.flatMap((each) => each.notes))].map((note) => element("li", {}, note));
  const lines = [...notes, ...errors.map((error) => element("li", { class: "bad" }, error))];
  if (!lines.length) return sections;
  const heading = element("h2", {}, "What is not here, and why");
  return [...sections, element("section", { class: "notes" }, heading, element("ul", { class: "lines" }, ...lines))];
}

/**
 * Have a part in the view or not; one that is there is not moved, and keeps its focus.
 * @param {HTMLElement} part
 * @param {boolean} there
 * @param {(part: HTMLElement) => void} add
 */
function attach(part, there, add) {
  if (!there) part.remove();
  else if (!part.parentNode) add(part);
}

/** @param {unknown} one @param {unknown} other */
function same(one, other) {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}
