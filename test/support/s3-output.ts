import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import { expectFinished } from "./crash.js";
import { goldenRows } from "./golden.js";
import { type SpecOverrides, writeSpec } from "./job.js";
import { type Expected, faultsAtAnyMoment } from "./output.js";
import { type Bucket, s3Env } from "./s3.js";
import { mirror } from "./s3-target.js";
import { fixtureNamed } from "./world.js";

/** 442 rows of two shards in 6 spans, or as `commit_rows` says, written to a folder of a bucket. */
export interface S3OutputJob {
  readonly spec: string;
  readonly bucket: Bucket;
  readonly uri: string;
  readonly expected: Expected;
  /** Names below the output's folder. */
  names(): Promise<string[]>;
  /** Writes the spec again. `port`: of the store, or of what stands before it. */
  rewrite(port: number, overrides?: SpecOverrides): Promise<void>;
  /** The same job for another attempt in this process, which needs a spool of its own. */
  specOfAnother(): Promise<string>;
  /** Fails unless the output is whole and right, after a kill of the run at any moment. */
  expectSound(): Promise<void>;
  /** Fails unless the run is finished and nothing is left over. `runNumber`: of whose parts. */
  expectDone(runNumber?: number): Promise<void>;
}

const usualRows = 80;
export const spans = 6;
export const folderName = "lake/dt=1";

/** Credentials for what runs in this process; the spec has the endpoint. */
export function useCredentials(): void {
  const { AWS_ENDPOINT_URL_S3: _endpoint, ...env } = s3Env(0);
  Object.assign(process.env, env);
}

export async function s3OutputJob(
  folder: string,
  { bucket, port }: { bucket: Bucket; port: number },
  overrides: SpecOverrides & { readonly commit_rows?: number } = {},
): Promise<S3OutputJob> {
  const commitRows = overrides.commit_rows ?? usualRows;
  const { AWS_ENDPOINT_URL_S3: _, ...env } = bucket.env();
  Object.assign(process.env, env);
  const fixture = fixtureNamed("diabetes-mlp");
  const uri = `${bucket.uri}/${folderName}`;
  const expected = { golden: await goldenRows(fixture), commitRows };
  const write = async (where: string, to: number, { output, ...rest }: SpecOverrides = {}): Promise<string> => {
    const parquet = { path: uri, endpoint: bucket.endpointAt(to), spool: { path: "spool" } };
    return await writeSpec(where, fixture, {
      commit_rows: commitRows,
      output: { parquet: { ...parquet, ...output } },
      retry: { max_seconds: 20 },
      ...rest,
    });
  };
  await write(folder, port, overrides);
  const here = async (): Promise<string> => {
    const to = await mkdtemp(join(folder, "mirror-"));
    await mirror(bucket, folderName, to);
    return to;
  };
  const names = async (): Promise<string[]> =>
    (await bucket.keys())
      .filter((key) => key.startsWith(`${folderName}/`))
      .map((key) => key.slice(folderName.length + 1));
  return {
    spec: join(folder, "job.yaml"),
    bucket,
    uri,
    expected,
    names,
    async rewrite(to, changed) {
      await write(folder, to, changed);
    },
    async specOfAnother() {
      return await write(await mkdtemp(join(folder, "another-")), port, overrides);
    },
    async expectSound() {
      expect(await faultsAtAnyMoment(await here(), expected)).toEqual([]);
    },
    async expectDone(runNumber = 1) {
      const to = await here();
      await expectFinished(to, expected);
      const left = (await names()).filter((name) => /staged|probe/.test(name));
      expect(left).toEqual([]);
      const parts = (await names()).filter((name) => name.endsWith(".parquet"));
      expect(parts.filter((name) => name.includes("-r") !== runNumber > 1)).toEqual([]);
      expect(parts).toHaveLength(Math.ceil(fixture.rows / commitRows));
    },
  };
}
