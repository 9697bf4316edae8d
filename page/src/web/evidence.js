/**
 * The regions of a parse tree, from the evidence that flows through each level: the arithmetic of `explain/evidence.py`.
 *
 * @typedef {object} Level a grid of the tree, the primary capsules first
 * @property {number} width
 * @property {ArrayLike<number> | null} down (n' * n): what part of a capsule's evidence came from each one below it
 * @property {ArrayLike<number>} activity (n): the lengths of its capsules
 *
 * @typedef {object} Region neighbouring capsules of a level, the strongest first, with the evidence that flows from each
 * @property {number} level
 * @property {number[]} capsules
 * @property {number[]} shares
 * @property {number} share
 * @property {Region | null} parent
 */

const CORE = 0.9;

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * Split what lies on a square grid into hills: each place goes with the highest of those around it, up to a top.
 * The tops come first, and the highest hill first.
 * @param {ArrayLike<number>} evidence
 * @param {number} width
 * @returns {number[][]}
 */
export function watershed(evidence, width) {
  const summit = Array.from({ length: width * width }, (_, place) => {
    const row = Math.floor(place / width), column = place % width;
    let best = -1, highest = -Infinity;
    for (let y = Math.max(row - 1, 0); y <= Math.min(row + 1, width - 1); y++) {
      for (let x = Math.max(column - 1, 0); x <= Math.min(column + 1, width - 1); x++) {
        if (evidence[y * width + x] > highest) [best, highest] = [y * width + x, evidence[y * width + x]];
      }
    }
    return best;
  });
  const top = (/** @type {number} */ place) => {
    while (summit[place] !== place) place = summit[place];
    return place;
  };
  const there = summit.map((_, place) => place).filter((place) => evidence[place] > 0);
  there.sort((a, b) => evidence[b] - evidence[a]); // stable
  /** @type {Map<number, number[]>} */
  const found = new Map();
  for (const place of there) {
    const key = top(place), hill = found.get(key);
    if (hill) hill.push(place);
    else found.set(key, [place]);
  }
  return [...found.values()];
}

/**
 * Every region that carries at least `least` of the evidence, parents before children.
 * @param {Level[]} levels
 * @param {ArrayLike<number>} top the shares of the capsules of the highest level
 * @param {number} least
 */
export function allRegions(levels, top, least) {
  /** @type {Region[]} */
  const found = [];
  /** @type {{level: number, evidence: ArrayLike<number>, parent: Region | null}[]} */
  const waiting = [{ level: levels.length - 1, evidence: top, parent: null }];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { level, evidence, parent } = next, { width, down } = levels[level];
    for (const capsules of watershed(evidence, width)) {
      const shares = capsules.map((place) => evidence[place]), share = sum(shares);
      if (share < least) continue;
      const region = { level, capsules, shares, share, parent };
      found.push(region);
      if (down) waiting.push({ level: level - 1, evidence: below(capsules, shares, down, levels[level - 1].width ** 2), parent: region });
    }
  }
  return found;
}

/** @param {number[]} capsules @param {number[]} shares @param {ArrayLike<number>} down @param {number} count */
function below(capsules, shares, down, count) {
  const sums = new Float64Array(count);
  capsules.forEach((capsule, i) => {
    for (let n = 0; n < count; n++) sums[n] += shares[i] * down[capsule * count + n];
  });
  return Float32Array.from(sums);
}

/**
 * At most `most` regions that carry much from end to end: paths to the lowest level, the best first.
 * @param {Region[]} regions
 * @param {number} most
 */
export function choose(regions, most) {
  const paths = regions.filter((each) => each.level === 0).map((leaf) => {
    const path = [leaf];
    for (let up = leaf.parent; up; up = up.parent) path.push(up);
    return path;
  });
  /** @type {Set<Region>} */
  const chosen = new Set();
  while (paths.length) {
    const added = paths.map((path) => path.filter((each) => !chosen.has(each)));
    let best = 0;
    const worth = paths.map((path, i) => path[0].share / added[i].length);
    worth.forEach((value, i) => { if (value > worth[best]) best = i; });
    if (chosen.size + added[best].length <= most) for (const each of added[best]) chosen.add(each);
    paths.splice(best, 1);
  }
  return [...chosen];
}

/** The fewest capsules of a region that carry nine tenths of its share. @param {Region} region */
export function core({ capsules, shares }) {
  let carried = 0, count = 1;
  const whole = sum(shares);
  for (const share of shares) {
    carried += share;
    if (carried < CORE * whole) count++;
  }
  return capsules.slice(0, count);
}
