import { copyFile, mkdir, readdir, utimes } from "node:fs/promises";
import { join } from "node:path";
import { projectFolder } from "./cli.js";
import { type Fixture, fixtures, type SpecOverrides, writeSpec } from "./job.js";

export function fixtureNamed(name: string): Fixture {
  const found = fixtures.find((fixture) => fixture.name === name);
  if (found === undefined) {
    throw new Error(`there is no fixture ${name}`);
  }
  return found;
}

/** A job whose shards and model are copies of its own, to be changed at will. */
export interface OwnJob {
  readonly fixture: Fixture;
  readonly spec: string;
  readonly out: string;
  readonly model: string;
  /** Absolute paths, in plan order. */
  readonly shards: readonly string[];
  shard(index: number): string;
  rewrite(overrides: SpecOverrides): Promise<void>;
}

/** Whole seconds, which `utimes` can set again exactly. */
export const plannedTime = new Date("2026-01-01T00:00:00Z");

/** Copies a fixture's shards and model into `folder` and writes a spec for them. */
export async function ownJob(folder: string, name: string, overrides: SpecOverrides = {}): Promise<OwnJob> {
  const fixture = fixtureNamed(name);
  const data = join(projectFolder, "fixtures/data", fixture.table);
  await mkdir(join(folder, "in"));
  const shards: string[] = [];
  for (const file of (await readdir(data)).toSorted()) {
    const copy = join(folder, "in", file);
    await copyFile(join(data, file), copy);
    await utimes(copy, plannedTime, plannedTime);
    shards.push(copy);
  }
  const model = join(folder, "model.onnx");
  await copyFile(join(projectFolder, "fixtures/models", fixture.model), model);
  const rewrite = async (changed: SpecOverrides): Promise<void> => {
    const { input, model: modelSpec, ...rest } = changed;
    await writeSpec(folder, fixture, {
      input: { path: "in/*.parquet", ...input },
      model: { path: "model.onnx", ...modelSpec },
      ...rest,
    });
  };
  await rewrite(overrides);
  return {
    fixture,
    spec: join(folder, "job.yaml"),
    out: join(folder, "out"),
    model,
    shards,
    shard: (index) => {
      const path = shards[index];
      if (path === undefined) {
        throw new Error(`${name} has no shard ${index}`);
      }
      return path;
    },
    rewrite,
  };
}
