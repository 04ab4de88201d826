// What a benchmark says: for each job a table of contenders with the ratios that matter, and the machine they hold for.
import { availableParallelism, cpus, totalmem } from "node:os";
import { median } from "./measure.mjs";
import { formatPlot } from "./plot.mjs";

const ownByDefault = "infer-batch";

/**
 * @param {readonly import("./jobs.mjs").Job[]} jobs
 * @param {readonly import("./contenders.mjs").Contender[]} contenders
 * @param {ReadonlyMap<import("./contenders.mjs").Contender, readonly import("./measure.mjs").Measure[]>} measures one
 * for each timed run
 * @param {{ command: string, runs: number, versions: readonly string[], date: Date, plot?: string }} about plot: the
 * name of the picture in the report's folder
 * @returns {string} Markdown
 */
export function formatReport(jobs, contenders, measures, { command, runs, versions, date, plot }) {
  const sections = jobs.map((job) =>
    compare(
      job,
      contenders.filter((contender) => contender.job === job.id),
      measures,
    ),
  );
  return [
    "# Benchmark results",
    "",
    `- Written by: \`${command}\`, ${date.toISOString().slice(0, 10)}`,
    `- Machine: ${machine()}`,
    `- Versions: ${versions.join(", ")}`,
    `- ${runs === 1 ? "One run" : `Medians of ${runs} runs`} after one to warm up, the contenders in turn; whole processes,`,
    "  from start to exit; shards and Parquet output on local disk. Every output was checked. Peak memory of several",
    "  processes is a sum: pages that they share count for each.",
    `- Wanted ratios: ${tally(sections)}`,
    "",
    ...(plot === undefined ? [] : [`![Rows a second of each contender of mlp](${plot})`, ""]),
    ...sections.flatMap((section) => formatSection(section)),
  ].join("\n");
}

/**
 * The rates of a job's contenders as a picture; floors do a part of the work only, and are left out.
 * @param {import("./jobs.mjs").Job} job
 * @param {readonly import("./contenders.mjs").Contender[]} contenders of all jobs
 * @returns {string} an SVG document
 */
export function formatRates(job, contenders, measures, { runs }) {
  const { timed, own, rates } = compare(
    job,
    contenders.filter((contender) => contender.job === job.id && contender.output !== undefined),
    measures,
  );
  const most = timed.find(({ id }) => id === own).rows;
  const bars = timed
    .filter(({ id }) => id === own || !isOwn(id, own)) // its run over fewer rows is there for a ratio
    .map(({ id, name, rows }) => ({
      name: `${plain(name)}${rows === most ? "" : " *"}`,
      rate: rates.get(id),
      own: id === own,
    }));
  const fewer = new Set(timed.map(({ rows }) => rows).filter((rows) => rows < most));
  return formatPlot({
    title: `Rows a second: ${job.what}, Parquet to Parquet`,
    subtitle: `${grouped(most)} rows${[...fewer].map((rows) => `, * ${grouped(rows)}`).join("")}; whole processes, medians of ${runs}; ${machine()}`,
    bars,
  });
}

/** infer-batch-small is infer-batch, too. */
function isOwn(id, own) {
  return id === own || id === `${own}-small`;
}

/** Without Markdown, and without the batch size. */
function plain(name) {
  return name.replaceAll(/[*`]/g, "").replace(/, batch \d+$/, "");
}

/** A job's contenders with their rates, and the ratios of those that took part. */
function compare(job, contenders, measures) {
  const timed = contenders.filter((contender) => measures.has(contender));
  const rates = new Map(
    timed.map((contender) => {
      const seconds = measures.get(contender).map((measure) => measure.seconds);
      return [contender.id, contender.rows / median(seconds)];
    }),
  );
  const own = job.own ?? ownByDefault;
  const ratios = job.ratios
    .map(({ of = own, to, wanted, target }) => ({ of, to, wanted, target, times: rates.get(of) / rates.get(to) }))
    .filter(({ times }) => !Number.isNaN(times));
  return { job, own, contenders, timed, measures, rates, ratios };
}

function tally(sections) {
  let reached = 0;
  const missed = [];
  for (const { job, ratios } of sections) {
    for (const { to, wanted, times } of ratios) {
      if (times >= wanted) {
        reached += 1;
      } else if (wanted !== undefined) {
        missed.push(`${job.id} to ${to} ${fixed(times)} of ${wanted}`);
      }
    }
  }
  const names = missed.length === 0 ? "" : `; missed: ${missed.join(", ")}`;
  return `${reached} of ${reached + missed.length} reached${names}`;
}

/** A job's table, then the ratios that are not to its own contender, and who is absent. */
function formatSection({ job, own, contenders, timed, measures, rates, ratios }) {
  const notes = [
    ...ratios.filter(({ of }) => of !== own).map((ratio) => ratioLine(ratio, timed)),
    ...contenders
      .filter(({ absent }) => absent !== undefined)
      .map(({ name, absent }) => `- absent: ${name} (${absent})`),
  ];
  const ownName = timed.find(({ id }) => id === own)?.name.replaceAll("*", "") ?? own;
  return [
    `## ${job.id}: ${job.what}`,
    "",
    `| contender | rows | seconds (min..max) | rows/s | ${ownName} to it | wanted | CPU s | peak MiB |`,
    "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |",
    ...timed.map((contender) => {
      const ratio = ratios.find(({ of, to }) => of === own && to === contender.id);
      return row(contender, measures.get(contender), rates, { own, ratio });
    }),
    "",
    ...notes,
    ...(notes.length === 0 ? [] : [""]),
  ];
}

function row({ id, name, rows }, taken, rates, { own, ratio }) {
  const seconds = taken.map((measure) => measure.seconds);
  const spread = `${fixed(median(seconds))} (${fixed(Math.min(...seconds))}..${fixed(Math.max(...seconds))})`;
  const times = isOwn(id, own) || !rates.has(own) ? "" : fixed(rates.get(own) / rates.get(id));
  const cpu = fixed(median(taken.map(({ cpuSeconds }) => cpuSeconds)));
  const peak = fixed(median(taken.map(({ peakMiB }) => peakMiB)), 0);
  const by = taken.at(-1).by;
  const shown = by === undefined ? name : `${name} (${by})`;
  return `| ${[shown, grouped(rows), spread, grouped(rates.get(id)), times, verdict(ratio), cpu, peak].join(" | ")} |`;
}

function verdict(ratio) {
  if (ratio?.wanted === undefined) {
    return "";
  }
  const { times, wanted, target } = ratio;
  const hoped = target === undefined ? "" : ` (target ${target})`;
  return `${wanted}${hoped}: ${times >= (target ?? Infinity) ? "target reached" : times >= wanted ? "reached" : "**missed**"}`;
}

function ratioLine(ratio, contenders) {
  const [own, rival] = [ratio.of, ratio.to].map((id) => {
    const { name, rows } = contenders.find((contender) => contender.id === id);
    return `${name.replaceAll("*", "")} on ${grouped(rows)} rows`;
  });
  return `- ${own}: **${fixed(ratio.times)} times** the rate of ${rival}`;
}

export function machine() {
  const [cpu] = cpus();
  const memoryGiB = Math.round(totalmem() / 2 ** 30);
  return `${cpu?.model.trim() ?? "unknown CPU"}, ${availableParallelism()} cores, ${memoryGiB} GiB, ${process.platform} ${process.arch}`;
}

function fixed(value, digits = 2) {
  return value === undefined ? "–" : value.toFixed(digits);
}

function grouped(value) {
  return Math.round(value).toLocaleString("en-US");
}
