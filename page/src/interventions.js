/** How the concepts add up to the diagnosis, and what it would be with some of them set by hand. */
import { element } from "./elements.js";
import { percent, signed } from "./numbers.js";
import { change, logits, softmax } from "./reasoning.js";
import { falling } from "./verdict.js";

/** @typedef {import("./types.js").Case} Case */
/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Reasons} Reasons */
/** @typedef {import("./types.js").Reasoning} Reasoning */

const COLUMNS = 3; // classes beside each other

/**
 * The section, or null for a model that does not decide by its concepts alone.
 * @param {Model} model
 * @param {Case} theCase
 */
export function interventions(model, theCase) {
  const { reasoning } = model, { reasons } = theCase;
  return reasoning && reasons && new Interventions(model, theCase, reasoning, reasons).section;
}

class Interventions {
  /** @param {Model} model @param {Case} theCase @param {Reasoning} reasoning @param {Reasons} reasons */
  constructor(model, theCase, reasoning, reasons) {
    this.reasoning = reasoning;
    this.seen = reasons.presence;
    this.columns = falling(model, theCase).slice(0, COLUMNS);
    this.rows = this.seen.map((_, j) => this.conceptRow(j));
    this.bias = this.numberRow("data-bias", "without any concept");
    this.sum = this.numberRow("data-sum", "sum");
    this.chance = this.numberRow("data-chance", "probability");
    this.whatIf = element("span", { class: "what-if", role: "status" });
    this.reset = element("button", { type: "button", class: "reset", disabled: true }, "As seen");
    this.reset.addEventListener("click", () => {
      for (const { select } of this.rows) select.value = "";
      this.addUp();
    });
    this.section = this.build(reasons.sentence);
    this.addUp();
  }

  /** @param {string} sentence */
  build(sentence) {
    const first = this.columns[0].k, matters = (/** @type {number} */ j) => Math.abs(this.seen[j] * this.reasoning.weight[first][j]);
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
    const option = (/** @type {string} */ value) => element("option", { value }, value || "as seen");
    const select = element("select", { "aria-label": `Set ${name} to` }, ...["", "present", "absent"].map(option));
    const presence = element("td", { class: "presence" }), cells = this.cells();
    select.addEventListener("change", () => this.set(j));
    const head = element("th", { scope: "row" }, name), control = element("td", { class: "control" }, select);
    const row = element("tr", { "data-concept": j }, head, control, presence, ...cells);
    return { row, select, presence, cells };
  }

  /** @param {string} mark @param {string} name */
  numberRow(mark, name) {
    const cells = this.cells(), head = element("th", { scope: "row" }, name);
    const empty = [element("td", { class: "control" }), element("td", { class: "presence" })];
    return { row: element("tr", { [mark]: true }, head, ...empty, ...cells), cells };
  }

  /** @param {number} j */
  set(j) {
    const { group } = this.reasoning;
    if (this.rows[j].select.value === "present") // of an attribute's values only one can be present
      this.rows.forEach(({ select }, i) => {
        if (i !== j && group[i] === group[j] && select.value === "present") select.value = "";
      });
    this.addUp();
  }

  addUp() {
    const { reasoning, seen } = this;
    const settings = this.rows.map(({ select }) => /** @type {import("./reasoning.js").Setting} */ (select.value));
    const now = change(reasoning, seen, settings), sums = logits(reasoning, now);
    const chances = softmax(sums.map((value) => value / reasoning.temperature));
    this.rows.forEach(({ row, presence, cells }, j) => {
      row.classList.toggle("changed", now[j] !== seen[j]);
      presence.textContent = now[j].toFixed(2);
      this.fill(cells, (k) => signed(now[j] * reasoning.weight[k][j]));
    });
    this.fill(this.bias.cells, (k) => signed(reasoning.bias[k]));
    this.fill(this.sum.cells, (k) => signed(sums[k]));
    this.fill(this.chance.cells, (k) => percent(chances[k]));
    const best = chances.indexOf(Math.max(...chances)), any = settings.some((to) => to);
    this.whatIf.dataset.probabilities = JSON.stringify(chances);
    this.whatIf.textContent = any ? `With these settings: ${reasoning.classes[best]}, ${percent(chances[best])}.` : "";
    this.reset.disabled = !any;
  }

  /** @param {HTMLElement[]} cells @param {(k: number) => string} text */
  fill(cells, text) {
    cells.forEach((cell, i) => { cell.textContent = text(this.columns[i].k); });
  }
}
