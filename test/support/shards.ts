import { copyFile, mkdir, readFile, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { projectFolder } from "./cli.js";
import { type SpecOverrides, writeSpec } from "./job.js";
import { type SmallModel, writeModel } from "./onnx.js";
import { plannedTime } from "./world.js";

export type ShardFixture = "plain" | "checked" | "checked-v2" | "encrypted-footer" | "encrypted-column";

export function shardFixture(name: ShardFixture): string {
  return join(projectFolder, "fixtures/shards", `${name}.parquet`);
}

const identity: SmallModel = {
  inputs: [{ name: "x", dtype: "float64", shape: ["N", 1] }],
  outputs: [{ name: "score", dtype: "float64", shape: ["N", 1] }],
  nodes: [{ op: "Identity", from: ["x"], to: "score" }],
};

export interface ShardJob {
  readonly spec: string;
  readonly out: string;
  /** `in/<name>.parquet` in the job's folder. */
  shard(name: string): string;
  rewrite(overrides: SpecOverrides): Promise<void>;
}

/** A job that carries `id`, `k`, `s` and `l` and scores `x` as itself, over copies of fixtures/shards: in/a.parquet … */
export async function shardJob(
  folder: string,
  shards: Readonly<Record<string, ShardFixture>>,
  overrides: SpecOverrides = {},
): Promise<ShardJob> {
  await mkdir(join(folder, "in"));
  const shard = (name: string): string => join(folder, "in", `${name}.parquet`);
  for (const [name, fixture] of Object.entries(shards)) {
    await copyFile(shardFixture(fixture), shard(name));
    await utimes(shard(name), plannedTime, plannedTime);
  }
  await writeModel(join(folder, "model.onnx"), identity);
  const rewrite = async ({ input, output, ...rest }: SpecOverrides): Promise<void> => {
    await writeSpec(
      folder,
      { name: "small", table: "", model: "", rows: 0, outputs: { score: "score" } },
      {
        input: { path: "in/*.parquet", ...input },
        model: { path: "model.onnx" },
        output: { columns: ["id", "k", "s", "l"], ...output },
        ...rest,
      },
    );
  };
  await rewrite(overrides);
  return { spec: join(folder, "job.yaml"), out: join(folder, "out"), shard, rewrite };
}

/** Changes bytes of a shard and keeps its time; returns those that it had. */
export async function patch(path: string, change: (bytes: Buffer) => unknown): Promise<Buffer> {
  const whole = await readFile(path);
  const bytes = Buffer.from(whole);
  change(bytes);
  await writeFile(path, bytes);
  await utimes(path, plannedTime, plannedTime);
  return whole;
}
