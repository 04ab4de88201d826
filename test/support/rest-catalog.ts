import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, openSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { buildOnce, cacheFolder } from "./build-once.mjs";
import { projectFolder } from "./cli.js";
import { fetchJars } from "./jars.js";
import { lakeWriter } from "./lake-writers.js";
import { ended } from "./line-program.js";
import { credentials, freePort, untilReady } from "./s3-server.mjs";

const lakes = join(projectFolder, "test/support/lakes");

/** Where the jars of Iceberg's own REST catalog are, fetched once by Maven; or why there are none. */
export function findRestCatalog(): { readonly jars: string } | { readonly missing: string } {
  const jars = join(cacheFolder("iceberg-rest-1.10.0"), "jars");
  const failed = fetchJars(jars, join(lakes, "rest-pom.xml"), "Iceberg's REST catalog");
  return failed === undefined ? { jars } : { missing: failed };
}

/** The compiled program: Java compiles a source anew at each start, which takes longer than the catalog itself. */
function compileOnce(jars: string): string {
  const source = join(lakes, "RestCatalog.java");
  const digest = createHash("sha256").update(readFileSync(source)).digest("hex").slice(0, 12);
  const classes = join(cacheFolder(`iceberg-rest-program-${digest}`), "classes");
  buildOnce(classes, (making) => {
    const compiled = spawnSync("javac", ["-cp", join(jars, "*"), "-d", join(making, "classes"), source], {
      encoding: "utf8",
    });
    if (compiled.status !== 0) {
      throw new Error(`javac failed: ${compiled.error?.message ?? compiled.stderr}`);
    }
    renameSync(join(making, "classes"), classes);
    return undefined;
  });
  return classes;
}

export interface RestCatalogServer {
  readonly url: string;
  stop(): Promise<void>;
}

export const catalogToken = "a-token-of-tests";

/** Starts it. @param endpoint of S3, in which tables are, below `warehouse`; "": they are on the disk */
export async function startRestCatalog(jars: string, warehouse: string, endpoint: string): Promise<RestCatalogServer> {
  const port = await freePort();
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-catalog-"));
  const log = join(scratch, "log");
  const out = openSync(log, "a");
  const { accessKeyId, secretAccessKey } = credentials;
  const args = [
    String(port),
    warehouse,
    catalogToken,
    endpoint,
    accessKeyId,
    secretAccessKey,
    join(scratch, "catalog.db"),
  ];
  // It starts once and does little: code that is compiled in haste and one thread for garbage cost it least.
  const flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];
  const classPath = [compileOnce(jars), join(jars, "*")].join(delimiter);
  const program = [...flags, "-cp", classPath, "RestCatalog", ...args];
  const child = spawn("java", program, { stdio: ["ignore", out, out] });
  const last = (): void => void child.kill("SIGKILL");
  process.on("exit", last);
  await untilReady(child, port, log);
  return {
    url: `http://127.0.0.1:${port}`,
    async stop() {
      await ended(child);
      process.off("exit", last);
      rmSync(scratch, { recursive: true, force: true });
    },
  };
}

export interface WrittenTable {
  readonly rows: readonly Readonly<Record<string, unknown>>[];
  readonly snapshot: string;
  readonly at_ms: number;
  readonly uuid: string;
  readonly metadata: string;
  readonly location: string;
}

/** pyiceberg, which writes tables through a catalog. */
export interface TableWriter {
  /** make, change, grow or tag a table: its rows, and its version. */
  act(act: "make" | "change" | "grow" | "tag" | "drop", table: string): Promise<WrittenTable>;
  stop(): Promise<void>;
}

export function startWriter(catalog: string, endpoint: string): TableWriter {
  const { accessKeyId, secretAccessKey } = credentials;
  const args = [catalog, endpoint, accessKeyId, secretAccessKey];
  // versitygw refuses uploads after one whose checksum comes behind its body, on the same connection.
  const writer = lakeWriter("named_tables.py", args, { AWS_REQUEST_CHECKSUM_CALCULATION: "when_required" });
  return {
    act: async (act, table) => JSON.parse(await writer.ask(JSON.stringify([act, table]))) as WrittenTable,
    stop: async () => await writer[Symbol.asyncDispose](),
  };
}
