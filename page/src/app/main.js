/** The page of `parsecaps serve`: images in, by drop, choice, paste or example; the view of what the model says out. */
import { certainty } from "../certainty.js";
import { element } from "../elements.js";
import { mount } from "../view.js";
import { Api } from "./api.js";
import { reportText, save } from "./report.js";
import { reviewPanel } from "./review.js";
import { Worklist } from "./worklist.js";

/** @typedef {{classes: string[], weights: string, review: boolean}} ServedModel */
/** @typedef {import("../types.js").Case} Case */

const QUESTION = "/api/explain?pictures=true";

class App {
  constructor() {
    this.view = part("view");
    this.status = part("status");
    this.tokenForm = /** @type {HTMLFormElement} */ (part("token"));
    this.example = /** @type {HTMLButtonElement} */ (part("example"));
    this.report = /** @type {HTMLButtonElement} */ (part("report"));
    this.clear = /** @type {HTMLButtonElement} */ (part("clear"));
    this.api = new Api((wrong) => this.askToken(wrong));
    this.work = new Worklist();
    /** @type {{file: File, truth: string | null}[]} */
    this.waiting = [];
    this.isBusy = false;
    this.hasActed = false;
    this.given = 0;
    this.nextExample = 0;
    /** @type {string[]} */
    this.examples = [];
    /** @type {ServedModel | null} */
    this.model = null;
    this.listen();
  }

