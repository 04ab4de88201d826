import { describe, expect, test } from "vitest";
import type { Engine, LocalEngine } from "#src/engine/port.js";
import type { ProviderMeasurements, ProviderTrial, ProviderTrials } from "#src/scoring/provider-trials.js";
import { type ChoiceOptions, chooseProvider } from "#src/run/providers/choose-provider.js";
import type { ProviderChoice } from "#src/report/provider-choice.js";
import type { Provider } from "#src/spec/engine-spec.js";
import { emptyContract } from "../../support/batches.js";

/** A model that takes so many milliseconds for a batch of 16 rows. */
function engineTaking(ms: number): Engine {
  return {
    signature: { inputs: [], outputs: [] },
    provider: "cpu",
    concurrency: 1,
    local: { sessions: 1 } as LocalEngine,
    run: ({ inputs }) => Promise.resolve({ kind: "done", outputs: [], ms, inputs }),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

const slowModel = engineTaking(1600); // 0.1 s for a row

type Speeds = Partial<Record<Provider, Partial<{ rowsPerSecond: number; startSeconds: number }> | string>>;

/** Trials with these results: a speed, or why there is none. Remembers as the cache does. */
function trialsWith(results: Speeds): ProviderTrials & { readonly measured: string[]; kept?: ProviderMeasurements } {
  const trials: ReturnType<typeof trialsWith> = {
    limits: { cpuSeconds: 30, modelSeconds: 3 },
    measured: [],
    contenders: () => Promise.resolve((Object.keys(results) as Provider[]).filter((provider) => provider !== "cpu")),
    measure(provider) {
      trials.measured.push(provider);
      const result = results[provider] ?? {};
      const trial: ProviderTrial =
        typeof result === "string"
          ? { kind: "left_out", provider, reason: result, isLasting: result.startsWith("lasting") }
          : { kind: "measured", speed: { provider, rowsPerSecond: 10, startSeconds: 1, ...result } };
      return Promise.resolve(trial);
    },
    find: () => Promise.resolve(trials.kept),
    keep(_sha256, found) {
      trials.kept = found;
      return Promise.resolve();
    },
  };
  return trials;
}

async function choose(
  trials: ProviderTrials,
  { rows = 10_000, engine = slowModel, ...options }: Partial<ChoiceOptions> = {},
): Promise<ProviderChoice> {
  const plan = { contract: emptyContract, model: { sha256: "a" } } as ChoiceOptions["plan"];
  const log = { info() {}, warn() {}, debug() {} };
  const context = { log, dateMs: () => 0, signal: new AbortController().signal };
  return await chooseProvider(context, { trials, plan, engine, rows, release: () => Promise.resolve(), ...options });
}

describe("the provider of an attempt with providers: auto", () => {
  test("auto takes the provider on which the rows left take the shortest time, and says how long on each", async () => {
    const trials = trialsWith({ cuda: { rowsPerSecond: 200, startSeconds: 5 }, webgpu: { rowsPerSecond: 50 } });
    const choice = await choose(trials);
    expect(choice).toMatchObject({ provider: "cuda", leftOut: [], measuredAt: "1970-01-01T00:00:00.000Z" });
    expect(choice.why).toBe("10,000 rows take about 17 min on cpu, about 55 s on cuda, about 3 min on webgpu");
    expect(trials.measured).toEqual(["cpu", "cuda", "webgpu"]);
  });

  test("auto stays on the CPU if another provider is hardly faster", async () => {
    expect(await choose(trialsWith({ webgpu: { rowsPerSecond: 10.5 } }))).toMatchObject({ provider: "cpu" });
  });

  test("auto measures nothing but the CPU if the CPU scores the run within 30 s", async () => {
    const trials = trialsWith({ webgpu: { rowsPerSecond: 1000 } });
    expect(await choose(trials, { rows: 290 })).toMatchObject({
      provider: "cpu",
      why: "290 rows take the CPU about 29 s",
    });
    expect(trials.measured).toEqual(["cpu"]);
  });

  test("auto measures nothing at all, and keeps the model open, if the model takes little time", async () => {
    const trials = trialsWith({ webgpu: { rowsPerSecond: 1000 } });
    let released = false;
    const release = (): Promise<void> => {
      released = true;
      return Promise.resolve();
    };
    expect(await choose(trials, { rows: 29, release })).toMatchObject({ provider: "cpu", measuredAt: null });
    expect([trials.measured, released]).toEqual([[], false]);
  });

  test("auto measures if the model refuses blank rows, so that its time is unknown", async () => {
    const refusing: Engine = {
      ...slowModel,
      run: ({ inputs }) => Promise.resolve({ kind: "failed", message: "no", inputs }),
    };
    const trials = trialsWith({ webgpu: {} });
    await choose(trials, { engine: refusing, rows: 20 });
    expect(trials.measured).toEqual(["cpu"]);
  });

  test("auto chooses the CPU for the few rows that a resumed attempt has left, from what an earlier run measured", async () => {
    const trials = trialsWith({ webgpu: { rowsPerSecond: 1000, startSeconds: 40 } });
    expect(await choose(trials)).toMatchObject({ provider: "webgpu" });
    trials.measured.length = 0;
    expect(await choose(trials)).toMatchObject({ provider: "webgpu" });
    expect(await choose(trials, { rows: 400 })).toMatchObject({ provider: "cpu" }); // 40 s, but the GPU starts in 40
    expect(await choose(trials, { rows: 100 })).toMatchObject({ provider: "cpu" });
    expect(await choose(trials, { rows: 0 })).toMatchObject({ provider: "cpu", why: "no row is left to score" });
    expect(trials.measured).toEqual([]);
  });

  test("auto leaves out a provider that fails, with the reason, and tries it again unless the reason lasts", async () => {
    const trials = trialsWith({ cuda: "CUDA failure 2: out of memory", webgpu: "lasting: no adapter" });
    const choice = await choose(trials);
    expect(choice.provider).toBe("cpu");
    expect(choice.leftOut).toEqual([
      { provider: "cuda", reason: "CUDA failure 2: out of memory" },
      { provider: "webgpu", reason: "lasting: no adapter" },
    ]);
    trials.measured.length = 0;
    await choose(trials);
    expect(trials.measured).toEqual(["cuda"]);
  });

  test("auto scores on the CPU if the CPU cannot be measured, and keeps nothing", async () => {
    const trials = trialsWith({ cpu: "reading a.parquet: it is damaged", webgpu: {} });
    const why = "the CPU could not be measured: reading a.parquet: it is damaged";
    expect(await choose(trials)).toMatchObject({ provider: "cpu", leftOut: [], why });
    expect([trials.measured, trials.kept]).toEqual([["cpu"], undefined]);
  });

  test("auto takes the CPU on a machine without the parts of another provider", async () => {
    const trials = trialsWith({ cpu: {} });
    expect(await choose(trials)).toMatchObject({ provider: "cpu", measuredAt: null });
    expect(trials.measured).toEqual([]);
  });
});
