"use strict";
const { reasoning, presences } = JSON.parse(document.getElementById("reasoning").textContent);
const cases = [...document.querySelectorAll(".case")];
const svgNamespace = "http://www.w3.org/2000/svg";

function element(name, attributes) {
  const made = document.createElementNS(svgNamespace, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// The picture of a case is stored once and shown in several places.
const pictures = Object.fromEntries(cases.map(each => [each.dataset.number, each.querySelector(".picture").src]));
for (const copy of document.querySelectorAll("[data-copy]")) copy.src = pictures[copy.dataset.copy];

// Maps, and what belongs to the chosen one.
function choose(article) {
  const radio = article.querySelector(".targets input:checked"), name = radio.dataset.name;
  article.querySelector(".stage .map").src = radio.closest(".target").querySelector(".map").src;
  const caption = article.querySelector(".caption");
  caption.textContent = `Map: ${name}.`;
  if ("empty" in radio.dataset) caption.textContent += " Nothing in the image speaks for it.";
  else if ("unseen" in radio.dataset) caption.textContent += " It does not count as seen: the map shows where the little there is came from.";
  let any = false;
  for (const tree of article.querySelectorAll(".tree")) {
    const shown = tree.dataset.key === radio.value;
    tree.classList.toggle("closed", !shown);
    any ||= shown;
  }
  const without = article.querySelector(".no-tree");
  if (without) without.hidden = any;
  closeNodes(article);
  const slot = article.querySelector(".shown-prototypes");
  const known = [...document.querySelectorAll("#prototypes .prototypes")].find(each => each.dataset.name === name);
  slot.replaceChildren();
  if (known && radio.value !== "diagnosis") {
    const copy = known.cloneNode(true);
    copy.querySelector("h3").textContent = `Training cases that show ${name} most`;
    slot.append(copy);
  }
}

function fade(article) {
  article.querySelector(".stage .map").style.opacity = article.querySelector(".slider input").value / 100;
}

// Trees: each node is a button that opens the region it rests on.
function closeNodes(article) {
  article.querySelector(".box").hidden = true;
  for (const open of article.querySelectorAll("circle[aria-pressed=true]")) open.setAttribute("aria-pressed", "false");
  for (const drawn of article.querySelectorAll(".tree .region")) drawn.remove();
  for (const detail of article.querySelectorAll(".detail")) detail.textContent = "";
}

function openNode(article, svg, node) {
  const wasOpen = node.getAttribute("aria-pressed") === "true";
  closeNodes(article);
  if (wasOpen) return;
  node.setAttribute("aria-pressed", "true");
  const [top, left, bottom, right] = node.dataset.region.split(" ").map(Number), size = Number(article.dataset.size);
  const box = article.querySelector(".box");
  Object.assign(box.style, { top: `${100 * top / size}%`, left: `${100 * left / size}%`, height: `${100 * (bottom - top) / size}%`, width: `${100 * (right - left) / size}%` });
  box.hidden = false;
  const frame = svg.querySelector(".frame"), [x, y, side] = ["x", "y", "width"].map(key => Number(frame.getAttribute(key))), scale = side / size;
  svg.append(element("rect", { class: "region", x: x + left * scale, y: y + top * scale, width: (right - left) * scale, height: (bottom - top) * scale }));
  svg.closest(".tree").querySelector(".detail").textContent = node.getAttribute("aria-label");
}

function prepareTree(article, svg) {
  svg.setAttribute("role", "group");
  const frame = svg.querySelector(".frame");
  const place = Object.fromEntries(["x", "y", "width", "height"].map(key => [key, frame.getAttribute(key)]));
  frame.before(element("image", { ...place, href: pictures[article.dataset.number], preserveAspectRatio: "none" }));
  for (const node of svg.querySelectorAll("circle[data-region]")) {
    const marks = { tabindex: "0", role: "button", "aria-pressed": "false", "aria-label": node.querySelector("title").textContent };
    for (const [key, value] of Object.entries(marks)) node.setAttribute(key, value);
    node.addEventListener("click", () => openNode(article, svg, node));
    node.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      openNode(article, svg, node);
    });
  }
}

// Interventions: the same arithmetic as in ConceptReasoning.
function changed(presence, wanted) {
  const now = [...presence];
  wanted.forEach((to, j) => {
    if (to === "present") reasoning.group.forEach((group, i) => { if (group === reasoning.group[j]) now[i] = reasoning.absent[i]; });
  });
  wanted.forEach((to, j) => { if (to) now[j] = to === "present" ? reasoning.present[j] : reasoning.absent[j]; });
  return now;
}

