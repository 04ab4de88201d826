import type { Provider } from "../spec/engine-spec.js";

/** The provider that `providers: auto` has chosen for an attempt, and why. */
export interface ProviderChoice {
  readonly provider: Provider;
  /** The reason, as a clause without a full stop. */
  readonly why: string;
  /** The measurements that the choice rests on; empty: nothing was measured. */
  readonly speeds: readonly {
    readonly provider: string;
    readonly rowsPerSecond: number;
    readonly startSeconds: number;
  }[];
  /** The providers that failed while they were tried. */
  readonly leftOut: readonly { readonly provider: string; readonly reason: string }[];
  /** When the speeds were measured, ISO 8601, UTC; null: nothing was measured. */
  readonly measuredAt: string | null;
}

/** The choice under its JSON names. */
export function choiceFields(choice: ProviderChoice): Readonly<Record<string, unknown>> {
  return {
    provider: choice.provider,
    why: choice.why,
    measured: choice.speeds.map(({ provider, rowsPerSecond, startSeconds }) => ({
      provider,
      rows_per_second: Math.round(rowsPerSecond),
      start_seconds: Math.round(startSeconds * 10) / 10,
    })),
    left_out: choice.leftOut.map(({ provider, reason }) => ({ provider, reason })),
    measured_at: choice.measuredAt,
  };
}
