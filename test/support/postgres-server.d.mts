export interface RunningServer {
  readonly port: number;
  readonly version: string;
  /** The authority's certificate, where TLS was asked for. */
  readonly certificate: string;
  url(database: string, user?: string): string;
  /** Starts it again after `kill`; recovery included. */
  start(): Promise<void>;
  /** SIGKILL: as when the machine dies. */
  kill(signal?: NodeJS.Signals): Promise<void>;
  stop(): Promise<void>;
}

/** Where the binaries are, or why there are none. */
export function findBinaries(): { readonly native: string } | { readonly missing: string };

/** Who may run a server: Postgres and PgBouncer refuse to run as root. */
export function unprivileged(): { readonly uid?: number; readonly gid?: number };

export function freePort(): Promise<number>;

export function startServer(
  native: string,
  options?: { readonly flags?: readonly string[]; readonly tls?: boolean },
): Promise<RunningServer>;
