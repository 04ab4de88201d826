import { hostname } from "node:os";
import { expect, test } from "vitest";
import type { Models } from "#src/flow/opened-job.js";
import { attemptServices } from "#src/job/attempt.js";
import { resolveOnce, type SharedModels } from "#src/job/model-tools.js";
import type { FoundModel } from "#src/models/places/place.js";
import type { PlannedModel } from "#src/run/plan/plan.js";

type ResolveModel = Models["resolveModel"];

const spec = { path: "models:/churn@champion" } as const;
const found = (version: string): FoundModel => ({ version }) as FoundModel;
const planned = { uri: spec.path, version: "1", sha256: "0" } as PlannedModel;

const resolveTokenizer = (): Promise<never> => Promise.reject(new Error("the job has no tokenizer"));

/** Returns how a job finds its model, which others share. */
function finder(shared: SharedModels, resolveModel: ResolveModel): ResolveModel {
  return shared(spec, { resolveModel, resolveTokenizer }).resolveModel;
}

test("jobs that plan runs share one version of a model, also when the alias moves", async () => {
  const resolved: unknown[] = [];
  const shared = resolveOnce((_model, { version }) => resolved.push(version));
  const one = finder(shared, () => Promise.resolve(found("1")));
  const other = finder(shared, () => Promise.resolve(found("2")));
  expect((await one()).version).toBe("1");
  expect((await other()).version).toBe("1");
  expect(resolved).toEqual(["1"]);
});

test("a job whose plan pins a version finds that version, and not the one that the others share", async () => {
  const resolved: unknown[] = [];
  const shared = resolveOnce((_model, { version }) => resolved.push(version));
  expect((await finder(shared, () => Promise.resolve(found("2")))()).version).toBe("2");
  expect((await finder(shared, () => Promise.resolve(found("1")))(planned)).version).toBe("1");
  expect(resolved).toEqual(["2"]);
});

test("a model that a job could not find is searched again by the next job", async () => {
  const shared = resolveOnce(() => undefined);
  await expect(finder(shared, () => Promise.reject(new Error("away")))()).rejects.toThrow("away");
  expect((await finder(shared, () => Promise.resolve(found("1")))()).version).toBe("1");
});

const log = { info() {}, warn() {}, debug() {} };
const services = () => attemptServices({ retry: { max_seconds: 0 } }, log, new AbortController().signal);

test("the spool folder of another job in the same process is not removed as that of a dead process", () => {
  const [one, other] = [services(), services()];
  expect(one.writer).not.toBe(other.writer);
  expect(other.isDead(`${one.writer}.rows`)).toBe(false);
  expect(other.isDead(one.writer)).toBe(false);
  const host = hostname().replaceAll(/[^A-Za-z0-9-]/g, "_");
  expect(other.isDead(`${host}.${process.pid}.00000000.rows`), "a container before this one had our process id").toBe(
    true,
  );
});
