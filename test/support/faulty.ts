import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { JobError } from "#src/base/errors.js";
import { type CliResult, projectFolder, runCli } from "./cli.js";
import { type Fixture, scratch, type SpecOverrides, writeSpec } from "./job.js";
import { type SmallModel, writeModel } from "./onnx.js";
import { query, writeRows } from "./parquet.js";
import { until } from "./waiting.js";
import { fixtureNamed } from "./world.js";

/** A value to be put into the table at a row of the run, as SQL; `shown`: as a reject tells it. */
export interface Spoilt {
  readonly row: number;
  readonly column: string;
  readonly sql: string;
  readonly reason: string;
  readonly shown: string | null;
}

export interface SpoiltJob {
  readonly fixture: Fixture & { readonly key: string };
  readonly spec: string;
  readonly out: string;
  rewrite(overrides: SpecOverrides): Promise<void>;
  /** URI of the shard that a row of the run lies in, and its number there. */
  locate(row: number): { readonly shard: string; readonly row: number };
}

/** Copies a fixture's shards into `<folder>/in` with some values replaced, and writes a spec for them. */
export async function spoiltJob(
  folder: string,
  name: string,
  spoilt: readonly Pick<Spoilt, "row" | "column" | "sql">[],
  overrides: SpecOverrides = {},
): Promise<SpoiltJob> {
  const fixture = { key: "id", ...fixtureNamed(name) };
  const data = join(projectFolder, "fixtures/data", fixture.table);
  await mkdir(join(folder, "in"));
  const shards: { uri: string; start: number }[] = [];
  let start = 0;
  for (const file of (await readdir(data)).toSorted()) {
    const source = join(data, file);
    const [counted] = await query(`SELECT count(*)::INTEGER AS rows FROM '${source}'`);
    const rows = Number(counted?.["rows"]);
    const first = start;
    const inside = spoilt.filter(({ row }) => row >= first && row < first + rows);
    await writeRows(join(folder, "in", file), await spoiltSelect(source, first, inside), "ROW_GROUP_SIZE 2048");
    shards.push({ uri: `in/${file}`, start });
    start += rows;
  }
  const rewrite = async (changed: SpecOverrides): Promise<void> => {
    const { input, output, ...rest } = changed;
    await writeSpec(folder, fixture, {
      input: { path: "in/*.parquet", ...input },
      output: { columns: [fixture.key], ...output },
      ...rest,
    });
  };
  await rewrite(overrides);
  return {
    fixture,
    spec: join(folder, "job.yaml"),
    out: join(folder, "out"),
    rewrite,
    locate(row) {
      const shard = shards.findLast((candidate) => candidate.start <= row);
      return { shard: shard?.uri ?? "", row: row - (shard?.start ?? 0) };
    },
  };
}

async function spoiltSelect(
  source: string,
  start: number,
  spoilt: readonly Pick<Spoilt, "row" | "column" | "sql">[],
): Promise<string> {
  const described = await query(`DESCRIBE SELECT * FROM '${source}'`);
  const columns = described.map(({ column_name: name, column_type: type }) => {
    const cases = spoilt
      .filter(({ column }) => column === name)
      .map(({ row, sql }) => `WHEN file_row_number = ${row - start} THEN (${sql})::${String(type)}`);
    return cases.length === 0
      ? `"${String(name)}"`
      : `CASE ${cases.join(" ")} ELSE "${String(name)}" END AS "${String(name)}"`;
  });
  return `SELECT ${columns.join(", ")} FROM read_parquet('${source}', file_row_number = true) ORDER BY file_row_number`;
}

/** A job of one shard, `in/a.parquet` from `select`, and a model written for it. Its name is `small`. */
export async function smallJob(
  folder: string,
  {
    model,
    select,
    ...overrides
  }: { model: SmallModel; select: string } & Omit<SpecOverrides, "model"> & {
      modelSpec?: object;
    },
): Promise<{ spec: string; out: string; rewrite: (overrides: SpecOverrides) => Promise<void> }> {
  await mkdir(join(folder, "in"), { recursive: true });
  await writeModel(join(folder, "model.onnx"), model);
  await writeRows(join(folder, "in/a.parquet"), select);
  const outputs = Object.fromEntries(model.outputs.map(({ name }) => [name, name]));
  const fixture = { name: "small", table: "", model: "", rows: 0, outputs };
  const rewrite = async ({ input, model: changed, ...rest }: SpecOverrides): Promise<void> => {
    await writeSpec(folder, fixture, {
      input: { path: "in/*.parquet", ...input },
      model: { path: "model.onnx", ...changed },
      ...rest,
    });
  };
  const { modelSpec, ...rest } = overrides;
  await rewrite({ ...rest, ...(modelSpec === undefined ? {} : { model: modelSpec }) });
  return { spec: join(folder, "job.yaml"), out: join(folder, "out"), rewrite };
}

