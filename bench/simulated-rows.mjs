// Simulates the rows of a year's nights, and prints for limits of the check `rows` how often a good night is below it, and
// how often half a table is not: node bench/simulated-rows.mjs [--seeds 100] [--first 7001]
import { parseArgs } from "node:util";
import { checkRows } from "#src/checks/verdicts/row-checks.js";
import { comparedRuns, defaultChecks } from "#src/checks/verdicts/run-profile.js";
import { shapes, yearOf } from "./simulation/shapes.mjs";

const { values: options } = parseArgs({
  options: { seeds: { type: "string", default: "100" }, first: { type: "string", default: "7001" } },
});
const limits = [0.6, 0.65, 0.7, 0.75, 0.8];
/** Standard deviations of the logarithm of a night's rows. */
const variations = [0.05, 0.07, 0.1, 0.12, 0.15];
/** Nights that a run of the baseline may lie back. */
const remembered = 28;

const isLow = (night, baseline, min) => {
  const [result] = checkRows(night, baseline, { rows: { ...defaultChecks.rows, min } });
  return result.level === "hold" && night.rows < result.numbers.least;
};

/** Nights held although nothing is wrong, and half tables that are not held, of one year. */
function yearAt(shape, seed, { min, variation }) {
  const { nights } = yearOf(shape, seed, { variation });
  const found = { held: 0, missed: 0, halves: 0 };
  let baseline = [];
  for (const { date, rows, isUsual } of nights) {
    if (baseline.length >= comparedRuns && isLow({ date, rows }, baseline, min)) {
      found.held += 1; // published by hand, and not compared with
      continue;
    }
    if (baseline.length === remembered && isUsual) {
      found.halves += 1;
      found.missed += isLow({ date, rows: Math.round(rows / 2) }, baseline, min) ? 0 : 1;
    }
    baseline = [...baseline, { date, rows }].slice(-remembered);
  }
  return found;
}

const sum = (years, name) => years.reduce((total, year) => total + year[name], 0);

function cellOf(names, setting) {
  const seeds = Array.from({ length: Number(options.seeds) }, (_, index) => Number(options.first) + index);
  const years = names.flatMap((name) => seeds.map((seed) => yearAt(name, seed, setting)));
  const held = (sum(years, "held") / years.length).toFixed(2);
  const most = Math.max(...years.map((year) => year.held));
  const missed = ((100 * sum(years, "missed")) / sum(years, "halves")).toFixed(2);
  return `${held} (${most}), ${missed} %`;
}

const others = Object.keys(shapes).filter((name) => name !== "growth");
for (const { title, names } of [
  { title: "growth", names: ["growth"] },
  { title: "the other shapes", names: others },
]) {
  console.log(`\n| ${title}: rows vary by | ${limits.map((min) => `${100 * min} %`).join(" | ")} |`);
  console.log(`|${" --- |".repeat(limits.length + 1)}`);
  for (const variation of variations) {
    const cells = limits.map((min) => cellOf(names, { min, variation }));
    console.log(`| ${Math.round(100 * variation)} % | ${cells.join(" | ")} |`);
  }
}
