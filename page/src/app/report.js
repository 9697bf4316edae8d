/** The report: the document of the page in the page of `parsecaps explain`, one file that needs nothing but itself. */

const PLACE = "\"the document goes here\"";

/**
 * The text of the report.
 * @param {string} shell the page, with a place for the document
 * @param {import("../types.js").ExplanationDocument} explanation
 */
export function reportText(shell, explanation) {
  const text = JSON.stringify(explanation).replaceAll("<", "\\u003c").replaceAll(">", "\\u003e").replaceAll("&", "\\u0026");
  const [before, after] = shell.split(PLACE);
  return `${before}${text}${after}`;
}

/** Let the browser save a text as a file. @param {string} name @param {string} text */
export function save(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/html" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
