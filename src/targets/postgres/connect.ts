import { readFileSync } from "node:fs";
import { userInfo } from "node:os";
import { checkServerIdentity, type ConnectionOptions } from "node:tls";
import pgpass from "pgpass";
import { JobError, messageOf } from "../../base/errors.js";
import type { PostgresOutputSpec, PostgresTls } from "../../job/jobfile/output-spec.js";

/** How to reach a server. Only the password is secret: it is read when a connection needs it, and not kept. */
export interface ConnectionSettings {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
  /** Called for each connection. */
  readonly password: () => Promise<string | undefined>;
  /** Whether the password is read from a file each time. A given password stays as it was when this process started. */
  readonly passwordMayChange: boolean;
  readonly ssl: ConnectionOptions | false;
  /** `host:port/database`, for people. */
  readonly server: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

const doing = "reading output.postgres.url";
const knownParameters = new Set([
  "host",
  "sslmode",
  "sslrootcert",
  "sslcert",
  "sslkey",
  "application_name",
  "connect_timeout",
]);

/** `variables`: the environment variables that the URL was made from; the URL itself is never quoted. */
function readingUrl(variables: readonly string[]): string {
  return variables.length === 0 ? doing : `${doing}, made from ${variables.map((name) => `\${${name}}`).join(" and ")}`;
}

/** What a spec says that may be secret, as it is now. */
export type Secrets = Pick<PostgresOutputSpec, "url" | "password">;

interface SecretSources {
  /** Environment variables that the URL was made from. */
  readonly variables?: readonly string[];
  /** Reads the files that hold them anew; undefined: they stay the same in this process. */
  readonly reread?: (() => Promise<Secrets>) | undefined;
}

/**
 * The connection settings of a URL; what it leaves out comes from libpq's environment variables, then from libpq's
 * defaults.
 * @throws JobError SPEC_INVALID, which never quotes the URL
 */
export function connectionOf(
  { url, password, tls }: Secrets & Pick<PostgresOutputSpec, "tls">,
  env: Environment,
  { variables = [], reread }: SecretSources = {},
): ConnectionSettings {
  const parsed = parseUrl(url, readingUrl(variables));
  const parameter = (name: string, variable: string): string | undefined =>
    parsed?.searchParams.get(name) ?? nonEmpty(env[variable]);
  const host = nonEmpty(parsed?.searchParams.get("host")) ?? urlHost(parsed) ?? nonEmpty(env["PGHOST"]) ?? "localhost";
  const port = Number(nonEmpty(parsed?.port) ?? nonEmpty(env["PGPORT"]) ?? "5432");
  if (!Number.isInteger(port) || port < 1 || port > 65_535) {
    throw new JobError("SPEC_INVALID", `${doing}: the port is not a number from 1 to 65535`);
  }
  const user = nonEmpty(decoded(parsed?.username)) ?? nonEmpty(env["PGUSER"]) ?? ownName();
  const database = nonEmpty(decoded(parsed?.pathname.slice(1))) ?? nonEmpty(env["PGDATABASE"]) ?? user;
  const given = passwordIn({ url, password }, env);
  const files = {
    ca: parameter("sslrootcert", "PGSSLROOTCERT"),
    cert: parameter("sslcert", "PGSSLCERT"),
    key: parameter("sslkey", "PGSSLKEY"),
  };
  return {
    host,
    port,
    user,
    database,
    passwordMayChange: given === undefined || reread !== undefined,
    async password() {
      const now = reread === undefined ? given : passwordIn(await reread(), env);
      return now ?? (await passwordFromFile({ host, port, user, database }));
    },
    ssl: sslOf(tlsMode(host, parameter("sslmode", "PGSSLMODE"), tls), host, files),
    server: `${host}:${port}/${database}`,
  };
}

/** Once a run has begun, only the password of a URL may change: the pool keeps its other parts. */
function passwordIn({ url, password }: Secrets, env: Environment): string | undefined {
  const { password: inUrl } = parseUrl(url, doing) ?? {};
  return nonEmpty(password) ?? nonEmpty(decoded(inUrl)) ?? nonEmpty(env["PGPASSWORD"]);
}

function ownName(): string {
  try {
    return userInfo().username;
  } catch (cause) {
    // In a container, a user may have no name.
    throw new JobError("SPEC_INVALID", `${doing}: it names no user, and the user of this process has no name`, {
      hint: "name it in the URL, or set PGUSER",
      cause,
    });
  }
}

function parseUrl(url: string, reading: string): URL | undefined {
  if (url === "") {
    return undefined;
  }
  let parsed: URL;
  try {
    parsed = new URL(url);
    if (!/^postgres(ql)?:$/.test(parsed.protocol)) {
      throw new Error("of another protocol");
    }
  } catch {
    throw new JobError("SPEC_INVALID", `${reading}: it is not a URL of Postgres`, {
      hint: "expected postgres://user:password@host:port/database, with %xx for characters that mean something in URLs",
    });
  }
  // `postgres://ana:12/34@host/db` parses as host `ana`, port 12: a message would show the rest of the password as the
  // database.
  if (`${parsed.pathname}${parsed.search}${parsed.hash}`.includes("@") || parsed.hash !== "") {
    throw new JobError("SPEC_INVALID", `${reading}: there is an @ or a # behind the host`, {
      hint: "write %2F for a / in a password, %3F for a ?, %23 for a # and %40 for an @",
    });
  }
  const unknown = [...parsed.searchParams.keys()].filter((name) => !knownParameters.has(name));
  if (unknown.length > 0) {
    const named = unknown.every((name) => /^[a-z_]+$/.test(name)) ? unknown.join(", ") : "of that name";
    throw new JobError("SPEC_INVALID", `${reading}: parameter ${named} is not known`, {
      hint: `known are ${[...knownParameters].join(", ")}`,
    });
  }
  for (const part of [parsed.username, parsed.password, parsed.hostname, parsed.pathname]) {
    refuseUndecodable(part, reading);
  }
  return parsed;
}

function refuseUndecodable(part: string, reading: string): void {
  try {
    decodeURIComponent(part);
  } catch {
    throw new JobError("SPEC_INVALID", `${reading}: a % in it is not followed by two hex digits`, {
      hint: "write %25 for a % in a password",
    });
  }
}

/** An IPv6 address is in brackets in a URL. */
function urlHost(parsed: URL | undefined): string | undefined {
  return nonEmpty(decoded(parsed?.hostname)?.replace(/^\[(.*)\]$/, "$1"));
}

function nonEmpty(text: string | null | undefined): string | undefined {
  return text === null || text === "" ? undefined : text;
}

function decoded(text: string | undefined): string | undefined {
  return text === undefined ? undefined : decodeURIComponent(text);
}

async function passwordFromFile(of: {
  host: string;
  port: number;
  user: string;
  database: string;
}): Promise<string | undefined> {
  return await new Promise((resolve) => {
    pgpass(of, resolve);
  });
}

type TlsMode = PostgresTls | "none";

/** Certificates of other machines are checked unless the spec itself says otherwise. */
function tlsMode(host: string, sslmode: string | undefined, asked: PostgresTls | undefined): TlsMode {
  if (asked !== undefined) {
    return asked === "disable" ? "none" : asked;
  }
  const here = host.startsWith("/") || host === "localhost" || host === "::1" || /^127\.\d+\.\d+\.\d+$/.test(host);
  if (here) {
    return sslmode === undefined || /^(disable|allow|prefer)$/.test(sslmode)
      ? "none"
      : sslmode === "verify-full" || sslmode === "verify-ca"
        ? "verify-full"
        : "require";
  }
  if (sslmode === "disable") {
    throw new JobError("SPEC_INVALID", `${doing}: sslmode=disable would send rows to ${host} without encryption`, {
      hint: "write output.postgres.tls: disable in the spec if that is meant",
    });
  }
  return "verify-full";
}

function sslOf(
  mode: TlsMode,
  host: string,
  { ca, cert, key }: { ca: string | undefined; cert: string | undefined; key: string | undefined },
): ConnectionOptions | false {
  if (mode === "none" || mode === "disable") {
    return false;
  }
  const verify = mode === "verify-full";
  return {
    ...(ca === undefined || ca === "system" ? {} : { ca: readPem(ca, "sslrootcert") }),
    ...(cert === undefined ? {} : { cert: readPem(cert, "sslcert") }),
    ...(key === undefined ? {} : { key: readPem(key, "sslkey") }),
    rejectUnauthorized: verify,
    // Checks the name that was asked for: Node does not know it where it is an address.
    checkServerIdentity: (_name, certificate) => (verify ? checkServerIdentity(host, certificate) : undefined),
  };
}

function readPem(path: string, name: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new JobError("FILE_MISSING", `reading ${name} ${path}: ${messageOf(cause)}`, { cause });
  }
}
