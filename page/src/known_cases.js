/** Training cases beside the case: those that show a concept most, and those that are most like the image. */
import { element, picture } from "./elements.js";
import { presenceWords } from "./look.js";

/** @typedef {import("./types.js").Case} Case */
/** @typedef {import("./types.js").Known} Known */
/** @typedef {import("./types.js").ConceptPrototypes} ConceptPrototypes */

/** @param {Known} known @param {string} what @param {string} below */
function figure(known, what, below) {
  const label = known.label || "label unknown", alt = `${what}: ${label}`;
  const shown = picture(known.picture, alt)
    ?? element("span", { class: "nothing", role: "img", "aria-label": alt }, "no picture");
  const caption = element("figcaption", {}, label, element("br"), element("span", { class: "soft" }, below));
  return element("figure", {}, shown, caption);
}

/** The training cases that show one concept most. @param {ConceptPrototypes} prototypes @param {string} heading */
export function prototypeStrip({ concept, cases }, heading = concept) {
  const figures = cases.map((known) =>
    figure(known, `Training case that shows ${concept}`, presenceWords(known.presence, known.has)));
  const strip = element("div", { class: "strip" }, ...figures);
  return element("div", { class: "prototypes" }, element("h3", {}, heading), strip);
}

/** All concepts, for paper: on a screen a case shows those of the chosen one. @param {ConceptPrototypes[]} prototypes */
export function allPrototypes(prototypes) {
  return element(
    "section",
    { class: "all-prototypes" },
    element("h2", {}, "What the concepts look like"),
    element("p", { class: "soft" }, "The training cases in which each concept is most present, one for each patient."),
    ...prototypes.map((each) => prototypeStrip(each)),
  );
}

/** The section of the most similar cases, or null. @param {Case} theCase */
export function similarCases(theCase) {
  if (!theCase.similar.length) return null;
  const space = `the space of concept capsules${theCase.strict ? " of the ordinary network" : ""}`;
  const figures = theCase.similar.map((known) =>
    figure(known, "Similar training case", `distance ${known.distance.toFixed(2)}`));
  return element(
    "section",
    { class: "similar" },
    element("h3", {}, "Most similar training cases"),
    element("div", { class: "strip" }, ...figures),
    element(
      "p", { class: "soft" }, `Nearest in ${space}, one for each patient; 0 is the same, 2 the most there can be.`,
    ),
  );
}
