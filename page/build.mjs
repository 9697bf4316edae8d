// Bundles the sources into the files that the Python package ships: `npm run build`, or to another folder with
// `node build.mjs FOLDER`, for the test that compares what is checked in with what the sources give.
import { build } from "esbuild";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../src/parsecaps"));

/** What is bundled, and its place in the package. */
const bundles = [
  { entry: "src/main.js", product: "report/templates/page.js", globalName: "parsecaps" },
  { entry: "src/app/main.js", product: "serve/static/app.js" },
];

for (const { entry, product, globalName } of bundles) {
  await build({
    absWorkingDir: here,
    entryPoints: [entry],
    outfile: join(target, product),
    bundle: true,
    minify: true,
    format: "iife",
    globalName,
    target: "es2022",
    charset: "ascii",
    legalComments: "none",
  });
}
