/** The index of a series: an entry for each case, and filters by diagnosis, truth and abstention. */
import { element, picture } from "./elements.js";
import { percent } from "./numbers.js";
import { correctness, mark } from "./verdict.js";

/** @typedef {import("./types.js").Case} Case */

export class CaseIndex {
  /**
   * @param {string[]} classes
   * @param {{choose: (theCase: Case) => void, filter: () => void}} on a case was chosen; the filters changed
   */
  constructor(classes, on) {
    this.on = on;
    /** @type {Map<Case, {item: HTMLLIElement, button: HTMLButtonElement}>} */
    this.entries = new Map();
    this.diagnosis = choice(["", ...classes], on.filter);
    this.truth = choice(["", "right", "wrong", "unknown"], on.filter);
    this.abstaining = element("input", { type: "checkbox" });
    this.abstaining.addEventListener("change", on.filter);
    this.byTruth = element("label", {}, "Truth ", this.truth);
    this.byAbstaining = element("label", {}, this.abstaining, " only where it abstains");
    this.count = element("span", { class: "count soft", role: "status" });
    this.list = element("ul", { class: "index" });
    const byDiagnosis = element("label", {}, "Diagnosis ", this.diagnosis);
    const filters = element("div", { class: "filters" }, byDiagnosis, this.byTruth, this.byAbstaining, this.count);
    this.nav = element("nav", { class: "panel control", "aria-label": "Cases" }, filters, this.list);
  }

  /** Show these cases; entries that were there stay as they are. @param {Case[]} cases */
  update(cases) {
    const known = this.entries;
    this.entries = new Map(cases.map((each, i) => [each, known.get(each) ?? this.entry(each, i)]));
    for (const [each, { item }] of known) if (!this.entries.has(each)) item.remove();
    cases.forEach((each, i) => {
      const { item, button } = /** @type {{item: HTMLLIElement, button: HTMLButtonElement}} */ (this.entries.get(each));
      button.dataset.case = String(i + 1);
      if (this.list.children[i] !== item) this.list.insertBefore(item, this.list.children[i] ?? null);
    });
    this.byTruth.hidden = cases.every((each) => each.truth === null);
    this.byAbstaining.hidden = !cases.some((each) => each.abstain);
    if (this.byTruth.hidden) this.truth.value = "";
    if (this.byAbstaining.hidden) this.abstaining.checked = false;
  }

  /** Let all cases through. */
  clear() {
    this.diagnosis.value = this.truth.value = "";
    this.abstaining.checked = false;
  }

  /** Whether the filters let a case through. @param {Case} theCase */
  fits(theCase) {
    const diagnosis = !this.diagnosis.value || theCase.diagnosis === this.diagnosis.value;
    const truth = !this.truth.value || correctness(theCase) === this.truth.value;
    return diagnosis && truth && (!this.abstaining.checked || theCase.abstain === true);
  }

  /** Hide the entries that the filters hold back. @param {Case[]} left */
  filter(left) {
    for (const [each, { item }] of this.entries) item.classList.toggle("filtered", !left.includes(each));
    this.count.textContent = `${left.length} of ${this.entries.size} cases`;
  }

  /** @param {Case | null} open */
  mark(open) {
    for (const [each, { button }] of this.entries) button.setAttribute("aria-current", String(each === open));
  }

  /** @param {Case} theCase @param {number} i */
  entry(theCase, i) {
    const chance = element("span", { class: "soft" }, percent(theCase.probabilities[theCase.diagnosis]));
    const said = element("span", {}, `${theCase.diagnosis} `, chance);
    if (theCase.truth !== null) said.append(" ", mark(theCase));
    if (theCase.abstain) said.append(" ", element("b", { class: "warn" }, "abstains"));
    const words = element("span", {}, element("span", { class: "name" }, theCase.name), said);
    const shown = picture(theCase.picture, "") ?? element("span", { class: "nothing" });
    const button = element("button", { type: "button", "data-case": i + 1 }, shown, words);
    button.addEventListener("click", () => this.on.choose(theCase));
    return { item: element("li", {}, button), button };
  }
}

/** @param {string[]} values @param {() => void} changed */
function choice(values, changed) {
  const made = element("select", {}, ...values.map((value) => element("option", { value }, value || "all")));
  made.addEventListener("change", changed);
  return made;
}
