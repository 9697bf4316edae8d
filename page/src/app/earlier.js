/** What others said of an image before; closed at first, so that it does not sway who has not judged yet. */
import { element } from "../elements.js";

/**
 * @typedef {{frame: number | null, reviewer: string, at: string, verdict: string, label: string | null,
 *   said: {class: string}, concepts: Record<string, boolean>, comment: string, marks: unknown[]}} Given
 */

/**
 * A part of the page that asks for them whenever it is opened.
 * @param {import("./api.js").Api} api
 * @param {import("./worklist.js").Origin} origin
 */
export function earlierReviews(api, origin) {
  const list = element("div", { role: "status" });
  const details = element("details", { class: "earlier" }, element("summary", {}, "Earlier reviews of this image"), list);
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    list.textContent = "Asking\u2026";
    try {
      const { files } = await api.sendFiles("/api/review/earlier", [origin.file]);
      const [{ reviews, error }] = /** @type {{reviews: Given[], error: string | null}[]} */ (files);
      const found = reviews.filter((each) => each.frame === origin.frame);
      list.replaceChildren(found.length ? element("ul", {}, ...found.map(item)) : (error ?? "There are none."));
    } catch (error) {
      list.textContent = error instanceof Error ? error.message : String(error);
    }
  });
  return details;
}

/** @param {Given} given */
function item({ reviewer, at, verdict, label, said, concepts, comment, marks }) {
  const judged = Object.entries(concepts).map(([name, there]) => `${name} ${there ? "present" : "absent"}`);
  const right = verdict === "agree" ? `agrees: ${label}` : `disagrees with ${said.class}: ${label ?? "does not know"}`;
  const drawn = marks.length && `${marks.length} ${marks.length === 1 ? "mark" : "marks"}`;
  const rest = [...judged, drawn].filter(Boolean).join(", ");
  return element(
    "li",
    {},
    element("b", {}, reviewer),
    ` ${right}${rest && `; ${rest}`} `,
    element("time", { class: "soft", datetime: at }, at.slice(0, 16).replace("T", " ")),
    comment && element("p", { class: "soft" }, comment),
  );
}
