// Judges `checks: {}` on a real year, by the commands of the built program alone: every flight of 2013 from New York with
// the weather at its hour, night after night, and faults over copies of the nights before: npm run real-year
// -- [--only clean,weather,first,rows-twice,…] [--nights 365] [--model lightgbm,sklearn] [--leave] [--approve=OPTIONS]
// [--work FOLDER] [--json FILE]
import { execFile, execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { dataFolder } from "./data.mjs";
import { findRealYear } from "./python.mjs";

const { values: options } = parseArgs({
  options: {
    only: { type: "string" },
    nights: { type: "string", default: "365" },
    model: { type: "string", default: "lightgbm,sklearn" },
    // By default a person looks at each clean night that is held, and approves it with the options of --approve.
    leave: { type: "boolean", default: false },
    approve: { type: "string", default: "" },
    work: { type: "string", default: join(dataFolder, "real-year") },
    json: { type: "string" },
  },
});

const program = fileURLToPath(new URL("../bin/infer-batch.js", import.meta.url));
const bundle = fileURLToPath(new URL("../dist/bundle", import.meta.url));
const inputs = join(resolve(options.work), "inputs");
const models = options.model.split(",");
/** Faults of the model: its file, and whether the job has golden rows. Those of the data are folders that year.py writes. */
const modelFaults = {
  "constant-score": { model: "constant-score" },
  "score-halved": { model: "score-halved" },
  "inputs-swapped": { model: "inputs-swapped" },
  "inputs-swapped-and-golden-rows": { model: "inputs-swapped", golden: true },
};
/** The year until then is left out of what `clean` counts: the models were trained on it. */
const firstCounted = 60;
const lostWeather = new Set(["08-19", "08-22", "10-23", "10-25", "11-02", "12-30", "12-31"]);
/** Nights before a fault that it is judged with: as many as checks look back. */
const linkedNights = 63;
const isFault = (kind) => !["clean", "weather", "first"].includes(kind);
const starts = { count: 43, every: 8, earlier: [1, 2, 3, 5, 8] };

/** Writes the nights and the models, once. */
function makeInputs() {
  if (fs.existsSync(inputs)) {
    return;
  }
  const { interpreter, absent } = findRealYear();
  if (absent !== undefined) {
    throw new Error(`the real year cannot be made: ${absent}`);
  }
  const script = fileURLToPath(new URL("real-year/year.py", import.meta.url));
  execFileSync(interpreter, [script, `${inputs}.making`], { stdio: ["ignore", "inherit", "inherit"] });
  fs.renameSync(`${inputs}.making`, inputs);
}

const namesIn = (...folder) => fs.readdirSync(join(inputs, ...folder)).toSorted((a, b) => a.localeCompare(b));
const datesOf = (table, kind) => namesIn(table, kind).map((name) => name.slice("dt=".length));

/** Outputs and results are of one build, and of one way to decide on held nights. */
function stateFolder() {
  const hash = createHash("sha256").update(`${options.leave} ${options.approve}`);
  for (const name of fs.readdirSync(bundle).toSorted((a, b) => a.localeCompare(b))) {
    hash.update(name).update(fs.readFileSync(join(bundle, name)));
  }
  return join(resolve(options.work), hash.digest("hex").slice(0, 12));
}

const keyOf = ({ series, kind, start, date }) => [series, kind, start, date].join("/");

/** Opens the results that there are already, and takes as many turns at once as the machine has cores. */
function openResults() {
  const state = stateFolder();
  fs.mkdirSync(state, { recursive: true });
  const file = join(state, "results.jsonl");
  const lines = fs.existsSync(file) ? fs.readFileSync(file, "utf8").split("\n") : [];
  const earlier = lines.filter((line) => line !== "").map((line) => JSON.parse(line));
  const known = new Map(earlier.map((result) => [keyOf(result), result]));
  const results = [];
  const waiting = [];
  let free = availableParallelism();

  async function judged(night, judge) {
    const key = keyOf(night);
    if (!known.has(key)) {
      if (free === 0) {
        await new Promise((resolveTurn) => waiting.push(resolveTurn));
      } else {
        free -= 1;
      }
      const result = { ...night, ...(await judge()) };
      known.set(key, result);
      fs.appendFileSync(file, `${JSON.stringify(result)}\n`);
      if (known.size % 100 === 0) {
        console.error(`${new Date().toISOString()}: ${known.size} nights judged, the last one ${key}`);
      }
      const next = waiting.shift() ?? (() => (free += 1));
      next();
    }
    results.push(known.get(key));
  }
  return { state, judged, results };
}

function writeJob(folder, { table = "flights", library, input = "clean", model = "model", golden = false }) {
  const from = join(inputs, table);
  const spec = {
    version: 1,
    name: `real-${table}`,
    params: { ds: "${today}" },
    input: {
      path: join(from, input, "dt=${ds}", "*.parquet"),
      ...(table === "flights" ? { columns: { engine: "coalesce(engine, 'none')" } } : {}),
    },
    model: { path: join(from, library, `${model}.onnx`), missing: "nan", outputs: { score: "probabilities[1]" } },
    output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
    checks: golden ? { golden: { path: join(from, library, "golden.parquet") } } : {},
  };
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(join(folder, "job.yaml"), JSON.stringify(spec));
  return join(folder, "job.yaml");
}

const environmentOf = (state) => ({ ...process.env, NO_COLOR: "1", XDG_CACHE_HOME: join(state, "cache") });

async function command(codes, state, ...args) {
  const env = environmentOf(state);
  const ended = await promisify(execFile)(process.execPath, [program, ...args], { env, maxBuffer: 2 ** 26 }).catch(
    (error) => error,
  );
  const { code = 0, stdout, stderr } = ended;
  if (!codes.includes(code)) {
    throw new Error(`infer-batch ${args.join(" ")}: exit code ${code}: ${stderr}`);
  }
  return { code, stdout };
}

/** How a run has ended, by its line of JSON: its level, and the first reason. */
function levelOf({ exit_code: code, verdict, message }) {
  const [reason = message] = [...(verdict?.failed ?? []), ...(verdict?.warnings ?? [])];
  const level = { 0: reason === undefined ? "passed" : "warned", 65: "refused", 67: "held" }[code];
  if (level === undefined) {
    throw new Error(`exit code ${code}: ${message}`);
  }
  return { level, reason };
}

/** Has a night scored and judged. @returns its level, and the first reason */
async function judgeNight(state, spec, date) {
  const { code, stdout } = await command([0, 65, 67], state, "run", spec, "--param", `ds=${date}`, "--json", "--quiet");
  return levelOf({ ...JSON.parse(stdout), exit_code: code });
}

/** Has nights scored and judged by one process, which ends after one that is held. Yields how each has ended. */
async function* backfill(state, spec, first, last) {
  const args = ["backfill", spec, "--param", `ds=${first}..${last}`, "--json", "--quiet"];
  const how = options.leave ? [] : ["--stop-on-failure"];
  const child = spawn(process.execPath, [program, ...args, ...how], {
    env: environmentOf(state),
    stdio: ["ignore", "pipe", "ignore"],
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const { value, status, ...run } = JSON.parse(line);
    if (value !== undefined && status !== "no_input") {
      yield { date: value, ...levelOf(run) };
    }
  }
}

/** Judges nights in order, and has a person publish what is held. */
async function judgeInOrder({ state, judged }, spec, nights) {
  let ends;
  for (const night of nights) {
    await judged(night, async () => {
      ends ??= backfill(state, spec, night.date, nights.at(-1).date);
      const { value: { date, ...result } = {} } = await ends.next();
      if (date !== night.date) {
        throw new Error(`${spec}: the backfill of ${night.date} has judged ${date}`);
      }
      if (result.level === "held" && !options.leave) {
        ends = undefined;
        const how = options.approve.split(" ").filter((option) => option !== "");
        await command([0], state, "approve", spec, "--param", `ds=${date}`, ...how);
      }
      return result;
    });
  }
}

/** The files of a folder under other names: no run changes those of another. */
function linkFolder(from, to) {
  fs.mkdirSync(to, { recursive: true });
  for (const entry of fs.readdirSync(from, { withFileTypes: true })) {
    const link = entry.isDirectory() ? linkFolder : fs.linkSync;
    link(join(from, entry.name), join(to, entry.name));
  }
}

/** Judges the nights that have a fault, each over what the clean nights before it have left. */
async function judgeFault({ state, judged }, { series, kind, dates }) {
  const planted = datesOf("flights", kind in modelFaults ? "rows-twice" : kind).filter((date) => dates.includes(date));
  const judge = async (date) => {
    const folder = join(state, series, kind, date);
    fs.rmSync(folder, { recursive: true, force: true });
    const spec = writeJob(folder, { library: series, ...(modelFaults[kind] ?? { input: kind }) });
    const night = dates.indexOf(date);
    for (const earlier of dates.slice(Math.max(0, night - linkedNights), night)) {
      const output = join("out", `dt=${earlier}`);
      linkFolder(join(state, series, "clean", output), join(folder, output));
    }
    const result = await judgeNight(state, spec, date);
    fs.rmSync(folder, { recursive: true });
    return result;
  };
  await Promise.all(planted.map((date) => judged({ series, kind, date }, () => judge(date))));
}

/** Judges the first clean nights of jobs that begin on different nights. */
async function judgeFirstNights(bench, { series, dates }) {
  const length = Math.max(...starts.earlier) + 1;
  const firsts = Array.from({ length: starts.count }, (_, index) => index * starts.every);
  const judge = async (first) => {
    const start = dates[first];
    const spec = writeJob(join(bench.state, series, "first", start), { library: series });
    const nights = dates.slice(first, first + length).map((date) => ({ series, kind: "first", start, date }));
    await judgeInOrder(bench, spec, nights);
  };
  await Promise.all(firsts.filter((first) => first + length <= dates.length).map(judge));
}

async function judgeSeries(bench, series, kinds) {
  const inOrder = async (kind, table) => {
    const dates = datesOf(table, "clean").slice(0, Number(options.nights));
    const spec = writeJob(join(bench.state, series, kind), { table, library: series });
    await judgeInOrder(
      bench,
      spec,
      dates.map((date) => ({ series, kind, date })),
    );
    return dates;
  };
  const planted = kinds.filter(isFault);
  const flights = async () => {
    const dates = await inOrder("clean", "flights");
    await Promise.all(planted.map((kind) => judgeFault(bench, { series, kind, dates })));
  };
  await Promise.all([
    kinds.includes("clean") || planted.length > 0 ? flights() : [],
    kinds.includes("weather") && namesIn("weather").includes(series) ? inOrder("weather", "weather") : [],
    kinds.includes("first")
      ? judgeFirstNights(bench, { series, dates: datesOf("flights", "clean").slice(0, Number(options.nights)) })
      : [],
  ]);
}

const isLost = ({ date }) => lostWeather.has(date.slice("2013-".length));

/** The lines of the table for a kind of nights, and which of these each counts. */
function linesOf(kind) {
  const dates = datesOf("flights", "clean");
  const isCounted = ({ date }) => dates.indexOf(date) >= firstCounted;
  const lines = {
    clean: {
      [`clean, after ${firstCounted} nights`]: (night) => isCounted(night) && !isLost(night),
      "clean, but really lost weather": isLost,
      [`clean, the first ${firstCounted}`]: (night) => !isCounted(night),
    },
    weather: { [`hourly weather, after ${firstCounted} nights`]: isCounted },
    first: Object.fromEntries(
      starts.earlier.map((count) => [
        `clean, with ${count} earlier`,
        ({ start, date }) => dates.indexOf(date) - dates.indexOf(start) === count,
      ]),
    ),
  };
  return Object.entries(lines[kind] ?? { [kind.replaceAll("-", " ")]: () => true });
}

/** @param heldWhenClean dates; a fault on such a night may have been held for what is usual */
function countsOf(nights, heldWhenClean) {
  const count = (...levels) => nights.filter(({ level }) => levels.includes(level)).length;
  const alsoClean = nights.filter(({ kind, date }) => isFault(kind) && heldWhenClean.has(date)).length;
  return { of: nights.length, held: count("held", "refused"), warned: count("warned"), alsoClean };
}

function textOf({ of, held, warned, alsoClean }) {
  const also = alsoClean === 0 ? "" : ` (${alsoClean} held without it)`;
  return of === 0 ? "" : `${held} + ${warned} of ${of}${also}`;
}

const row = (...cells) => console.log(`| ${cells.join(" | ")} |`);

function print(table, results) {
  row("nights", ...models.map((series) => `${series}: held + warned`));
  row("---", ...models.map(() => "---:"));
  for (const { nights, counts } of table.filter((line) => Object.values(line.counts).some(({ of }) => of > 0))) {
    row(nights, ...models.map((series) => textOf(counts[series])));
  }
  console.log("");
  row("clean night", "model", "level", "first reason");
  row("---", "---", "---", "---");
  for (const { date, series, kind, level, reason = "" } of results) {
    if (["clean", "weather"].includes(kind) && level !== "passed") {
      row(date, kind === "clean" ? series : kind, level, reason.replaceAll("|", "\\|"));
    }
  }
}

makeInputs();
const dataFaults = namesIn("flights").filter((name) => !["clean", "lightgbm", "sklearn"].includes(name));
const allKinds = ["clean", "weather", "first", ...dataFaults, ...Object.keys(modelFaults)];
const kinds = options.only?.split(",") ?? allKinds;
for (const kind of kinds) {
  if (!allKinds.includes(kind)) {
    throw new Error(`--only ${kind}: expected some of ${allKinds.join(",")}`);
  }
}
const bench = openResults();
await Promise.all(models.map((series) => judgeSeries(bench, series, kinds)));

const results = bench.results.toSorted((a, b) => a.series.localeCompare(b.series) || a.date.localeCompare(b.date));
const table = kinds.flatMap((kind) =>
  linesOf(kind).map(([nights, isOf]) => {
    const countsOfSeries = (series) => {
      const own = results.filter((night) => night.series === series);
      const held = own.filter((night) => night.kind === "clean" && night.level === "held").map(({ date }) => date);
      return countsOf(
        own.filter((night) => night.kind === kind && isOf(night)),
        new Set(held),
      );
    };
    return { nights, counts: Object.fromEntries(models.map((series) => [series, countsOfSeries(series)])) };
  }),
);
print(table, results);
if (options.json !== undefined) {
  fs.writeFileSync(options.json, `${JSON.stringify({ table, results })}\n`);
}
