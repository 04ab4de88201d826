export const credentials: { readonly accessKeyId: string; readonly secretAccessKey: string };

/** Where the program is, built once by Go into a cache outside of the checkout; or why there is none. */
export function findServer(): { readonly program: string } | { readonly missing: string };

/** Waits until the server answers. */
export function untilReady(child: { readonly exitCode: number | null }, port: number, log: string): Promise<void>;

export function freePort(): Promise<number>;

/** What a process needs to reach a store at a port of this machine. */
export function s3Env(port: number): Record<string, string>;
