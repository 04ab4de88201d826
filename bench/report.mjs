// What a benchmark says: for each job a table of contenders, the ratios that matter, and the machine they hold for.
import { availableParallelism, cpus, totalmem } from "node:os";
import { plainLoop } from "./jobs.mjs";

/**
 * @param {readonly import("./jobs.mjs").Job[]} jobs
 * @param {readonly import("./contenders.mjs").Contender[]} contenders
 * @param {ReadonlyMap<import("./contenders.mjs").Contender, readonly import("./measure.mjs").Measure[]>} measures one
 * for each timed run
 * @param {{ command: string, runs: number, versions: readonly string[], date: Date }} about
 * @returns {string} Markdown
 */
export function formatReport(jobs, contenders, measures, { command, runs, versions, date }) {
  return [
    "# Benchmark results",
    "",
    `- Written by: \`${command}\`, ${date.toISOString().slice(0, 10)}`,
    `- Machine: ${machine()}`,
    `- Versions: ${versions.join(", ")}`,
    `- ${runs === 1 ? "One run" : `Medians of ${runs} runs`} after one to warm up, the contenders in turn; whole processes,`,
    "  from start to exit; Parquet to Parquet, all on local disk. Every output was checked.",
    "",
    ...jobs.flatMap((job) =>
      section(
        job,
        contenders.filter((contender) => contender.job === job.id),
        measures,
      ),
    ),
  ].join("\n");
}

/** A job's table and ratios. */
function section({ id, what, ratios }, contenders, measures) {
  const timed = contenders.filter((contender) => measures.has(contender));
  const rates = new Map(
    timed.map((contender) => {
      const seconds = measures.get(contender).map((measure) => measure.seconds);
      return [contender.id, contender.rows / median(seconds)];
    }),
  );
  return [
    `## ${id}: ${what}`,
    "",
    "| contender | rows | seconds (min..max) | rows/s | ratio to the plain loop | CPU s | peak MiB |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ...timed.map((contender) => row(contender, measures.get(contender), rates)),
    "",
    ...ratios.filter(({ of, to }) => rates.has(of) && rates.has(to)).map((ratio) => ratioLine(ratio, timed, rates)),
    ...contenders
      .filter(({ absent }) => absent !== undefined)
      .map(({ name, absent }) => `- absent: ${name} (${absent})`),
    "",
  ];
}

function row({ id, name, rows }, own, rates) {
  const seconds = own.map((measure) => measure.seconds);
  const spread = `${fixed(median(seconds))} (${fixed(Math.min(...seconds))}..${fixed(Math.max(...seconds))})`;
  const ratio = rates.has(plainLoop) ? fixed(rates.get(id) / rates.get(plainLoop)) : "–";
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

export function machine() {
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
