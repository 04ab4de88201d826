import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { showType } from "#src/columns/types.js";
import { JobError } from "#src/base/errors.js";
import { runCli } from "../support/cli.js";
import { writeModel } from "../support/onnx.js";
import { runSpec, scoreHere, workerOf } from "../support/score.js";
import { type Case, shardTable } from "./cases.js";
import type { Binding } from "./models.js";
import type { ExpectedRow } from "./oracle.js";
import { writeShard } from "./writers.js";

/** Writes the shards that JavaScript can write, and the model. */
export async function writeCase(folder: string, one: Case): Promise<void> {
  await mkdir(join(folder, "data"));
  for (const shard of one.shards) {
    const table = shardTable(one, shard);
    await writeShard(join(folder, shard.path), table.columns, table.values, shard.writing);
  }
  await writeModel(join(folder, "model.onnx"), one.model.model);
}

function sourceOf(binding: Binding): object {
  switch (binding.kind) {
    case "columns":
      return { [binding.input]: binding.columns };
    case "list":
      return { [binding.input]: [binding.column] };
    case "padded": {
      const { input, mask, column, width, value, side, truncate } = binding;
      return { [input]: { column, pad: { to: width, value, side, truncate } }, [mask]: { mask_of: input } };
    }
    default:
      throw new TypeError("no such binding");
  }
}

/** The job's spec. */
function specOf(one: Case, onBadRow: "fail" | "reject"): object {
  const { settings, model, computed, filter, folderTypes, shards } = one;
  const endings = [...new Set(shards.map(({ writing }) => writing.ending))];
  const partition = { utf8: "text", date32: "date", int64: "int64" } as Readonly<Record<string, string>>;
  return {
    version: 1,
    name: "differential",
    input: {
      path: endings.map((ending) => `data/**/*${ending}`),
      min_rows: 0,
      verify: settings.verify,
      partitions: Object.fromEntries([...folderTypes].map(([name, type]) => [name, partition[showType(type)]])),
      columns: Object.fromEntries(computed.map(({ name, sql }) => [name, sql])),
      ...(filter === undefined ? {} : { where: filter.sql }),
    },
    model: {
      path: "model.onnx",
      missing: settings.missing,
      cast: settings.cast,
      ...(settings.bindsInputs ? { inputs: Object.assign({}, ...model.bindings.map(sourceOf)) as object } : {}),
      outputs: Object.fromEntries(model.outputs.map(({ name, source }) => [name, source])),
    },
    engine: { threads: settings.threads, batch_size: settings.batchSize },
    output: { columns: one.carried, parquet: { path: "out", compression: settings.compression } },
    commit_rows: settings.commitRows,
    on_bad_row: onBadRow,
    max_rejects: "100%",
  };
}

/** Carries the job out to its end in the way that the case says; what was wrong on the way. */
export async function carryOut(folder: string, one: Case, expected: readonly ExpectedRow[]): Promise<string[]> {
  const spec = join(folder, "job.yaml");
  const found: string[] = [];
  if (one.settings.failsFirst) {
    await writeFile(spec, JSON.stringify(specOf(one, "fail")));
    found.push(...(await failOn(spec, expected)));
  }
  await writeFile(spec, JSON.stringify(specOf(one, "reject")));
  switch (one.way) {
    case "at once":
      await scoreHere(spec);
      return found;
    case "two workers":
      await scoreHere(spec, workerOf(1, 2));
      await scoreHere(spec, workerOf(0, 2));
      return found;
    case "two workers at once":
      await Promise.all([scoreHere(spec, workerOf(0, 2)), scoreHere(spec, workerOf(1, 2))]);
      return found;
    case "killed":
      await killOnce(spec, one.seed);
      return [...found, ...(await finish(spec))];
    case "process":
      return [...found, ...(await finish(spec))];
    default:
      throw new TypeError("no such way");
  }
}

async function finish(spec: string): Promise<string[]> {
  const { code, stderr } = await runSpec(spec, { ownProcess: true });
  return code === 0 ? [] : [`exit ${code}: ${stderr}`];
}

/** `on_bad_row: fail`: the run ends at a bad row, which it names; without one it is complete. */
async function failOn(spec: string, expected: readonly ExpectedRow[]): Promise<string[]> {
  const bad = expected.filter(({ outcome }) => outcome.kind === "bad");
  try {
    await scoreHere(spec);
    return bad.length === 0 ? [] : ["on_bad_row: fail did not fail"];
  } catch (error) {
    if (!(error instanceof JobError) || error.code !== "BAD_ROW") {
      throw error;
    }
    const [, shard = "", row = ""] = /^scoring (.*): row (\d+)[,:]/.exec(error.message) ?? [];
    const named = bad.some((one) => shard.endsWith(one.shard) && one.row === Number(row));
    return named && error.exitCode === 65 ? [] : [`on_bad_row: fail says: ${error.exitCode} ${error.message}`];
  }
}

/** SIGKILL when so many spans are committed, or at once. */
async function killOnce(spec: string, seed: number): Promise<void> {
  const spansFirst = seed % 5;
  await runCli(["run", spec, "--log-level", "debug", "--no-progress"], {
    onStderr: (seen, child) => {
      if (/planned run/.test(seen) && [...seen.matchAll(/span \d+ committed/g)].length >= spansFirst) {
        child.kill("SIGKILL");
      }
    },
  });
}
