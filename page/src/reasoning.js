/** How concepts add up to a diagnosis: the arithmetic of `ConceptReasoning` in Python. */

/** @typedef {import("./types.js").Reasoning} Reasoning */
/** @typedef {"" | "present" | "absent" | number} Setting as seen, or set to a word or a number */

/**
 * The presences with some concepts set. One value of an attribute set to present sets its other values to absent,
 * unless they are set as well.
 * @param {Reasoning} reasoning
 * @param {number[]} presence
 * @param {Setting[]} settings one for each concept
 */
export function change(reasoning, presence, settings) {
  const { group, present, absent } = reasoning;
  const now = [...presence];
  settings.forEach((to, j) => {
    if (to === "present") group.forEach((other, i) => { if (other === group[j]) now[i] = absent[i]; });
  });
  settings.forEach((to, j) => { if (to !== "") now[j] = typeof to === "number" ? to : to === "present" ? present[j] : absent[j]; });
  return now;
}

const LEAST = 1e-7; // from 0 and 1: presences beyond have no finite value behind them

/**
 * What is weighed: the presences, or the numbers behind them.
 * @param {Reasoning} reasoning
 * @param {number[]} presence
 */
export function values({ scale }, presence) {
  if (scale === "presence") return presence;
  const inside = presence.map((each) => Math.min(Math.max(each, LEAST), 1 - LEAST));
  return inside.map((each) => (scale === "logit" ? Math.log(each / (1 - each)) : Math.atanh(each)));
}

/**
 * @param {Reasoning} reasoning
 * @param {number[]} presence
 */
export function logits(reasoning, presence) {
  const weighed = values(reasoning, presence);
  return reasoning.bias.map((bias, k) => weighed.reduce((sum, value, j) => sum + value * reasoning.weight[k][j], bias));
}

/**
 * Calibrated probabilities.
 * @param {Reasoning} reasoning
 * @param {number[]} presence
 */
export function probabilities(reasoning, presence) {
  return softmax(logits(reasoning, presence).map((value) => value / reasoning.temperature));
}

/** @param {number[]} values */
export function softmax(values) {
  const highest = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - highest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}
