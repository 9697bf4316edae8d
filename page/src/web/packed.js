/** Files inside the page: gzip, as text in base 85; numbers of four bytes may be packed plane by plane. */

const DIGITS = [..."0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%/()*+-;.=:?@^_,{|}~"];
const VALUES = Object.fromEntries(DIGITS.map((digit, value) => [digit.charCodeAt(0), value]));

/** The bytes that an element of the page holds, in so many planes. @param {string} id @param {number} [planes] */
export async function unpacked(id, planes = 1) {
  const holder = document.getElementById(id);
  if (holder === null) throw new Error(`the page lacks its ${id}; export it again`);
  const bytes = fromBase85((holder.textContent ?? "").trim());
  holder.textContent = ""; // several megabytes that nobody needs again
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const packed = new Uint8Array(await new Response(stream).arrayBuffer()), found = new Uint8Array(packed.length);
  for (let plane = 0, at = 0; plane < planes; plane++)
    for (let i = plane; i < found.length; i += planes) found[i] = packed[at++];
  return found;
}

/** Five digits are four bytes; a shorter end is filled with the last digit. @param {string} text */
function fromBase85(text) {
  const bytes = new Uint8Array(Math.ceil(text.length / 5) * 4), view = new DataView(bytes.buffer);
  for (let i = 0, at = 0; i < text.length; i += 5, at += 4) {
    let value = 0;
    for (let j = i; j < i + 5; j++) value = value * 85 + (j < text.length ? VALUES[text.charCodeAt(j)] : 84);
    view.setUint32(at, value);
  }
  return bytes.subarray(0, bytes.length - ((5 - (text.length % 5)) % 5));
}

/** @param {Uint8Array} bytes */
export function base64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text);
}