function softmax(values) {
  const highest = Math.max(...values), powers = values.map(value => Math.exp(value - highest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map(power => power / sum);
}

const signed = value => (value < 0 ? "\u2212" : "+") + Math.abs(value).toFixed(2);
const percent = value => `${(100 * value).toFixed(1)} %`;

function addUp(article) {
  const part = article.querySelector(".reasons");
  if (!part) return;
  const seen = presences[Number(article.dataset.number) - 1], wanted = seen.map(() => "");
  const rows = [...part.querySelectorAll("[data-concept]")];
  for (const row of rows) wanted[Number(row.dataset.concept)] = row.querySelector("select").value;
  const now = changed(seen, wanted);
  const logits = reasoning.bias.map((bias, k) => now.reduce((sum, value, j) => sum + value * reasoning.weight[k][j], bias));
  const chances = softmax(logits.map(value => value / reasoning.temperature));
  const fill = (row, value) => row.querySelectorAll("[data-class]").forEach(cell => { cell.textContent = value(Number(cell.dataset.class)); });
  for (const row of rows) {
    const j = Number(row.dataset.concept);
    row.classList.toggle("changed", now[j] !== seen[j]);
    row.querySelector("[data-presence]").textContent = now[j].toFixed(2);
    fill(row, k => signed(now[j] * reasoning.weight[k][j]));
  }
  fill(part.querySelector("[data-bias]"), k => signed(reasoning.bias[k]));
  fill(part.querySelector("[data-sum]"), k => signed(logits[k]));
  fill(part.querySelector("[data-chance]"), k => percent(chances[k]));
  const best = chances.indexOf(Math.max(...chances)), any = wanted.some(to => to);
  const shown = part.querySelector(".what-if");
  shown.dataset.probabilities = JSON.stringify(chances);
  shown.textContent = any ? `With these settings: ${reasoning.classes[best]}, ${percent(chances[best])}.` : "";
  part.querySelector(".reset").disabled = !any;
}

function setConcept(article, select) {
  const row = select.closest("tr"), group = reasoning.group[Number(row.dataset.concept)];
  if (select.value === "present")  // of an attribute's values only one can be present
    for (const other of article.querySelectorAll("[data-concept]"))
      if (other !== row && reasoning.group[Number(other.dataset.concept)] === group && other.querySelector("select").value === "present")
        other.querySelector("select").value = "";
  addUp(article);
}

for (const article of cases) {
  for (const svg of article.querySelectorAll(".tree svg")) prepareTree(article, svg);
  article.querySelector(".targets").addEventListener("change", () => choose(article));
  article.querySelector(".slider input").addEventListener("input", () => fade(article));
  for (const select of article.querySelectorAll(".reasons select")) select.addEventListener("change", () => setConcept(article, select));
  article.querySelector(".reset")?.addEventListener("click", () => {
    for (const select of article.querySelectorAll(".reasons select")) select.value = "";
    addUp(article);
  });
  article.querySelector(".unfold")?.addEventListener("click", ({ target }) => {
    const closed = article.querySelector(".strips").classList.toggle("closed");
    target.setAttribute("aria-expanded", !closed);
    target.textContent = closed ? "Show the pictures" : "Hide the pictures";
  });
  for (const button of article.querySelectorAll("[data-step]")) button.addEventListener("click", () => step(article, Number(button.dataset.step)));
  choose(article);
  fade(article);
  addUp(article);
}

// The index of a series.
const entries = [...document.querySelectorAll("[data-case]")];
const filters = ["by-diagnosis", "by-truth", "by-abstaining"].map(id => document.getElementById(id));

function open(number, focus) {
  for (const each of cases) each.classList.toggle("closed", each.dataset.number !== number);
  for (const each of entries) each.setAttribute("aria-current", each.dataset.case === number);
  if (focus) {
    const heading = document.getElementById(`name-${number}`);
    heading.focus({ preventScroll: true });
    heading.closest(".case").scrollIntoView();
  }
}

function step(article, by) {
  const left = cases.filter(each => !each.classList.contains("filtered"));
  const next = left[(left.indexOf(article) + by + left.length) % left.length];
  open(next.dataset.number, true);
}

function filter() {
  const [diagnosis, truth, abstaining] = filters;
  const fits = each => (!diagnosis.value || each.dataset.diagnosis === diagnosis.value)
    && (!truth?.value || each.dataset.truth === truth.value) && (!abstaining?.checked || each.dataset.abstain === "yes");
  cases.forEach((each, i) => {
    const out = !fits(each);
    each.classList.toggle("filtered", out);
    entries[i].parentElement.classList.toggle("filtered", out);
  });
  const left = cases.filter(each => !each.classList.contains("filtered"));
  document.getElementById("count").textContent = `${left.length} of ${cases.length} cases`;
  const current = left.find(each => !each.classList.contains("closed")) ?? left[0];
  if (current) open(current.dataset.number, false);
}

if (entries.length) {
  for (const entry of entries) entry.addEventListener("click", () => open(entry.dataset.case, true));
  for (const each of filters) each?.addEventListener("change", filter);
  filter();
}
