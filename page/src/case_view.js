/** One case as an article: verdict, maps, trees, reasons and known cases, and how these follow the chosen target. */
import { element, newId } from "./elements.js";
import { interventions } from "./interventions.js";
import { prototypeStrip, similarCases } from "./known_cases.js";
import { look } from "./look.js";
import { traversals } from "./traversals.js";
import { trees } from "./trees.js";
import { verdict } from "./verdict.js";

/** @typedef {import("./types.js").Case} Case */
/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").ConceptPrototypes} ConceptPrototypes */
/** @typedef {(theCase: Case, stage: HTMLElement) => HTMLElement | null} Panel `stage` has the image in it */

export class CaseView {
  /**
   * @param {Model} model
   * @param {Case} theCase
   * @param {() => ConceptPrototypes[]} prototypes those that are known by now
   * @param {Panel} [panel] what a program adds to the case
   */
  constructor(model, theCase, prototypes, panel) {
    this.case = theCase;
    const id = newId();
    this.heading = element("h2", { id, class: "name", tabindex: -1 }, theCase.name);
    const slot = element("div", { class: "shown-prototypes control" });
    const seen = look(theCase, ({ key, concept }) => {
      parsed.show(key);
      const known = concept && prototypes().find((each) => each.concept === concept.name);
      slot.replaceChildren(...(known ? [prototypeStrip(known, `Training cases that show ${known.concept} most`)] : []));
    });
    const parsed = trees(theCase, seen.frame), said = verdict(model, theCase, this.heading);
    const stage = /** @type {HTMLElement} */ (seen.left.querySelector(".stage"));
    this.article = element(
      "article",
      { class: "case", "aria-labelledby": id },
      said.section,
      element("section", { class: "two" }, seen.left, seen.fields, slot),
      interventions(model, theCase, said.correct),
      panel?.(theCase, stage),
      similarCases(theCase),
      parsed.section,
      traversals(theCase),
    );
    seen.choose();
  }

  /** @param {boolean} open */
  show(open) {
    this.article.classList.toggle("closed", !open);
  }

  /** Where a reader of the page should be after this case was chosen. */
  focus() {
    this.heading.focus({ preventScroll: true });
    this.article.scrollIntoView();
  }
}
