/** The image with a map over it, the slider that fades the map, and the targets to choose a map of. */
import { bar } from "./bars.js";
import { element, newId, picture } from "./elements.js";
import { isEmpty, mapCanvas, paint } from "./maps.js";

/** @typedef {import("./types.js").Case} Case */
/** @typedef {import("./types.js").Concept} Concept */
/** @typedef {import("./types.js").Box} Box */
/** @typedef {{key: string, name: string, map: import("./types.js").PlaceMap | null, concept: Concept | null}} Target */

/** What a map can be about: the diagnosis, then the concepts, the most present first. @param {Case} theCase */
export function targetsOf(theCase) {
  const concepts = theCase.concepts.map((concept, j) => ({
    key: `concept-${j}`, name: concept.name, map: concept.map, concept,
  }));
  concepts.sort((a, b) => b.concept.presence - a.concept.presence);
  /** @type {Target[]} */
  const all = [{ key: "diagnosis", name: `reasons for ${theCase.diagnosis}`, map: theCase.class_map, concept: null }];
  return all.concat(concepts);
}

/**
 * @param {Case} theCase
 * @param {(target: Target) => void} onChoose is called with each target that is chosen
 */
export function look(theCase, onChoose) {
  const targets = targetsOf(theCase), group = newId(), mapped = theCase.class_map !== null;
  const overlay = element("canvas", { class: "map", "aria-hidden": "true" });
  const box = element("div", { class: "box", hidden: true });
  const shown = picture(theCase.picture, `${theCase.name}, as the model saw it`, { class: "picture" });
  const slider = element("input", { type: "range", min: 0, max: 100, value: 80 });
  const caption = element("p", { class: "caption control", role: "status" });
  const fade = () => { overlay.style.opacity = String(Number(slider.value) / 100); };
  const radios = targets.map((target, i) =>
    element("input", { type: "radio", name: group, value: target.key, checked: i === 0 }));
  const choose = () => {
    const target = targets[radios.findIndex((radio) => radio.checked)];
    overlay.hidden = target.map === null;
    if (target.map !== null) paint(overlay, target.map);
    caption.textContent = captionOf(target, theCase.choice);
    onChoose(target);
  };
  const fields = element(
    "fieldset",
    { class: "targets" },
    element("legend", {}, mapped ? "What it saw, and where" : "What it saw"),
    ...targets.map((target, i) => (mapped || target.concept) && targetLabel(theCase, target, radios[i])),
  );
  slider.addEventListener("input", fade);
  fields.addEventListener("change", choose);
  fade();
  const left = element(
    "div",
    { class: "look" },
    element("div", { class: "stage" }, shown, overlay, box),
    mapped && element("label", { class: "slider control" }, element("span", {}, "Opacity of the map"), " ", slider),
    caption,
  );

  /** Frame a region of the image, or none. @param {Box | null} region */
  function frame(region) {
    box.hidden = region === null;
    if (region === null) return;
    const [top, leftEdge, bottom, right] = region.map((edge) => (100 * edge) / theCase.size);
    const edges = { top, left: leftEdge, height: bottom - top, width: right - leftEdge };
    for (const [side, value] of Object.entries(edges)) box.style.setProperty(side, `${value}%`);
  }

  return { left, fields: mapped || theCase.concepts.length ? fields : null, frame, choose };
}

/** @param {Target} target @param {string | null} choice */
function captionOf({ name, map, concept }, choice) {
  if (map === null) return "";
  const said = `Map: ${name}.`;
  if (isEmpty(map)) return `${said} Nothing in the image speaks for it.`;
  const part = `${said} It shows what speaks for it, not what speaks against it.`;
  const seen = concept === null || concept.seen ? part : `${part} It does not count as seen.`;
  return choice === null ? seen : `${seen} ${choice}`;
}

/** @param {Case} theCase @param {Target} target @param {HTMLInputElement} radio */
function targetLabel(theCase, { name, map, concept }, radio) {
  const mini = map && element("span", { class: "mini" }, picture(theCase.picture, ""), mapCanvas(map, `Map of ${name}`));
  const words = concept
    ? [bar(concept.presence), element("span", { class: "soft" }, presenceWords(concept.presence, concept.truth))]
    : [element("span", { class: "soft" }, "all evidence for the diagnosis")];
  return element(
    "label",
    { class: `target${concept && !concept.seen ? " unseen" : ""}${map ? "" : " unmapped"}` },
    map && radio,
    mini,
    element("span", { class: "words" }, element("span", {}, name), ...words),
  );
}

/** How present a concept is, and what is known of it. @param {number} presence @param {boolean | null} truth */
export function presenceWords(presence, truth) {
  const known = truth === null ? "" : `, labelled ${truth ? "present" : "absent"}`;
  return `presence ${presence.toFixed(2)}${known}`;
}
