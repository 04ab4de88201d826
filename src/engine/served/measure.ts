import type { ServedModel } from "../../binding/model-facts.js";
import type { Engine } from "../port.js";
import { blankRows } from "../../columnar/tensor.js";

/** The time of requests with so many rows. */
export interface BatchTime {
  readonly rows: number;
  readonly ms: number;
  readonly rowsPerSecond: number;
}

/** The throughput with so many requests in flight. */
export interface InFlightRate {
  readonly inFlight: number;
  readonly rowsPerSecond: number;
}

export interface Measured {
  /** From small batches to large ones; none: the model refuses blank rows. */
  readonly batches: readonly BatchTime[];
  /** Why no larger batch was measured; undefined: it was the largest. */
  readonly stopped: string | undefined;
  /** Rows of the batches that `inFlight` was measured with. */
  readonly bestRows: number;
  readonly inFlight: readonly InFlightRate[];
}

const batchSizes = [1, 16, 64, 256, 1024, 4096];
const rounds = 3;
/** No larger batch is tried after one that took longer. */
const slowMs = 3000;
/** Requests of a measurement, for each in flight. */
const requestsEach = 4;
const mostMs = 5000;
/** More requests in flight are tried while they raise the throughput by this share. */
const gain = 0.15;

/** Measures a server with blank rows, for some seconds: how long batches take, and what requests at once are worth. */
export async function measureServer(engine: Engine, { served }: ServedModel, nowMs: () => number): Promise<Measured> {
  const outputs = served.signature.outputs.map(({ name }) => name);
  const send = async (rows: number): Promise<string | undefined> => {
    const inputs = blankRows(served.signature.inputs, rows);
    if (inputs === undefined) {
      return "an input has a type that is not supported";
    }
    const response = await engine.run({ inputs, outputs, isBlank: true });
    return response.kind === "done" ? undefined : response.message;
  };
  const fixedRows = served.signature.inputs[0]?.shape[0];
  const sizes =
    typeof fixedRows === "number" ? [fixedRows] : batchSizes.filter((rows) => rows <= (engine.mostRows ?? rows));
  const batches: BatchTime[] = [];
  let stopped: string | undefined;
  for (const rows of sizes) {
    const times: number[] = [];
    for (let round = 0; round < rounds && stopped === undefined; round += 1) {
      const startMs = nowMs();
      stopped = await send(rows);
      times.push(nowMs() - startMs);
    }
    if (stopped !== undefined) {
      break;
    }
    const ms = Math.min(...times);
    batches.push({ rows, ms, rowsPerSecond: (rows / Math.max(ms, 0.001)) * 1000 });
    stopped = ms > slowMs ? `${rows} rows take ${Math.round(ms)} ms` : undefined;
  }
  const [best] = batches.toSorted((one, other) => other.rowsPerSecond - one.rowsPerSecond);
  const bestRows = best?.rows ?? 0;
  const inFlight =
    best === undefined ? [] : await measureInFlight(() => send(bestRows), bestRows, engine.concurrency, nowMs);
  return { batches, stopped, bestRows, inFlight };
}

async function measureInFlight(
  send: () => Promise<unknown>,
  rows: number,
  concurrency: number,
  nowMs: () => number,
): Promise<InFlightRate[]> {
  const rates: InFlightRate[] = [];
  const beganMs = nowMs();
  for (let inFlight = 1; inFlight <= concurrency && nowMs() - beganMs < mostMs; inFlight *= 2) {
    const startMs = nowMs();
    const sendSome = async (): Promise<void> => {
      for (let request = 0; request < requestsEach; request += 1) {
        await send();
      }
    };
    await Promise.all(Array.from({ length: inFlight }, sendSome));
    const seconds = Math.max(nowMs() - startMs, 0.001) / 1000;
    const rowsPerSecond = (inFlight * requestsEach * rows) / seconds;
    const before = rates.at(-1)?.rowsPerSecond ?? 0;
    rates.push({ inFlight, rowsPerSecond });
    if (rowsPerSecond < before * (1 + gain)) {
      break;
    }
  }
  return rates;
}
