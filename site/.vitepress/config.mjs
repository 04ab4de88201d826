// The site: the pages of the project where they are, with search and a sidebar.
import { copyFileSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";

const project = fileURLToPath(new URL("../..", import.meta.url));
const read = (path) => readFileSync(join(project, path), "utf8");
const titleOf = (path) => /^# (.*)$/m.exec(read(path))[1];

/** As GitHub names the anchor of a heading, so that one link serves both. */
const slugify = (text) =>
  text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");

/** The index of the docs has each page once, by task: the sidebar is made of it. */
function sidebar() {
  const [start, ...parts] = read("docs/README.md").split(/^## /m);
  const itemsOf = (text) => {
    const links = [...text.matchAll(/\]\(([\w./-]+\.md)\)/g)].map(([, path]) => join("docs", path));
    return [...new Set(links)].map((path) => ({ text: titleOf(path), link: `/${path.replace(/README\.md$/, "")}` }));
  };
  const groups = [["Start", start], ...parts.map((text) => [text.slice(0, text.indexOf("\n")), text])];
  return groups.map(([text, part], index) => ({ text, items: itemsOf(part), collapsed: index > 1 }));
}

/** Files that pages link to and that are no pages: they are served as they are. */
const linked = new Set();

function adapt(markdown) {
  for (const rule of ["text", "code_inline"]) {
    const before = markdown.renderer.rules[rule];
    markdown.renderer.rules[rule] = (...given) => before(...given).replaceAll("{{", "&#123;&#123;"); // Vue would compute it
  }
  const isFolder = (path) => statSync(join(project, path), { throwIfNoEntry: false })?.isDirectory() === true;
  markdown.core.ruler.push("files", ({ tokens, env }) => {
    for (const token of tokens.flatMap(({ children }) => children ?? [])) {
      const href = token.type === "link_open" ? token.attrGet("href") : null;
      if (href === null || /^(?:\w+:|#|\/)/.test(href)) {
        continue;
      }
      const [path, anchor] = href.split("#");
      const target = join(dirname(env.relativePath), decodeURI(path));
      if (/README\.md$/.test(path)) {
        token.attrSet("href", `/${target.replace(/README\.md$/, "")}${anchor === undefined ? "" : `#${anchor}`}`);
      } else if (isFolder(target)) {
        token.attrSet("href", `/${target}/`);
      } else if (!path.endsWith(".md")) {
        linked.add(target);
        token.attrSet("href", `/${target}`);
        token.attrSet("target", "_self"); // not a page of the site
      }
    }
  });
}

/** The pages lie outside of this folder, from where they do not find its packages. */
const vueFromHere = {
  name: "vue-from-here",
  enforce: "pre",
  resolveId(id, _importer, { ssr }) {
    if (!/^vue(?:$|\/)/.test(id)) {
      return null;
    }
    return ssr ? { id, external: true } : this.resolve(id, fileURLToPath(import.meta.url), { skipSelf: true });
  },
};

export default defineConfig({
  title: "infer-batch",
  description: "Score a table every night, each row exactly once",
  srcDir: "..",
  srcExclude: [
    "**/node_modules/**",
    "site/**",
    "test/**",
    "fixtures/**",
    "dist/**",
    "vendor/**",
    "bench/data/**",
    "out/**",
  ],
  rewrites: (path) => path.replace(/README\.md$/, "index.md"),
  markdown: { html: false, anchor: { slugify }, config: adapt },
  vite: { plugins: [vueFromHere] },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Quickstart", link: "/docs/quickstart" },
      { text: "Runbook", link: "/docs/runbook" },
      { text: "All pages", link: "/docs/" },
    ],
    sidebar: sidebar(),
  },
  buildEnd({ outDir }) {
    for (const path of linked) {
      mkdirSync(join(outDir, dirname(path)), { recursive: true });
      copyFileSync(join(project, path), join(outDir, path));
    }
  },
});
