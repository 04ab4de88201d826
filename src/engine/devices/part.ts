/** A part of the machine or the installation that a provider needs. */
export interface Part {
  readonly name: string;
  /** optional: missing, and not every model needs it. */
  readonly state: "ok" | "missing" | "optional" | "unknown";
  readonly found: string;
  /** What to do about it. */
  readonly remedy?: string | undefined;
  /** Why a part is missing. device: the machine has a GPU, and it or its driver has failed. */
  readonly cause?: "device";
}

/** Describes the missing parts for an error; undefined if none is missing. */
export function missingText(parts: readonly Part[]): string | undefined {
  const missing = parts.filter(({ state }) => state === "missing");
  return missing.length === 0 ? undefined : missing.map(({ name, found }) => `${name}: ${found}`).join("; ");
}
