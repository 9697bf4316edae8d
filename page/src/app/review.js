/** What a reviewer says of a case: whether the diagnosis is right, which concepts are there, marks and a comment. */
import { element, newId } from "../elements.js";
import { earlierReviews } from "./earlier.js";
import { Marks } from "./marks.js";

/** @typedef {import("../types.js").Case} Case */
/** @typedef {import("../types.js").Concept} Concept */
/** @typedef {{classes: string[]}} ServedModel */

const REVIEWER = "parsecaps-reviewer", UNKNOWN = "";

/**
 * The panel of a case.
 * @param {import("./api.js").Api} api
 * @param {ServedModel} model
 * @param {Case} theCase
 * @param {HTMLElement} stage
 * @param {import("./worklist.js").Origin} origin
 * @param {() => void} onSaved
 */
export function reviewPanel(api, model, theCase, stage, origin, onSaved) {
  return new ReviewPanel(api, model, theCase, stage, origin, onSaved).section;
}

class ReviewPanel {
  /**
   * @param {import("./api.js").Api} api
   * @param {ServedModel} model
   * @param {Case} theCase
   * @param {HTMLElement} stage
   * @param {import("./worklist.js").Origin} origin
   * @param {() => void} onSaved
   */
  constructor(api, model, theCase, stage, origin, onSaved) {
    this.api = api;
    this.case = theCase;
    this.origin = origin;
    this.onSaved = onSaved;
    this.marks = new Marks(stage);
    this.reviewer = element("input", { type: "text", maxlength: 100, required: true, autocomplete: "name" });
    this.reviewer.value = localStorage.getItem(REVIEWER) ?? "";
    const group = newId();
    this.agree = element("input", { type: "radio", name: group, value: "agree", required: true });
    this.disagree = element("input", { type: "radio", name: group, value: "disagree" });
    const others = model.classes.filter((name) => name !== theCase.diagnosis);
    this.label = element(
      "select",
      { "aria-label": "The right class" },
      ...others.map((value) => element("option", { value }, value)),
      element("option", { value: UNKNOWN }, "I do not know"),
    );
    this.label.addEventListener("change", () => { this.disagree.checked = true; });
    this.concepts = theCase.concepts.map((concept) => ({ concept, select: conceptSelect(concept) }));
    this.comment = element("textarea", { rows: 3, maxlength: 5000 });
    this.status = element("p", { role: "status" });
    this.button = element("button", { type: "submit", class: "main" }, "Save the review");
    this.section = this.build();
  }

  build() {
    const form = element(
      "form",
      {},
      element("label", { class: "field" }, "Your name ", this.reviewer),
      this.verdictFields(),
      this.conceptFields(),
      element("fieldset", {}, element("legend", {}, "Mark something on the image"), this.marks.element),
      element("label", { class: "field" }, "Comment ", this.comment),
      element("p", {}, this.button),
      this.status,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save();
    });
    const id = newId();
    return element(
      "section",
      { class: "review control", "aria-labelledby": id },
      element("h3", { id }, "Review"),
      element(
        "p",
        { class: "soft" },
        "What you say is kept on the server, with your name and with the image itself, so that a model can learn from " +
          "it. Of a DICOM only the pixels are kept. Nothing is kept before you save.",
      ),
      earlierReviews(this.api, this.origin),
      form,
    );
  }

  verdictFields() {
    const { diagnosis, abstain } = this.case;
    return element(
      "fieldset",
      {},
      element("legend", {}, "Is the diagnosis right?"),
      element("label", {}, this.agree, ` Agree: it is ${diagnosis}`, abstain && " (the likeliest class)"),
      element("span", { class: "choice" }, element("label", {}, this.disagree, " Disagree: it is "), this.label),
    );
  }

  conceptFields() {
    if (!this.concepts.length) return null;
    const rest = element("button", { type: "button" }, "As seen for the rest");
    rest.addEventListener("click", () => {
      for (const { concept, select } of this.concepts) select.value ||= concept.seen ? "present" : "absent";
    });
    const rows = this.concepts.map(({ concept, select }) => {
      const seen = element("span", { class: "soft" }, ` seen as ${concept.seen ? "present" : "absent"}`);
      return element("label", { class: "judged" }, element("span", {}, concept.name, seen), select);
    });
    return element(
      "fieldset",
      {},
      element("legend", {}, "Which concepts are there?"),
      element("div", { class: "judgements" }, ...rows),
      rest,
    );
  }

  async save() {
    this.button.disabled = true;
    this.status.className = "";
    this.status.textContent = "Saving\u2026";
    try {
      const image = await this.keep();
      await this.api.send("/api/review", { image, frame: this.origin.frame, ...this.said() });
      localStorage.setItem(REVIEWER, this.reviewer.value.trim());
      this.status.textContent = "Saved. You may change it and save again: your last review counts.";
      this.onSaved();
    } catch (error) {
      this.status.className = "bad";
      this.status.textContent = `Not saved: ${error instanceof Error ? error.message : error}.`;
    }
    this.button.disabled = false;
  }

  /** Have the server keep the image; gives its digest. */
  async keep() {
    const { images } = await this.api.sendFiles("/api/review/images", [this.origin.file]);
    const [{ image, error }] = /** @type {{image: string | null, error: string | null}[]} */ (images);
    if (image === null) throw new Error(error ?? "the server does not keep the image");
    return image;
  }

  said() {
    const judged = this.concepts.filter(({ select }) => select.value);
    const agrees = this.agree.checked;
    return {
      reviewer: this.reviewer.value.trim(),
      verdict: agrees ? "agree" : "disagree",
      label: agrees || this.label.value === UNKNOWN ? null : this.label.value,
      concepts: Object.fromEntries(judged.map(({ concept, select }) => [concept.name, select.value === "present"])),
      comment: this.comment.value.trim(),
      marks: this.marks.values(),
    };
  }
}

/** @param {Concept} concept */
function conceptSelect({ name }) {
  const option = (/** @type {string} */ value) => element("option", { value }, value || "not judged");
  return element("select", { "aria-label": `Is ${name} there?` }, ...["", "present", "absent"].map(option));
}