/** One number in, the same out as `score`. */
export const identity: SmallModel = {
  inputs: [{ name: "x", dtype: "float32", shape: ["N", 1] }],
  outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
  nodes: [{ op: "Identity", from: ["x"], to: "score" }],
};

/** Writes a job whose model gives `x` back, which is an eighth of `id`; returns its spec. */
export async function eighthsJob(rows: number, { output, ...overrides }: SpecOverrides = {}): Promise<string> {
  const { spec } = await smallJob(scratch.path, {
    serve: { port: 0 },
    ...overrides,
    model: identity,
    select: `SELECT i::BIGINT AS id, i / 8::DOUBLE AS x FROM range(${rows}) t(i)`,
    output: { columns: ["id"], ...output },
  });
  return spec;
}

/** Looks `code` up in a table of ten: any other code makes it fail. `rows`: of its fixed batch. */
export function lookup(rows: number | "N" = "N"): SmallModel {
  return {
    inputs: [{ name: "code", dtype: "int64", shape: [rows, 1] }],
    outputs: [{ name: "score", dtype: "float32", shape: [rows, 1] }],
    nodes: [{ op: "Gather", from: ["table", "code"], to: "score" }],
    constants: [{ name: "table", values: Array.from({ length: 10 }, (_, index) => index / 2) }],
  };
}

const preload = pathToFileURL(join(projectFolder, "test/crash/preload.mjs")).href;

/** Environment and options that put test/crash/preload.mjs before a run whose output is `out`. */
export function watching(
  out: string,
  env: Readonly<Record<string, string>>,
): { node: string[]; env: Record<string, string> } {
  return { node: [`--import=${preload}`], env: { CRASH_ROOT: out, ...env } };
}

export interface HeldRun {
  /** Lets it go on until it stands before the next call that it was given, or has ended. */
  next(): Promise<void>;
  /** Lets it go on; what became of it. */
  release(): Promise<CliResult>;
}

/** Starts a run and returns when it stands right before `call`, as preload.mjs names calls. */
export async function holdRun(
  spec: string,
  { args = [], ...where }: { out: string; call: string; held: string; args?: readonly string[] },
): Promise<HeldRun> {
  return await holdCommand(["run", spec, "--no-progress", "--json", ...args], where);
}

/** Returns when the command stands right before `call`, as preload.mjs names calls; `later`: another one after it. */
export async function holdCommand(
  args: readonly string[],
  where: { out: string; call: string; later?: string; held: string },
): Promise<HeldRun> {
  const { out, call, later, held } = where;
  const state = { ended: false };
  const at = [call, ...(later === undefined ? [] : [later])].map((one) => `hold ${one}`).join("|");
  const result = runCli(args, watching(out, { CRASH_AT: at, CRASH_HOLD: held })).finally(() => {
    state.ended = true;
  });
  await until(() => existsSync(held) || state.ended);
  if (state.ended) {
    throw new Error(`the command ended before ${call}: ${(await result).stderr}`);
  }
  return {
    async next() {
      await rm(held, { force: true });
      await until(() => existsSync(held) || state.ended);
    },
    async release() {
      await rm(held, { force: true });
      return await result;
    },
  };
}

/** Runs the built command through a shell, with a stream of it led elsewhere: `2>/dev/full`. */
export async function runRedirected(args: readonly string[], redirection: string): Promise<CliResult> {
  const program = join(projectFolder, "bin/infer-batch.js");
  const child = spawn("sh", ["-c", `exec "$0" "$@" ${redirection}`, process.execPath, program, ...args], {
    env: { ...process.env, NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  return await new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => {
      resolve({ code, signal, stdout, stderr });
    });
  });
}

/** Exit code, name and text of the JobError that `act` ends with, as a user would meet them. */
export async function refusalOf(act: Promise<unknown>): Promise<string> {
  const error = await act.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof JobError)) {
    throw error ?? new Error("nothing was thrown");
  }
  const hint = error.hint === undefined ? "" : `\nhint: ${error.hint}`;
  return `${error.exitCode} ${error.code}\n${error.message}${hint}`;
}
