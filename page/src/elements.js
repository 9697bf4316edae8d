/** Elements of a page. Texts become text nodes and attributes: nothing in a document is ever read as HTML. */

/** @typedef {Record<string, string | number | boolean | null | undefined>} Attributes */
/** @typedef {Node | string | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";
const PICTURE = /^data:image\/(?:png|jpeg);base64,[A-Za-z0-9+/=]*$/;
let given = 0;

/**
 * An HTML element. An attribute that is null or false is left out, `true` is an empty one.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Attributes} attributes
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} Name
 * @param {Name} name
 * @param {Attributes} attributes
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Name]}
 */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/**
 * @template {Element} Made
 * @param {Made} made
 * @param {Attributes} attributes
 * @param {Child[]} children
 * @returns {Made}
 */
function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    made.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child || child === "") made.append(child);
  return made;
}

/**
 * The address of a picture that a document holds, or null: a PNG or JPEG inside the address, nothing from elsewhere.
 * @param {string | null} address
 */
export function pictureAddress(address) {
  return address !== null && PICTURE.test(address) ? address : null;
}

/**
 * A picture of a document, or nothing where it has none.
 * @param {string | null} address
 * @param {string} alt
 * @param {Attributes} attributes
 */
export function picture(address, alt, attributes = {}) {
  const src = pictureAddress(address);
  return src === null ? null : element("img", { ...attributes, src, alt });
}

/** An id that no other element of the page has, however many views it holds. */
export function newId() {
  given += 1;
  return `parsecaps-${given}`;
}
