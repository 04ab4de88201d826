interface Results {
  readonly machine: string;
  readonly versions: readonly string[];
  readonly short: boolean;
  readonly notRun: Readonly<Record<string, string>>;
  readonly parts: Readonly<Record<string, Part>>;
}

interface Part {
  readonly title: string;
  readonly rows: readonly (readonly string[])[];
  readonly command: string;
  readonly date: string;
  readonly commit?: string;
}

export const allProviders: readonly string[];

/** Says of each provider that does not run here why. @param doctor what `infer-batch doctor --json` prints */
export function whyNotRun(doctor: unknown): Record<string, string>;

/** Adds what was measured to what an earlier command has measured on the same machine. */
export function merge(earlier: Results | undefined, results: Results): Results;

/** The results as Markdown, with the parts in this order. */
export function formatResults(results: Results, order: readonly string[]): string;

/** Puts a text between the marks of a page. */
export function withResults(page: string, text: string): string;
