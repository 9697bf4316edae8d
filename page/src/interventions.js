/** How the concepts add up to the diagnosis, and what it would be with some of them set by hand. */
import { certainty } from "./certainty.js";
import { element } from "./elements.js";
import { percent, signed } from "./numbers.js";
import { change, logits, softmax, values } from "./reasoning.js";
import { falling } from "./verdict.js";

/** @typedef {import("./types.js").Case} Case */
/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Reasons} Reasons */
/** @typedef {import("./types.js").Reasoning} Reasoning */
/** @typedef {import("./reasoning.js").Setting} Setting */
/** @typedef {{diagnosis: string, probability: number}} Corrected */

const COLUMNS = 3; // classes beside each other

const BY_BAR = "by bar";
const BESIDE =
  "This model computes the diagnosis beside the concepts, not from them. So a concept that is corrected by hand would " +
  "not change the diagnosis, and none can be corrected here. A model with the bottleneck head decides by its concepts " +
  "alone, and lets you correct them.";

/**
 * The section, null for a model without concepts. It says so where a model does not decide by its concepts alone.
 * @param {Model} model
 * @param {Case} theCase
 * @param {(corrected: Corrected | null) => void} onCorrect is called with what follows when concepts are set by hand
 */
export function interventions(model, theCase, onCorrect) {
  const reasoning = theCase.reasoning ?? model.reasoning, { reasons } = theCase;
  if (reasoning && reasons) return new Interventions(model, theCase, reasoning, reasons, onCorrect).section;
  if (reasoning || !theCase.concepts.length) return null;
  const heading = element("h3", {}, "Correct a concept");
  return element("section", { class: "reasons beside" }, heading, element("p", {}, BESIDE));
}

class Interventions {
  /**
   * @param {Model} model
   * @param {Case} theCase
   * @param {Reasoning} reasoning
   * @param {Reasons} reasons
   * @param {(corrected: Corrected | null) => void} onCorrect
   */
  constructor(model, theCase, reasoning, reasons, onCorrect) {
    this.reasoning = reasoning;
    this.onCorrect = onCorrect;
    this.seen = reasons.presence;
    /** @type {Setting[]} */
    this.settings = this.seen.map(() => "");
    this.columns = falling(model, theCase).slice(0, COLUMNS);
    this.rows = this.seen.map((_, j) => this.conceptRow(j));
    this.bias = this.numberRow("data-bias", "without any concept");
    this.sum = this.numberRow("data-sum", "sum");
    this.chance = this.numberRow("data-chance", "probability");
    this.whatIf = element("span", { class: "what-if", role: "status" });
    this.reset = element("button", { type: "button", class: "reset", disabled: true }, "Back to what the model saw");
    this.reset.addEventListener("click", () => {
      this.settings.fill("");
      this.addUp();
    });
    this.section = this.build(reasons.sentence);
    this.addUp();
  }

  /** @param {string} sentence */
  build(sentence) {
    const first = this.columns[0].k, weighed = values(this.reasoning, this.seen);
    const matters = (/** @type {number} */ j) => Math.abs(weighed[j] * this.reasoning.weight[first][j]);
    const order = this.rows.map((_, j) => j).sort((a, b) => matters(b) - matters(a));
    const head = element(
      "tr",
      {},
      element("th", { scope: "col" }, "concept"),
      element("th", { scope: "col", class: "control" }, "set to"),
      element("th", { scope: "col", class: "presence" }, "presence"),
      ...this.columns.map(({ name }) => element("th", { scope: "col" }, name)),
    );
    return element(
      "section",
      { class: "reasons" },
      element("h3", {}, "How the concepts add up"),
      element("p", { class: "flip" }, sentence),
      element(
        "p",
        { class: "soft control" },
        "Is a concept wrong? Move its bar, or set it to present or absent: the diagnosis follows at once.",
      ),
      element(
        "table",
        {},
        element("thead", {}, head),
        element("tbody", {}, ...order.map((j) => this.rows[j].row), this.bias.row),
        element("tfoot", {}, this.sum.row, this.chance.row),
      ),
      element("p", { class: "control" }, this.reset, " ", this.whatIf),
    );
  }

  cells() {
    return this.columns.map(({ k }) => element("td", { "data-class": k }));
  }

  /** @param {number} j */
  conceptRow(j) {
    const name = this.reasoning.concepts[j];
    const option = (/** @type {string} */ value) =>
      element("option", { value, hidden: value === BY_BAR }, value || "as seen");
    const values = ["", "present", "absent", BY_BAR];
    const select = element("select", { "aria-label": `Set ${name} to` }, ...values.map(option));
    const slider = element("input", { type: "range", min: 0, max: 1, step: 0.01, "aria-label": `Presence of ${name}` });
    const presence = element("td", { class: "presence" }), cells = this.cells();
    select.addEventListener("change", () => this.set(j, /** @type {Setting} */ (select.value)));
    slider.addEventListener("input", () => this.set(j, Number(slider.value)));
    const head = element("th", { scope: "row" }, name);
    const control = element("td", { class: "control" }, element("span", { class: "setting" }, slider, select));
    const row = element("tr", { "data-concept": j }, head, control, presence, ...cells);
    return { row, select, slider, presence, cells };
  }

  /** @param {string} mark @param {string} name */
  numberRow(mark, name) {
    const cells = this.cells(), head = element("th", { scope: "row" }, name);
    const empty = [element("td", { class: "control" }), element("td", { class: "presence" })];
    return { row: element("tr", { [mark]: true }, head, ...empty, ...cells), cells };
  }

  /** @param {number} j @param {Setting} to */
  set(j, to) {
    const { group } = this.reasoning;
    if (to === "present") // of an attribute's values only one can be present
      this.settings.forEach((other, i) => {
        if (group[i] === group[j] && other === "present") this.settings[i] = "";
      });
    this.settings[j] = to;
    this.addUp();
  }

  addUp() {
    const { reasoning, seen, settings } = this;
    const now = change(reasoning, seen, settings), sums = logits(reasoning, now), weighed = values(reasoning, now);
    const chances = softmax(sums.map((value) => value / reasoning.temperature));
    this.rows.forEach(({ row, select, slider, presence, cells }, j) => {
      const to = settings[j];
      select.value = typeof to === "number" ? BY_BAR : to;
      if (typeof to !== "number") slider.value = String(now[j]);
      row.classList.toggle("changed", now[j] !== seen[j]);
      presence.textContent = now[j].toFixed(2);
      this.fill(cells, (k) => signed(weighed[j] * reasoning.weight[k][j]));
    });
    this.fill(this.bias.cells, (k) => signed(reasoning.bias[k]));
    this.fill(this.sum.cells, (k) => signed(sums[k]));
    this.fill(this.chance.cells, (k) => percent(chances[k]));
    const best = chances.indexOf(Math.max(...chances)), any = settings.some((to) => to !== "");
    const corrected = any ? { diagnosis: reasoning.classes[best], probability: chances[best] } : null;
    this.whatIf.dataset.probabilities = JSON.stringify(chances);
    this.whatIf.textContent =
      corrected === null ? "" : `With these settings: ${corrected.diagnosis}, ${certainty(corrected.probability)}.`;
    this.onCorrect(corrected);
    this.reset.disabled = !any;
  }

  /** @param {HTMLElement[]} cells @param {(k: number) => string} text */
  fill(cells, text) {
    cells.forEach((cell, i) => { cell.textContent = text(this.columns[i].k); });
  }
}
