// What a benchmark says: a table of contenders, the ratios that matter, and the machine they hold for.
import { availableParallelism, cpus, totalmem } from "node:os";

/**
 * `wanted`: what the project set out to reach; without it, a ratio is there for information.
 * @type {readonly { of: string, to: string, wanted?: number }[]}
 */
const ratios = [
  { of: "infer-batch", to: "python", wanted: 1 },
  { of: "infer-batch", to: "python-shards" },
  { of: "infer-batch", to: "parquetjs-row", wanted: 50 },
  { of: "infer-batch", to: "parquetjs-group" },
  { of: "infer-batch-small", to: "parquetjs-row" },
  { of: "infer-batch-small", to: "parquetjs-group" },
];

/**
 * @param {readonly import("./contenders.mjs").Contender[]} contenders
 * @param {ReadonlyMap<string, readonly import("./measure.mjs").Measure[]>} measures by contender, one for each timed run
 * @param {{ command: string, runs: number, versions: readonly string[], date: Date }} about
 * @returns {string} Markdown
 */
export function formatReport(contenders, measures, { command, runs, versions, date }) {
  const rates = new Map();
  for (const { id, rows } of contenders) {
    const own = measures.get(id);
    if (own !== undefined) {
      rates.set(id, rows / median(own.map(({ seconds }) => seconds)));
    }
  }
  const timed = contenders.filter(({ id }) => rates.has(id));
  const absent = contenders.filter((contender) => contender.absent !== undefined);
  return [
    "# Benchmark results",
    "",
    `- Written by: \`${command}\`, ${date.toISOString().slice(0, 10)}`,
    `- Machine: ${machine()}`,
    `- Versions: ${versions.join(", ")}`,
    "- Job: 32 FLOAT columns, MLP 32-128-64-1, Parquet to Parquet, all on local disk.",
    `  ${runs === 1 ? "One run" : `Medians of ${runs} runs`} after one to warm up, the contenders in turn; whole processes,`,
    "  from start to exit. Every output was checked.",
    "",
    "| contender | rows | seconds (min..max) | rows/s | ratio to the plain loop | CPU s | peak MiB |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ...timed.map((contender) => row(contender, measures.get(contender.id), rates)),
    "",
    ...ratios
      .filter(({ of, to }) => rates.has(of) && rates.has(to))
      .map((ratio) => ratioLine(ratio, contenders, rates)),
    ...absent.map((contender) => `- absent: ${contender.name} (${contender.absent})`),
    "",
  ].join("\n");
}

function row({ id, name, rows }, own, rates) {
  const seconds = own.map((measure) => measure.seconds);
  const spread = `${fixed(median(seconds))} (${fixed(Math.min(...seconds))}..${fixed(Math.max(...seconds))})`;
  const ratio = rates.has("python") ? fixed(rates.get(id) / rates.get("python")) : "–";
  const cpu = fixed(median(own.map(({ cpuSeconds }) => cpuSeconds)));
  const peak = fixed(median(own.map(({ peakMiB }) => peakMiB)), 0);
  return `| ${[name, grouped(rows), spread, grouped(rates.get(id)), ratio, cpu, peak].join(" | ")} |`;
}

function ratioLine(ratio, contenders, rates) {
  const [own, rival] = [ratio.of, ratio.to].map((id) => {
    const { name, rows } = contenders.find((contender) => contender.id === id);
    return `${name.replaceAll("*", "")} on ${grouped(rows)} rows`;
  });
  const { wanted } = ratio;
  const times = rates.get(ratio.of) / rates.get(ratio.to);
  const verdict =
    wanted === undefined ? "for information" : `wanted: at least ${wanted}; ${times >= wanted ? "reached" : "missed"}`;
  return `- ${own}: **${fixed(times)} times** the rate of ${rival} (${verdict})`;
}

function machine() {
  const [cpu] = cpus();
  const memoryGiB = Math.round(totalmem() / 2 ** 30);
  return `${cpu?.model.trim() ?? "unknown CPU"}, ${availableParallelism()} cores, ${memoryGiB} GiB, ${process.platform} ${process.arch}`;
}

/** undefined when a value is: not measurable here. */
function median(values) {
  if (values.includes(undefined)) {
    return undefined;
  }
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function fixed(value, digits = 2) {
  return value === undefined ? "–" : value.toFixed(digits);
}

function grouped(value) {
  return Math.round(value).toLocaleString("en-US");
}
