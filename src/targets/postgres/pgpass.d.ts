declare module "pgpass" {
  /** Finds a password in `PGPASSFILE` or `~/.pgpass`; undefined when there is none. */
  export default function pgpass(
    connection: { host: string; port: number; user: string; database: string },
    callback: (password: string | undefined) => void,
  ): void;
}
