/** The page of `parsecaps export --to web`: images in, explanations out, all on the visitor's computer. */
import { element } from "../elements.js";
import { mount, VERSION } from "../view.js";
import { caseOf } from "./case.js";
import { decode } from "./decode.js";
import { Network } from "./network.js";
import { dequantise, levels } from "./prepare.js";

/** @typedef {import("./case.js").About} About */
/** @typedef {import("../types.js").Case} Case */

const about = /** @type {About} */ (JSON.parse(find("about-model").textContent ?? ""));
const view = find("view"), status = find("status"), problems = find("problems"), clear = find("clear");
const chooser = /** @type {HTMLInputElement} */ (find("chooser"));

/** @type {Case[]} */
let cases = [];
/** @type {string[]} */
let errors = [];
/** @type {Promise<unknown>} */
let busy = Promise.resolve();

/** @param {string} id */
function find(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** Show what is being done, and let the browser draw it before a long computation. @param {string} words */
async function say(words) {
  status.textContent = words;
  status.classList.add("busy");
  await new Promise((drawn) => setTimeout(drawn, 30));
}

/** @param {string} words */
function rest(words) {
  status.textContent = words;
  status.classList.remove("busy");
}

/** The bytes that the model gets for an image file, and the height and width of the image. @param {Blob} file */
async function prepare(file, preparation = about.preparation) {
  const raw = await decode(new Uint8Array(await file.arrayBuffer()));
  return { levels: levels(preparation, raw), height: raw.height, width: raw.width };
}

/** @param {File} file @returns {Promise<Case>} */
async function explain(file) {
  const network = await started, prepared = await prepare(file);
  return caseOf(about, file.name, prepared.levels, prepared, await network.run(dequantise(prepared.levels)));
}

/** The document of all cases so far. */
function explanation() {
  return { version: VERSION, title: "", model: about.model, cases, prototypes: [], errors };
}

/** Explain some files, one after the other. @param {File[]} files */
async function add(files) {
  const wrong = [], first = cases.length;
  for (const [i, file] of files.entries()) {
    await say(`Looking at ${file.name}${files.length > 1 ? `, ${i + 1} of ${files.length}` : ""}`);
    try {
      cases = [...cases, await explain(file)];
    } catch (error) {
      wrong.push(`${file.name} ${error instanceof Error ? error.message : error}`);
    }
  }
  errors = [...errors, ...wrong];
  show(wrong, cases.length > first ? first : undefined);
}

/** @param {string[]} wrong lines about the files that were just given @param {number} [open] */
function show(wrong, open) {
  problems.replaceChildren(...wrong.map((line) => element("li", {}, line)));
  clear.hidden = !cases.length;
  view.hidden = !cases.length;
  mount(view, explanation(), { open });
  rest("Ready.");
}

/** @param {FileList | null | undefined} files */
function take(files) {
  const given = [...(files ?? [])];
  if (given.length) busy = busy.then(() => add(given)).catch(stop);
}

/** @param {unknown} error */
function stop(error) {
  rest("");
  problems.replaceChildren(element("li", {}, `This page cannot run here: ${error instanceof Error ? error.message : error}`));
}

chooser.addEventListener("change", () => {
  take(chooser.files);
  chooser.value = ""; // so that the same file can be chosen again
});
clear.addEventListener("click", () => {
  cases = [];
  errors = [];
  show([]);
  chooser.focus();
});
document.addEventListener("paste", (event) => take(event.clipboardData?.files));
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault(); // else the browser would open the file in place of this page
    find("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") take(/** @type {DragEvent} */ (event).dataTransfer?.files);
  });
}

const started = Network.start(about.preparation, say);
started.then(() => rest("Ready."), stop);
Object.assign(globalThis, { parsecaps: { started, prepare, explain, explanation } });
