import { readFile, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { scratchFolder } from "../support/job.js";
import { partNames } from "../support/output.js";
import { corpusFolder, differencesFrom, type Expected, type ExpectedFile, goldenOf } from "./corpus.js";
import { type IdentityJob, identityJob, type SeenColumn, type Texts } from "./identity.js";
import { limitCpuMs, limitKib, type Processes } from "./processes.js";
import { columnTexts, csvTexts } from "./values.js";

/** What happened to a command: how it ended, as `Expected` tells it, and everything that must never happen. */
interface Outcome {
  readonly ended: Expected;
  readonly stdout: string;
  readonly faults: readonly string[];
}

async function outcomeOf(processes: Processes, args: readonly string[], hidden: readonly string[]): Promise<Outcome> {
  const ended = await processes.run(args);
  if (ended.kind === "died") {
    return { ended: { exit: -1, says: ended.how, hint: "" }, stdout: "", faults: [ended.how] };
  }
  const { code, stdout, stderr, peakKib, cpuMs } = ended;
  return {
    ended: code === 0 ? "read" : refusal(code, hide(stderr, hidden)),
    stdout,
    faults: [
      ...([0, 64, 65].includes(code) ? [] : [`exit ${code}: ${stderr}`]),
      ...(/^\s+at .*:\d+/m.test(stderr) ? [`a stack trace: ${stderr}`] : []),
      ...(code !== 0 && !stderr.startsWith("error: ") ? [`no message: ${stderr}`] : []),
      ...(peakKib < limitKib ? [] : [`${peakKib} KiB`]),
      ...(cpuMs < limitCpuMs ? [] : [`${cpuMs} ms`]),
    ],
  };
}

function hide(text: string, paths: readonly string[]): string {
  const shown = paths.reduce((rest, path) => rest.replaceAll(path, "<file>"), text);
  return shown.replaceAll(/infer-batch run \S+\.yaml/g, "infer-batch run <spec>");
}

function refusal(exit: number, stderr: string): Expected {
  const says = /^error: (.*)/m.exec(stderr)?.[1] ?? stderr;
  const hint = /^ {2}hint: (.*)/m.exec(stderr)?.[1] ?? "";
  return { exit, says, hint };
}

export interface Observed {
  readonly inspect: Expected;
  readonly run: Expected;
  readonly rows?: number;
  readonly faults: readonly string[];
}

interface SeenShard {
  readonly rows: number;
  readonly columns: readonly (SeenColumn & { readonly nulls: number | null })[];
}

/** Takes a file through `inspect` and through a run, and says where what came is not what it holds. */
export async function observe(
  processes: Processes,
  file: string,
  { refused = {}, csv }: ExpectedFile,
): Promise<Observed> {
  await using scratch = await scratchFolder();
  const path = join(corpusFolder, file);
  const inspected = await outcomeOf(processes, ["inspect", path, "--json"], [path]);
  const shard = inspected.ended === "read" ? (JSON.parse(inspected.stdout) as SeenShard) : undefined;
  const columns = shard?.columns ?? [];
  const usable = columns.filter(({ name }) => !Object.hasOwn(refused, name));
  const hasNulls = (name: string): boolean => goldenOf(file)?.columns[name]?.nulls !== 0;
  const job = await identityJob(scratch.path, { file: path, columns: usable, hasNulls });
  const given = join(scratch.path, "shard=7", basename(file));
  const ran = await outcomeOf(processes, ["run", job.spec, "--json", "--no-progress", "--quiet"], [given]);
  const rows = shard?.rows;
  return {
    inspect: inspected.ended,
    run: ran.ended,
    ...(rows === undefined ? {} : { rows }),
    faults: [
      ...inspected.faults,
      ...ran.faults,
      ...(shard === undefined ? [] : wrongDetails(file, shard)),
      ...(ran.ended === "read" ? await wrongRows({ file, job, rows: rows ?? 0, usable, csv }, ran.stdout) : []),
      ...(ran.ended === "read" ? [] : await leftBehind(job.output)),
    ],
  };
}

/** Where `inspect` and pyarrow do not agree. */
function wrongDetails(file: string, shard: SeenShard): string[] {
  const golden = goldenOf(file);
  if (golden === undefined) {
    return [];
  }
  const names = shard.columns.map(({ name }) => name).join();
  const expected = Object.keys(golden.columns).join();
  return [
    ...(shard.rows === golden.rows ? [] : [`inspect says ${shard.rows} rows, pyarrow ${golden.rows}`]),
    ...(names === expected ? [] : [`inspect says columns ${names}, pyarrow ${expected}`]),
    ...shard.columns.flatMap(({ name, nulls }) => {
      const counted = golden.columns[name]?.nulls;
      return nulls === null || counted === undefined || nulls === counted
        ? []
        : [`inspect says ${nulls} NULLs in ${name}, pyarrow ${counted}`];
    }),
  ];
}

interface Ran {
  readonly file: string;
  readonly job: IdentityJob;
  readonly rows: number;
  readonly usable: readonly SeenColumn[];
  readonly csv: string | undefined;
}

/** Where a finished run's output is not what the file holds. */
async function wrongRows({ file, job, rows, usable, csv }: Ran, stdout: string): Promise<string[]> {
  const summary = JSON.parse(stdout) as { readonly rows_planned: number; readonly rows_scored: number };
  const parts = (await partNames(job.output)).map((name) => join(job.output, name));
  const texts: Texts = parts.length === 0 ? new Map() : await columnTexts(parts);
  const golden = goldenOf(file);
  const expectedRows = golden?.rows ?? rows;
  const counted = [summary.rows_planned, summary.rows_scored, texts.get("out")?.length ?? 0];
  return [
    ...(counted.every((one) => one === expectedRows) ? [] : [`rows ${counted.join()}, expected ${expectedRows}`]),
    ...usable.flatMap(({ name }) => {
      const expected = golden?.columns[name];
      const found = job.valuesOf(name, texts);
      return expected === undefined
        ? [`${name}: nothing to compare it with`]
        : differencesFrom(expected, found).map((text) => `${name}: ${text}`);
    }),
    ...(parts.length === 0 ? [] : job.wrongPredictions(texts, expectedRows)),
    ...(csv === undefined ? [] : await differencesFromCsv(csv, usable, (name) => job.valuesOf(name, texts))),
  ].slice(0, 20);
}

async function differencesFromCsv(
  csv: string,
  columns: readonly SeenColumn[],
  valuesOf: (column: string) => readonly string[],
): Promise<string[]> {
  const types = columns.map(({ type }) => type === "VARCHAR");
  const expected = csvTexts(await readFile(join(corpusFolder, csv), "utf8"), types);
  return columns.flatMap(({ name }, index) => {
    return valuesOf(name).join("\n") === expected[index]?.join("\n") ? [] : [`${name} is not what ${csv} says`];
  });
}

/** Parts of a run that was refused: none may be there for readers. */
async function leftBehind(output: string): Promise<string[]> {
  try {
    await stat(output);
  } catch {
    return [];
  }
  return (await partNames(output)).map((name) => `a refused run left ${name}`);
}

/** What `validate` says of a job that carries just this column. */
export async function carryColumn(processes: Processes, file: string, column: string): Promise<Outcome> {
  await using scratch = await scratchFolder();
  const path = join(corpusFolder, file);
  const { spec } = await identityJob(scratch.path, {
    file: path,
    columns: [],
    hasNulls: () => true,
    carried: [column],
  });
  const hidden = [join(scratch.path, "model.onnx"), join(scratch.path, "shard=7", basename(file)), spec];
  return await outcomeOf(processes, ["validate", spec], hidden);
}
