/** The images that were sent, explained one after another, the most uncertain first. */
import { uncertainty } from "../certainty.js";

/** @typedef {import("../types.js").Case} Case */
/** @typedef {import("../types.js").ExplanationDocument} ExplanationDocument */
/** @typedef {{file: File, frame: number | null}} Origin where a case is from */

export class Worklist {
  constructor() {
    /** @type {Case[]} */
    this.cases = [];
    /** @type {Map<Case, Origin>} */
    this.origins = new Map();
    /** @type {string[]} */
    this.errors = [];
    /** @type {ExplanationDocument | null} */
    this.last = null;
  }

  /**
   * Take what the server says of a file.
   * @param {File} file
   * @param {ExplanationDocument} found
   * @param {string | null} truth its class, where that is known
   */
  add(file, found, truth) {
    for (const theCase of found.cases) {
      theCase.truth = truth;
      const frame = theCase.name === file.name ? null : Number(theCase.name.slice(theCase.name.lastIndexOf("#") + 1));
      this.origins.set(theCase, { file, frame });
      this.cases.push(theCase);
    }
    this.errors.push(...found.errors);
    if (found.cases.length || this.last === null) this.last = found;
    this.cases.sort((a, b) => uncertainty(b) - uncertainty(a));
  }

  /** The document of all of them, null before the first answer. @param {string} title */
  explanation(title) {
    if (this.last === null) return null;
    const { version, model, prototypes } = this.last;
    return { version, title, model, cases: [...this.cases], prototypes, errors: [...this.errors] };
  }
}
