// Draws the rooms of src/ and the imports between them: docs/architecture.svg. With --check it fails when that is stale.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

/** Rooms by level: a room imports rooms of lower levels. */
const levels = [
  ["cli"],
  ["job", "serve"],
  ["run", "report"],
  ["flow"],
  ["sources", "formats", "models", "targets"],
  ["stores", "duckdb"],
  ["pure", "checks"],
  ["columns", "base"],
];
const labels = { pure: "plans, job files" };
/** Rooms without input and output inside of others. */
const pure = /^(?:job\/jobfile|run\/(?:plan|series|lifecycle)|flow\/pack|models\/binding)\//;
const roomOf = (name) => (pure.test(name) ? "pure" : name.split("/")[0]);
const [width, height, gapX, gapY] = [118, 40, 34, 44];
const columns = Math.max(...levels.map((rooms) => rooms.length));
const full = columns * (width + gapX) + gapX;

const places = new Map();
for (const [level, rooms] of levels.entries()) {
  const start = (full - rooms.length * (width + gapX) + gapX) / 2;
  for (const [index, room] of rooms.entries()) {
    places.set(room, { x: start + index * (width + gapX), y: 20 + level * (height + gapY), level });
  }
}

/** From a room to another that it imports. */
const imports = new Set();
for (const name of readdirSync("src", { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"))) {
  const from = roomOf(name);
  for (const [, path, other] of readFileSync(join("src", name), "utf8").matchAll(
    /from "(\.[^"]+)"|import\("(\.[^"]+)"\)/g,
  )) {
    const to = roomOf(relative("src", resolve("src", dirname(name), path ?? other ?? "")));
    if (to !== from && places.has(from) && places.has(to)) {
      imports.add(`${from} ${to}`);
    }
  }
}

const lines = [...imports]
  .toSorted((one, other) => (one < other ? -1 : 1))
  .filter((edge) => !/ (?:base|columns|pure)$/.test(edge)) // all import these
  .map((edge) => {
    const [from, to] = edge.split(" ");
    const [a, b] = [places.get(from), places.get(to)];
    const down = b.level >= a.level;
    const [y1, y2] = down ? [a.y + height, b.y] : [a.y, b.y + height];
    const mid = (y1 + y2) / 2;
    const [x1, x2] = [a.x + width / 2, b.x + width / 2];
    return `<path d="M${x1} ${y1} C${x1} ${mid} ${x2} ${mid} ${x2} ${y2}" stroke="${down ? "#8a94a6" : "#c9a227"}" stroke-width="1.2" fill="none" marker-end="url(#tip)"/>`;
  });
const boxes = [...places].map(
  ([room, { x, y }]) =>
    `<g><rect x="${x}" y="${y}" width="${width}" height="${height}" rx="6" fill="#f4f6fa" stroke="#5b6577"/><text x="${x + width / 2}" y="${y + 25}" text-anchor="middle" font-family="system-ui, sans-serif" font-size="15" fill="#1d2430">${labels[room] ?? `${room}/`}</text></g>`,
);
const bottom = 20 + levels.length * (height + gapY);
const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${full} ${bottom}" role="img" aria-label="The rooms of the program, and which imports which">
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="#5b6577"/></marker></defs>
<rect width="100%" height="100%" fill="#ffffff"/>
${[...lines, ...boxes].join("\n")}
<text x="${full / 2}" y="${bottom - 8}" text-anchor="middle" font-family="system-ui, sans-serif" font-size="12" fill="#5b6577">All import columns/, base/, and plans and job files: the pure rooms inside of others.</text>
</svg>
`;
const file = "docs/architecture.svg";
if (process.argv.includes("--check")) {
  if (readFileSync(file, "utf8") !== svg) {
    console.error(`${file} is stale: npm run docs`);
    process.exitCode = 1;
  }
} else {
  writeFileSync(file, svg);
}