  listen() {
    const chooser = /** @type {HTMLInputElement} */ (part("files")), drop = part("drop");
    chooser.addEventListener("change", () => {
      this.take([...(chooser.files ?? [])]);
      chooser.value = "";
    });
    const over = (/** @type {boolean} */ is) => drop.classList.toggle("over", is);
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      over(true);
    });
    document.addEventListener("dragleave", (event) => { if (event.relatedTarget === null) over(false); });
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      over(false);
      this.take([...(event.dataTransfer?.files ?? [])]);
    });
    document.addEventListener("paste", (event) => this.take([...(event.clipboardData?.files ?? [])]));
    for (const kind of ["pointerdown", "keydown"]) this.view.addEventListener(kind, () => { this.hasActed = true; });
    this.example.addEventListener("click", () => this.takeExample());
    this.report.addEventListener("click", () => this.saveReport());
    this.clear.addEventListener("click", () => this.forget());
  }

  async start() {
    try {
      this.model = /** @type {ServedModel} */ (await this.api.get("/api/model"));
      part("reviewing").hidden = !this.model.review;
      part("unkept").hidden = this.model.review;
      this.examples = (await this.api.get("/api/examples")).examples.map((/** @type {{label: string}} */ { label }) => label);
      this.example.hidden = !this.examples.length;
    } catch (error) {
      this.say(words(error), true);
    }
  }

  /** @param {string} text @param {boolean} [bad] */
  say(text, bad = false) {
    this.status.textContent = text;
    this.status.classList.toggle("bad", bad);
  }

  /** @param {File[]} files @param {string | null} [truth] */
  take(files, truth = null) {
    if (!files.length) return;
    if (!this.isBusy) this.given = 0;
    this.given += files.length;
    this.waiting.push(...files.map((file) => ({ file, truth })));
    if (!this.isBusy) this.workOff();
  }

  /** Send what waits, one file after another, and show each answer as it comes. */
  async workOff() {
    this.isBusy = true;
    this.hasActed = false;
    let isFirst = true;
    for (let next = this.waiting.shift(); next !== undefined; next = this.waiting.shift()) {
      const { file, truth } = next, done = this.given - this.waiting.length;
      this.say(this.given === 1 ? `Looking at ${file.name}\u2026` : `Looking at ${file.name}, ${done} of ${this.given}\u2026`);
      try {
        const found = await this.api.sendFiles(QUESTION, [file]);
        this.work.add(file, found, truth);
        this.show(isFirst && found.cases.length ? this.work.cases.indexOf(found.cases[0]) : undefined);
        if (isFirst && found.cases.length) this.reveal();
        isFirst &&= !found.cases.length;
      } catch (error) {
        this.work.errors.push(`${file.name}: ${words(error)}`);
        if (!this.show()) this.say(this.work.errors.at(-1) ?? "", true);
      }
    }
    this.isBusy = false;
    if (this.given > 1 && !this.hasActed) this.show(0);
    if (this.work.last) this.say(this.summary());
  }

  /** Bring the first answer into sight, where it is hidden below, as on a phone. */
  reveal() {
    if (this.view.getBoundingClientRect().top > 0.6 * innerHeight) this.view.scrollIntoView();
  }

  summary() {
    const { cases, errors } = this.work;
    const images = cases.length === 1 ? `1 image: ${spoken(cases[0])}.` : `${cases.length} images, the most uncertain first.`;
    return errors.length ? `${images} ${errors.length} could not be read: see below.` : images;
  }

  /** Draw all cases; false before the first answer. @param {number} [open] */
  show(open) {
    const explanation = this.work.explanation("");
    this.report.hidden = this.clear.hidden = !this.work.cases.length;
    if (explanation === null) return false;
    const panel = this.model?.review ? this.panel.bind(this) : undefined;
    mount(this.view, explanation, { open, panel });
    return true;
  }

  /** @param {Case} theCase @param {HTMLElement} stage */
  panel(theCase, stage) {
    const origin = this.work.origins.get(theCase);
    if (!origin || !this.model) return null;
    return reviewPanel(this.api, this.model, theCase, stage, origin, () => {
      const entry = this.view.querySelector(".index [aria-current=true]");
      if (entry && !entry.querySelector(".reviewed")) entry.lastElementChild?.append(element("b", { class: "good reviewed" }, "reviewed"));
    });
  }

  async takeExample() {
    const number = this.nextExample % this.examples.length;
    this.nextExample += 1;
    try {
      const content = await (await this.api.ask(`/api/examples/${number}`)).blob();
      this.take([new File([content], `example ${number + 1}`)], this.examples[number]);
    } catch (error) {
      this.say(words(error), true);
    }
  }

  async saveReport() {
    const day = new Date().toISOString().slice(0, 10), images = this.work.cases.length;
    const title = `Report of ${images} ${images === 1 ? "image" : "images"}, ${day}, model ${this.model?.weights.slice(7, 19)}`;
    const explanation = this.work.explanation(title);
    if (explanation === null) return;
    try {
      const shell = await (await this.api.ask("/static/app/report.html")).text();
      save(`parsecaps-report-${day}.html`, reportText(shell, explanation));
    } catch (error) {
      this.say(words(error), true);
    }
  }

  /** Start anew: nothing of the images stays on the page. */
  forget() {
    this.waiting = [];
    this.work = new Worklist();
    const empty = this.view.cloneNode();
    this.view.replaceWith(empty);
    this.view = /** @type {HTMLElement} */ (empty);
    for (const kind of ["pointerdown", "keydown"]) this.view.addEventListener(kind, () => { this.hasActed = true; });
    this.report.hidden = this.clear.hidden = true;
    this.say("");
    part("files").focus();
  }

  /** @param {boolean} wrong @returns {Promise<string>} */
  askToken(wrong) {
    const input = /** @type {HTMLInputElement} */ (this.tokenForm.querySelector("input"));
    part("wrong-token").hidden = !wrong;
    this.tokenForm.hidden = false;
    input.value = "";
    input.focus();
    return new Promise((resolve) => {
      this.tokenForm.addEventListener("submit", (event) => {
        event.preventDefault();
        this.tokenForm.hidden = true;
        resolve(input.value.trim());
      }, { once: true });
    });
  }
}

/** @param {string} id */
function part(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** What the model says, for those who hear the page. @param {Case} theCase */
function spoken({ diagnosis, probabilities, abstain, possible }) {
  return abstain ? `the model abstains between ${possible?.join(" and ")}` : `${diagnosis}, ${certainty(probabilities[diagnosis])}`;
}

/** @param {unknown} error */
const words = (error) => (error instanceof Error ? error.message : String(error));

new App().start();
