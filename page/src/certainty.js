/**
 * How certain a diagnosis is, in words and a number. The words and their limits are those of the IPCC's guidance note on
 * uncertainty (Mastrandrea et al. 2010); its stronger ones ("virtually certain") are left out, for a temperature that was
 * fitted on some validation patients cannot promise them.
 */

/** From which probability on a word is used. @type {[number, string][]} */
const WORDS = [[0.9, "very likely"], [0.66, "likely"], [0.5, "more likely than not"]];

/** The word for the probability of the likeliest class. @param {number} probability */
export function certaintyWord(probability) {
  return WORDS.find(([from]) => probability >= from)?.[1] ?? "uncertain, though the likeliest";
}

/** A word and a number, as in "very likely (97 %)". @param {number} probability */
export function certainty(probability) {
  const number = probability > 0.99 ? "over 99" : (100 * probability).toFixed(0);
  return `${certaintyWord(probability)} (${number} %)`;
}

/**
 * How uncertain a case is: one that the model abstains on comes before any other, then the lower the probability of the
 * diagnosis the more.
 * @param {import("./types.js").Case} theCase
 */
export function uncertainty(theCase) {
  return (theCase.abstain ? 1 : 0) + 1 - theCase.probabilities[theCase.diagnosis];
}
