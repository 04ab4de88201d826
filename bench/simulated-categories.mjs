// Simulates a text feature of jobs with few rows, and prints on how many nights of a year the check `unseen_value` warns
// although no category is new, and how often it misses one that is; in brackets with the limits of a feature whose values
// do not recur: node bench/simulated-categories.mjs [--nights 4000]
import { parseArgs } from "node:util";
import { hideRareValues } from "#src/checks/profiles/rare-values.js";
import { checkUnseen } from "#src/checks/verdicts/value-checks.js";
import { comparedRuns } from "#src/checks/verdicts/run-profile.js";
import { drawTexts, randomOf } from "./simulation/draws.mjs";

const { values: options } = parseArgs({ options: { nights: { type: "string", default: "4000" } } });

const sharesOf = (count, weight) => {
  const weights = Array.from({ length: count }, (_, index) => weight(index + 1));
  const sum = weights.reduce((total, one) => total + one, 0);
  return Object.fromEntries(weights.map((one, index) => [`value ${index}`, one / sum]));
};

/** Shares of the values, and how many rows of a night belong together, such as those of a customer. */
const columns = {
  "6 values of 5 to 40 %": { shares: { AT: 0.1, CH: 0.12, DE: 0.4, ES: 0.13, FR: 0.2, IT: 0.05 } },
  "30 values, as many rows each": { shares: sharesOf(30, () => 1) },
  "50 values, the n-th has 1/n of the rows of the first": { shares: sharesOf(50, (rank) => 1 / rank) },
  "250 values, the n-th has 1/n": { shares: sharesOf(250, (rank) => 1 / rank) },
  "60 values, each with 0.9 of the rows of the one before": { shares: sharesOf(60, (rank) => 0.9 ** rank) },
  "50 values, the n-th has 1/n, in pairs of rows": { shares: sharesOf(50, (rank) => 1 / rank), together: 2 },
};
const rowsOfNights = [60, 120, 200, 300, 1000];
/** Standard deviation of the logarithm of a night's rows. */
const variation = 0.1;
const newShares = [0.04, 0.08];
/** The limits of a feature whose values do not recur. */
const others = { rows: 5, share: 0.02 };

function nightOf(random, rows, { shares, together = 1 }) {
  const groups = Math.max(1, Math.round((rows * Math.exp(variation * random.normal())) / together));
  const drawn = drawTexts(random, groups, shares);
  const counts = new Map([...drawn.values.counts].map(([name, count]) => [name, count * together]));
  const profile = { ...drawn, rows: groups * together, values: { kind: "few", counts } };
  return { profile: hideRareValues(new Map([["country", profile]])).get("country") };
}

const withNew = (shares, share) => ({
  ...Object.fromEntries(Object.entries(shares).map(([name, one]) => [name, one * (1 - share)])),
  new: share,
});

/** Shares of the nights that warn: now, and with the limits of other features. */
function warnings(column, rows, shares) {
  const random = randomOf(1);
  let earlier = Array.from({ length: comparedRuns }, () => nightOf(random, rows, column));
  const found = [0, 0];
  for (let night = 0; night < Number(options.nights); night += 1) {
    const now = nightOf(random, rows, { ...column, shares }).profile;
    const results = checkUnseen({ column: "country", now, earlier }, false);
    const isOther = ({ measured, numbers }) => numbers.rows_of_value >= others.rows && measured > others.share;
    found[0] += results.length > 0 ? 1 : 0;
    found[1] += results.some(isOther) ? 1 : 0;
    earlier = [...earlier.slice(1), nightOf(random, rows, column)];
  }
  return found.map((count) => count / Number(options.nights));
}

const cell = ([now, other], digits) => `${now.toFixed(digits)} (${other.toFixed(digits)})`;

const heads = newShares.map((share) => `missed of ${100 * share} %`);
console.log(`| values | rows | nights that warn in a year | ${heads.join(" | ")} |\n| --- | --- | --- | --- | --- |`);
for (const [name, column] of Object.entries(columns)) {
  for (const rows of rowsOfNights) {
    const year = warnings(column, rows, column.shares).map((share) => share * 365);
    const missed = newShares.map((share) =>
      warnings(column, rows, withNew(column.shares, share)).map((found) => (1 - found) * 100),
    );
    console.log(`| ${name} | ${rows} | ${cell(year, 1)} | ${missed.map((of) => `${cell(of, 2)} %`).join(" | ")} |`);
  }
}
