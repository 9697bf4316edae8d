/** What the model says of a case: its diagnosis or that it abstains, the truth where it is known, all probabilities. */
import { bar } from "./bars.js";
import { certainty } from "./certainty.js";
import { element } from "./elements.js";
import { percent } from "./numbers.js";

/** @typedef {import("./types.js").Case} Case */
/** @typedef {import("./types.js").Model} Model */

/** @param {Case} theCase @returns {"right" | "wrong" | "unknown"} */
export function correctness(theCase) {
  if (theCase.truth === null) return "unknown";
  return theCase.truth === theCase.diagnosis ? "right" : "wrong";
}

/** "right" or "wrong" in its colour. @param {Case} theCase */
export function mark(theCase) {
  const word = correctness(theCase);
  return element("b", { class: word === "right" ? "good" : "bad" }, word);
}

/** The classes with their probabilities, the likeliest first. @param {Model} model @param {Case} theCase */
export function falling(model, theCase) {
  const pairs = model.classes.map((name, k) => ({ name, k, value: theCase.probabilities[name] }));
  return pairs.sort((a, b) => b.value - a.value);
}

/**
 * The section, and a function that says what follows from corrections, or that there are none.
 * @param {Model} model
 * @param {Case} theCase
 * @param {HTMLElement} heading
 */
export function verdict(model, theCase, heading) {
  const look = theCase.abstain ? "unsafe" : correctness(theCase);
  const corrected = element("p", { class: "corrected", hidden: true });
  const section = element(
    "section",
    { class: `verdict ${look}` },
    heading,
    answer(theCase),
    corrected,
    theCase.truth !== null &&
      element("p", {}, `Known to be ${theCase.truth}: the likeliest class is `, mark(theCase), "."),
    strictLines(theCase),
    element(
      "ul",
      { class: "chances" },
      ...falling(model, theCase).map(({ name, value }) =>
        element("li", {}, element("span", {}, name), bar(value), element("span", { class: "number" }, percent(value))),
      ),
    ),
  );

  /** @param {import("./interventions.js").Corrected | null} found */
  function correct(found) {
    corrected.hidden = found === null;
    const said = found && [element("strong", {}, found.diagnosis), `, ${certainty(found.probability)}.`];
    corrected.replaceChildren(...(said ? ["With your corrections: ", ...said] : []));
  }

  return { section, correct };
}

/** @param {Case} theCase */
function answer(theCase) {
  if (theCase.abstain) {
    const possible = theCase.possible?.length ? theCase.possible : ["nothing"];
    const names = element("strong", {}, possible.join(" or "));
    return element("p", { class: "answer" }, "The model abstains: ", names, " cannot be ruled out.");
  }
  const chance = `: ${certainty(theCase.probabilities[theCase.diagnosis])}`;
  return element("p", { class: "answer" }, element("strong", {}, theCase.diagnosis), chance);
}

/** @param {Case} theCase */
function strictLines(theCase) {
  const [first, ...others] = theCase.strict?.lines ?? [];
  return first && element("p", { class: "strict" }, element("b", {}, first), ...others.map((line) => ` ${line}`));
}
