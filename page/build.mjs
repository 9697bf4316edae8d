// Bundles the sources into the files that the Python package ships: `npm run build`, or to another folder with
// `node build.mjs FOLDER`, for the test that compares what is checked in with what the sources give.
import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../src/parsecaps"));

/** What is bundled, and its place in the package. */
const bundles = [
  { entry: "src/main.js", product: "report/templates/page.js", format: "iife", globalName: "parsecaps" },
  { entry: "src/app/main.js", product: "serve/static/app.js", format: "iife" },
  { entry: "src/web/main.js", product: "export/web/page.js", format: "esm" },
];

for (const { entry, product, format, globalName } of bundles) {
  await build({
    absWorkingDir: here,
    entryPoints: [entry],
    outfile: join(target, product),
    bundle: true,
    minify: true,
    format,
    globalName,
    target: "es2022",
    charset: "ascii",
    legalComments: "none",
  });
}

// ONNX Runtime itself, packed as the exported page holds it.
const runtime = readFileSync(join(here, "node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm"));
writeFileSync(join(target, "export/web/runtime.wasm.gz"), gzipSync(runtime, { level: 9 }));
