import type { Provider } from "../spec/engine-spec.js";

/** How fast the whole job is on a provider: its rows are read, scored and written. */
export interface ProviderSpeed {
  readonly provider: Provider;
  readonly rowsPerSecond: number;
  /** Seconds before the first row, in which the model is loaded and prepared for the device. */
  readonly startSeconds: number;
}

/** A provider that cannot score the job. */
export interface LeftOutProvider {
  readonly provider: Provider;
  /** A message for people. */
  readonly reason: string;
  /** Whether another trial would find the same. */
  readonly isLasting: boolean;
}

/** The result of scoring the job's first rows on a provider. */
export type ProviderTrial =
  | { readonly kind: "measured"; readonly speed: ProviderSpeed }
  | ({ readonly kind: "left_out" } & LeftOutProvider);

/** The results of all trials of a job on this machine. */
export interface ProviderMeasurements {
  /** ISO 8601, UTC. */
  readonly measuredAt: string;
  readonly speeds: readonly ProviderSpeed[];
  readonly leftOut: readonly LeftOutProvider[];
}

/** The limits from which measuring pays. */
export interface TrialLimits {
  /** The CPU scores a run that takes no longer than this. */
  readonly cpuSeconds: number;
  /** No other provider can save more than the model takes: below this, nothing is measured. */
  readonly modelSeconds: number;
}

/** Measures providers for a job on this machine. */
export interface ProviderTrials {
  readonly limits: TrialLimits;
  /** Returns the providers other than the CPU that this machine has all parts for. */
  contenders(): Promise<readonly Provider[]>;
  /**
   * Scores the job's first rows on one provider in a process of its own, which publishes nothing.
   * @param firstRows the number of rows to begin with; more follow until they take long enough to be measured
   * @throws the reason of the attempt's signal
   */
  measure(provider: Provider, firstRows: number): Promise<ProviderTrial>;
  /** Returns what earlier runs measured; undefined: nothing. */
  find(modelSha256: string): Promise<ProviderMeasurements | undefined>;
  /** Keeps what was measured for later runs. Never throws: it can be measured again. */
  keep(modelSha256: string, measurements: ProviderMeasurements): Promise<void>;
}
