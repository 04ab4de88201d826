import type { JobContext } from "../scoring/context.js";
import type { LoadedSpec } from "../spec/load.js";
import type { TargetSpecs } from "../spec/parquet-spec.js";
import { openSink, type SinkOptions } from "./open-sink.js";

/** The longest time from the first failure of a call to the target of a challenger's predictions to its last try. */
const keptRetrySeconds = 30;

/** How the target of the challenger's predictions is opened; undefined: they are not kept. */
export function challengerSink(
  { spec, challengerPattern, variablesOf, where }: LoadedSpec,
  options: Omit<SinkOptions, "outputPattern" | "variablesOf" | "where">,
): JobContext["openChallengerSink"] {
  const { challenger, output } = spec;
  const target = challenger?.output;
  return target === undefined
    ? undefined
    : () =>
        openSink(
          { ...spec, output: { columns: output.columns, lineage: false, ...withShortTimeouts(target) } },
          {
            ...options,
            // The published rows do not wait for it: without it, predictions are not kept, with a warning.
            retry: { ...options.retry, maxSeconds: Math.min(options.retry.maxSeconds, keptRetrySeconds) },
            outputPattern: challengerPattern,
            variablesOf: (path) => variablesOf(["challenger", ...path]),
            where: (path) => where(["challenger", ...path]),
          },
        );
}

/** The longest time in seconds of one request or statement for the target of a challenger's predictions. */
const keptRequestSeconds = 60;

function atMost(seconds = keptRequestSeconds): number {
  return Math.min(seconds, keptRequestSeconds);
}

/** A target that hangs delays the run until its timeouts have passed. */
function withShortTimeouts({ parquet, postgres }: TargetSpecs): TargetSpecs {
  const { connect = 10, silence = 20, request } = parquet?.timeouts ?? {};
  const ofStore = { connect: atMost(connect), silence: atMost(silence), request: atMost(request) };
  const { connect: toDatabase, statement, lock } = postgres?.timeouts ?? {};
  const ofDatabase = { connect: atMost(toDatabase), statement: atMost(statement), lock: atMost(lock) };
  return {
    parquet: parquet && { ...parquet, timeouts: ofStore },
    postgres: postgres && { ...postgres, timeouts: ofDatabase },
  };
}
