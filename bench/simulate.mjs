// Simulates nights of seven shapes of job, and prints how often the default checks hold a good one, and whether they see
// planted faults: node bench/simulate.mjs [--seeds 300] [--first 2001] [--shape NAME] [--json] [--why]
import { parseArgs } from "node:util";
import { defaultLimits } from "#src/checks/check.js";
import { earlierThan, judge } from "#src/checks/checks.js";
import { faults, runOf } from "./simulation/runs.mjs";
import { shapes, yearOf } from "./simulation/shapes.mjs";

const { values: options } = parseArgs({
  options: {
    seeds: { type: "string", default: "300" },
    first: { type: "string", default: "2001" },
    shape: { type: "string", multiple: true, default: Object.keys(shapes) },
    json: { type: "boolean", default: false },
    why: { type: "boolean", default: false },
  },
});

/** Nights that a run of the baseline may lie back. */
const remembered = 63;
/** Faults are planted when four weeks are there to compare with. */
const firstFault = 60;

const levelOf = ({ results }) =>
  results.some(({ level }) => level === "hold")
    ? "hold"
    : results.some(({ level }) => level === "warn")
      ? "warn"
      : "pass";

const judgeOf = (run, baseline) => judge({ run, earlier: earlierThan(run.date, baseline), limits: defaultLimits });

function simulate(shape, seed, tell) {
  const { nights, random } = yearOf(shape, seed);
  const plantedAt = new Map(Object.keys(faults).map((name) => [name, usualNight(nights, random)]));
  const found = { holds: 0, warnings: 0, faults: {} };
  let baseline = [];
  for (const [index, night] of nights.entries()) {
    for (const [name, { fault, before, isMild = false }] of Object.entries(faults)) {
      if (plantedAt.get(name) === index) {
        const drawn = runOf(random, night, index, fault);
        const run = before === undefined ? drawn : before(drawn, baseline.at(-1));
        const level = levelOf(judgeOf(run, baseline));
        found.faults[name] = level;
        if (level !== "hold" && !(isMild && level === "warn")) {
          tell(`seed ${seed}, ${night.date}, ${name}: ${level}`);
        }
      }
    }
    const run = runOf(random, night, index);
    const verdict = judgeOf(run, baseline);
    const level = levelOf(verdict);
    found.holds += level === "hold" ? 1 : 0;
    found.warnings += level === "warn" ? 1 : 0;
    for (const { check, column, level: at, measured, limit } of verdict.results.filter((one) => one.level !== "pass")) {
      tell(
        `seed ${seed}, ${night.date}: ${at} ${check} ${column ?? ""} ${Number(measured).toFixed(3)}, limit ${Number(limit).toFixed(3)}`,
      );
    }
    // A night that is held is looked at and approved by a person.
    const approved = level === "hold" ? { isApproved: true } : {};
    baseline = [...baseline, { ...run, ...approved }].slice(-remembered);
  }
  return found;
}

function usualNight(nights, random) {
  for (;;) {
    const index = firstFault + Math.floor(random.next() * (nights.length - firstFault));
    if (nights[index].isUsual) {
      return index;
    }
  }
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function report(shape) {
  const seeds = Array.from({ length: Number(options.seeds) }, (_, index) => Number(options.first) + index);
  const why = new Map();
  const tell = (line) => {
    const kind = line.replace(/^seed \d+, [\d-]+[,:] /, "").replace(/ -?[\d.]+(, limit.*)?$/, "");
    why.set(kind, { count: (why.get(kind)?.count ?? 0) + 1, example: line });
  };
  const years = seeds.map((seed) => simulate(shape, seed, tell));
  const holds = years.map((year) => year.holds).toSorted((one, other) => one - other);
  const seen = Object.fromEntries(
    Object.keys(faults).map((name) => {
      const levels = years.map((year) => year.faults[name]);
      const count = (wanted) => levels.filter((level) => level === wanted).length;
      return [name, { held: count("hold"), warned: count("warn"), missed: count("pass") }];
    }),
  );
  return {
    shape,
    years: years.length,
    holds: { mean: mean(holds), largest: holds.at(-1), withinFour: holds.filter((count) => count <= 4).length },
    warnings: mean(years.map((year) => year.warnings)),
    faults: seen,
    why: Object.fromEntries(why),
  };
}

const reports = options.shape.map(report);
if (options.json) {
  console.log(JSON.stringify(reports));
} else {
  const head = [
    "shape",
    "false holds in a year: mean",
    "most",
    "years with 4 at most",
    "nights that warn",
    ...Object.keys(faults),
  ];
  console.log(`| ${head.join(" | ")} |\n|${" --- |".repeat(head.length)}`);
  for (const { shape, years, holds, warnings, faults: seen } of reports) {
    const cells = Object.values(seen).map(({ held, warned, missed }) => `${held}/${warned}/${missed}`);
    const line = [
      shape,
      holds.mean.toFixed(2),
      holds.largest,
      `${holds.withinFour} of ${years}`,
      warnings.toFixed(1),
      ...cells,
    ];
    console.log(`| ${line.join(" | ")} |`);
  }
  console.log("\nFaults: years in which each was held / warned of / missed.");
}
if (options.why) {
  for (const { shape, why } of reports) {
    for (const [kind, { count, example }] of Object.entries(why)) {
      console.error(`${shape}: ${count} × ${kind} (${example})`);
    }
  }
}
