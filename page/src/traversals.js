/** What the decoder draws as a number of the global capsule moves: strips that unfold. */
import { element, newId, picture } from "./elements.js";

/** @typedef {import("./types.js").Case} Case */
/** @typedef {import("./types.js").Traversal} Traversal */

/** The section, or null. @param {Case} theCase */
export function traversals(theCase) {
  if (!theCase.traversals.length) return null;
  const id = newId();
  const strips = element(
    "div",
    { id, class: "strips closed" },
    element(
      "p",
      { class: "soft" },
      "One number of the global capsule is set to the values below, and the others keep their proportions. The first " +
        "picture is for the numbers as they are. They show what the numbers mean to the decoder, which draws roughly.",
    ),
    ...theCase.traversals.map(strip),
  );
  const button = element("button", { type: "button", class: "unfold", "aria-expanded": "false", "aria-controls": id });
  const label = () => {
    const closed = strips.classList.contains("closed");
    button.setAttribute("aria-expanded", String(!closed));
    button.textContent = closed ? "Show the pictures" : "Hide the pictures";
  };
  button.addEventListener("click", () => {
    strips.classList.toggle("closed");
    label();
  });
  label();
  const heading = element("h3", {}, "What the decoder draws as a number moves");
  return element("section", { class: "traversals" }, heading, element("p", { class: "control" }, button), strips);
}

/** @param {Traversal} each */
function strip(each) {
  const values = ["as it is", ...each.values.map((value) => value.toFixed(2))];
  const below = element("div", { class: "values", "aria-hidden": "true" }, ...values.map((text) => element("span", {}, text)));
  const caption = element("figcaption", {}, `${each.name}: ${each.value.toFixed(2)}`);
  const pictures = element("div", { class: "scroll" }, picture(each.picture, each.sentence), below);
  return element("figure", {}, caption, pictures);
}
