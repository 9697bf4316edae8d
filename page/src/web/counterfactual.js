/** The fewest concept changes that flip a diagnosis, and the sentence about them, as `explain/intervention.py` has it. */
import { change, logits, probabilities, values } from "../reasoning.js";

/** @typedef {import("../types.js").Reasoning} Reasoning */
/** @typedef {{concept: number, present: boolean, unit: number, effect: number[]}} Option */

const MARGIN = 1e-5; // of a logit

/** @param {number[]} values */
const argmax = (values) => values.indexOf(Math.max(...values));

/** One change of a concept. @param {Reasoning} reasoning @param {number[]} presence @param {number} concept @param {boolean} present */
const changed = (reasoning, presence, concept, present) =>
  change(reasoning, presence, presence.map((_, j) => (j === concept ? (present ? "present" : "absent") : "")));

/**
 * All single changes, and what each does to the logits; of an attribute with several values another one is chosen.
 * @param {Reasoning} reasoning
 * @param {number[]} presence
 * @returns {Option[]}
 */
function optionsOf(reasoning, presence) {
  const seen = presence.map((value, j) => value > reasoning.threshold[j]);
  return reasoning.concepts.flatMap((_, j) => {
    const unit = reasoning.group[j], together = reasoning.group.map((each) => each === unit);
    const alone = together.filter(Boolean).length === 1;
    if (!alone && seen[j] && seen.filter((each, i) => each && together[i]).length === 1) return [];
    const present = alone ? !seen[j] : true;
    const before = values(reasoning, presence), after = values(reasoning, changed(reasoning, presence, j, present));
    const effect = reasoning.weight.map((row) => row.reduce((sum, weight, i) => sum + weight * (after[i] - before[i]), 0));
    return [{ concept: j, present, unit, effect }];
  });
}

/**
 * The changes, as few as can be, after which another class leads; null where none do.
 * @param {Option[]} options @param {number[]} sums @param {number} was
 */
function fewest(options, sums, was) {
  /** @type {{chosen: Option[], lead: number} | null} */
  let best = null;
  for (let other = 0; other < sums.length; other++) {
    if (other === was) continue;
    /** @type {Map<number, {gain: number, option: Option}>} */
    const largest = new Map();
    for (const option of options) {
      const gain = option.effect[other] - option.effect[was], known = largest.get(option.unit);
      if (!known || gain > known.gain) largest.set(option.unit, { gain, option });
    }
    let lead = sums[other] - sums[was];
    const chosen = [];
    for (const { gain, option } of [...largest.values()].sort((a, b) => b.gain - a.gain)) {
      if (lead >= MARGIN || gain <= 0) break;
      lead += gain;
      chosen.push(option);
    }
    if (lead < MARGIN) continue;
    const fewer = !best || chosen.length < best.chosen.length || (chosen.length === best.chosen.length && lead > best.lead);
    if (fewer) best = { chosen, lead };
  }
  return best && best.chosen;
}

/**
 * @param {Reasoning} reasoning
 * @param {number[]} presence
 * @returns {import("../types.js").Reasons}
 */
export function reasonsOf(reasoning, presence) {
  const weighed = values(reasoning, presence);
  const contributions = reasoning.weight.map((row) => row.map((weight, j) => weight * weighed[j]));
  const sums = logits(reasoning, presence), was = argmax(sums);
  const chosen = fewest(optionsOf(reasoning, presence), sums, was);
  if (!chosen) {
    const sentence = "No change of its concepts alone would change the diagnosis.";
    return { presence, contributions, counterfactual: null, sentence };
  }
  const settings = presence.map((_, j) => {
    const option = chosen.find(({ concept }) => concept === j);
    return /** @type {import("../reasoning.js").Setting} */ (option ? (option.present ? "present" : "absent") : "");
  });
  const moved = change(reasoning, presence, settings);
  const after = probabilities(reasoning, moved), now = argmax(logits(reasoning, moved));
  const changes = Object.fromEntries(chosen.map(({ concept, present }) => [reasoning.concepts[concept], present]));
  const parts = Object.entries(changes).map(([name, there]) => `${name} were ${there ? "present" : "absent"}`);
  const listed = parts.length === 1 ? parts[0] : `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
  const sentence = `The diagnosis would be ${reasoning.classes[now]} (${(100 * after[now]).toFixed(1)}%) if ${listed}.`;
  const flip = { changes, diagnosis: reasoning.classes[now], was: reasoning.classes[was], presence: moved };
  return {
    presence, contributions, counterfactual: { ...flip, before: probabilities(reasoning, presence), after }, sentence,
  };
}
