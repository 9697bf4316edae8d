/** The script of a page: shows the document that the page holds, and gives `parsecaps.mount` to those that get one later. */
import { mount } from "./view.js";

export { mount };

const held = document.getElementById("explanation"), root = document.getElementById("view");
if (held && root) mount(root, JSON.parse(held.textContent ?? ""));
