// Checks that every address in the built pages leads to a file of the site, and every anchor to a heading.
import { existsSync, readFileSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const site = fileURLToPath(new URL(".vitepress/dist", import.meta.url));
const pages = readdirSync(site, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".html"));

const fileOf = (path) => (statSync(path, { throwIfNoEntry: false })?.isDirectory() ? join(path, "index.html") : path);
const anchors = new Map();
function anchorsOf(file) {
  const known =
    anchors.get(file) ?? new Set([...readFileSync(file, "utf8").matchAll(/ id="([^"]*)"/g)].map(([, id]) => id));
  anchors.set(file, known);
  return known;
}

const broken = [];
let count = 0;
for (const page of pages.filter((path) => path !== "404.html")) {
  const text = readFileSync(join(site, page), "utf8");
  for (const [, address] of text.matchAll(/ (?:href|src)="([^"]*)"/g)) {
    if (/^(?:\w+:|\/\/)/.test(address) || address === "") {
      continue;
    }
    count += 1;
    const [path, anchor] = address.replaceAll("&amp;", "&").split("#").map(decodeURIComponent);
    const file = fileOf(
      path === "" ? join(site, page) : join(site, path.startsWith("/") ? path : join(dirname(page), path)),
    );
    if (!existsSync(file) || (anchor !== undefined && anchor !== "" && !anchorsOf(file).has(anchor))) {
      broken.push(`${page}: ${address}`);
    }
  }
}
if (broken.length > 0 || count < 1000) {
  console.error([`${broken.length} of ${count} links lead nowhere`, ...new Set(broken)].join("\n"));
  process.exitCode = 1;
} else {
  console.log(`${count} links of ${pages.length} pages lead somewhere`);
}
