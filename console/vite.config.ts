import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const OUT = "../control-api/underpass_control/console";

/** Puts the first page's style sheet into the page itself, which saves a request before it shows. */
function styleInPage(): Plugin {
  return {
    name: "style-in-page",
    enforce: "post",
    apply: "build",
    generateBundle(_options, bundle) {
      const page = bundle["index.html"];
      if (page?.type !== "asset") throw new Error("there is no index.html");
      page.source = String(page.source).replace(
        /<link rel="stylesheet"[^>]*href="\.\/([^"]+)"[^>]*>/g,
        (_link, name: string) => {
          const sheet = bundle[name];
          if (sheet?.type !== "asset") throw new Error(`there is no ${name}`);
          delete bundle[name];
          return `<style>${String(sheet.source).trim()}</style>`;
        },
      );
    },
  };
}

/** Writes compressed copies beside every file: the service does not compress while it serves. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      for (const folder of [OUT, join(OUT, "assets")]) {
        for (const name of readdirSync(folder)) {
          if (!/\.(html|js|mjs|css|svg)$/.test(name)) continue;
          const path = join(folder, name);
          const content = readFileSync(path);
          const quality = { [constants.BROTLI_PARAM_QUALITY]: 11 };
          writeFileSync(`${path}.br`, brotliCompressSync(content, { params: quality }));
          writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
        }
      }
    },
  };
}

export default defineConfig({
  // Relative: a reverse proxy may put the service below another path.
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    // The build carries the licences of its dependencies.
    license: { fileName: "licenses.md" },
    // The list of what each part needs would not fit TCP's initial window; small parts are loaded
    // ahead of their use anyway.
    modulePreload: false,
    rolldownOptions: { output: { chunkFileNames: "assets/[name]-[hash:6].js" } },
  },
  plugins: [styleInPage(), compressed()],
  server: { proxy: { "/v1": "http://127.0.0.1:8470" } },
});
