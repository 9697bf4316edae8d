/** Files inside the page: gzip, as text in base64. */

/** The bytes that an element of the page holds. @param {string} id */
export async function unpacked(id) {
  const holder = document.getElementById(id);
  if (holder === null) throw new Error(`the page lacks its ${id}; export it again`);
  const bytes = fromBase64((holder.textContent ?? "").trim());
  holder.textContent = ""; // several megabytes that nobody needs again
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
function fromBase64(text) {
  const fast = /** @type {any} */ (Uint8Array).fromBase64; // in browsers from 2025 on
  if (fast) return fast.call(Uint8Array, text);
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/** @param {Uint8Array} bytes */
export function base64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text);
}
