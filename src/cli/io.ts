/** What a command line uses of its process: Node's `process` is one. */
export interface Io {
  /** The result. */
  readonly stdout: Output;
  /** All else that is said. */
  readonly stderr: Output;
  exitCode?: number | string | null | undefined;
}

/** A stream of the process, or whatever takes text. */
export type Output = (NodeJS.WriteStream & { readonly fd: number }) | TextOutput;

interface TextOutput {
  readonly isTTY?: false;
  readonly fd?: undefined;
  write(text: string): unknown;
}
