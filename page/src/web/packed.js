/** Files inside the page: gzip, as text in base64. */

/** The bytes that an element of the page holds. @param {string} id */
export async function unpacked(id) {
  const holder = document.getElementById(id);
  if (holder === null) throw new Error(`the page lacks its ${id}; export it again`);
  const text = atob((holder.textContent ?? "").trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  holder.textContent = ""; // several megabytes that nobody needs again
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {Uint8Array} bytes */
export function base64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text);
}
