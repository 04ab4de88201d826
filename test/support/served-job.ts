import { join } from "node:path";
import { expect } from "vitest";
import { type CliResult, expectEnd, runHere } from "./cli.js";
import { expectFinished } from "./crash.js";
import { goldenRows } from "./golden.js";
import { type Fixture, scratchFolder, type SpecOverrides, writeSpec } from "./job.js";
import { type RestOptions, serveRest } from "./rest-server.js";
import { onnxModel, serveV2, type V2Options, type V2Request, type V2Server } from "./v2-server.js";
import { fixtureNamed } from "./world.js";

interface ServedRun extends CliResult {
  readonly report: Readonly<Record<string, unknown>>;
}

export interface ServedJob extends AsyncDisposable {
  readonly fixture: Fixture;
  readonly server: V2Server;
  /** The servers besides the first one, which have the same model. */
  readonly others: readonly V2Server[];
  readonly spec: string;
  readonly out: string;
  rewrite(overrides: SpecOverrides): Promise<void>;
  /** Runs the job; the summary of `--json` is in `report`. */
  run(...args: readonly string[]): Promise<ServedRun>;
  /** Runs the job, which must have every row in the end, as ONNX Runtime predicts it, and this in its summary. */
  runWhole(report?: object): Promise<ServedRun>;
}

export interface ServedJobOptions extends V2Options {
  readonly fixture?: string;
  /** A server that does not speak the Open Inference Protocol. */
  readonly rest?: RestOptions;
  /** How many servers have the model. Default: one. */
  readonly copies?: number;
  /** More keys of `model.server`. */
  readonly keys?: object;
  readonly overrides?: SpecOverrides;
}

export async function servedJob({
  fixture: name = "diabetes-mlp",
  keys = {},
  overrides = {},
  rest,
  copies = 1,
  ...options
}: ServedJobOptions = {}): Promise<ServedJob> {
  const fixture = fixtureNamed(name);
  const scratch = await scratchFolder();
  const model = await onnxModel(fixture.model);
  const serve = (): Promise<V2Server> => (rest === undefined ? serveV2(model, options) : serveRest(model, rest));
  const server = await serve();
  const others = await Promise.all(Array.from({ length: copies - 1 }, serve));
  const url = copies === 1 ? server.url : [server, ...others].map((one) => one.url);
  const place =
    rest?.kind === "json"
      ? { protocol: "json", path: "/invocations" }
      : { protocol: rest === undefined ? "v2" : "v1", name: "m" };
  const write = ({ model: more, ...changed }: SpecOverrides): Promise<string> =>
    writeSpec(scratch.path, fixture, {
      commit_rows: 100,
      retry: { max_seconds: 10 },
      ...changed,
      model: { path: undefined, server: { ...place, url, ...keys }, ...more },
    });
  const spec = await write(overrides);
  const out = join(scratch.path, "out");
  const run = async (...args: readonly string[]): Promise<ServedRun> => {
    const env = { XDG_CACHE_HOME: join(scratch.path, "cache") };
    const result = await runHere(["run", spec, "--no-progress", "--json", ...args], { env });
    const report = result.stdout === "" ? {} : (JSON.parse(result.stdout) as Record<string, unknown>);
    return { ...result, report };
  };
  return {
    fixture,
    server,
    others,
    spec,
    out,
    async rewrite(changed) {
      await write({ ...overrides, ...changed });
    },
    run,
    async runWhole(report = {}) {
      const ended = await expectEnd(run(), 0);
      expect(ended.report).toMatchObject(report);
      await expectFinished(out, { golden: await goldenRows(fixture) });
      return ended;
    },
    async [Symbol.asyncDispose]() {
      for (const one of [server, ...others]) {
        await one[Symbol.asyncDispose]();
      }
      await model[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

/** Lets blank rows through, with which a model is tried, so that faults meet rows of the input. */
export const onRows =
  (decide: Misbehave): Misbehave =>
  (request) =>
    isBlank(request) ? undefined : decide(request);

export const isBlank = ({ inputs }: V2Request): boolean =>
  [...(inputs[0]?.values ?? [])].every((value) => Number(value) === 0);

type Misbehave = NonNullable<V2Server["misbehave"]>;
