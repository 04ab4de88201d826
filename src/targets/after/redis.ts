import type { KeyedColumns, KeyValues } from "../../duckdb/key-values.js";
import {
  errnoOf,
  type ErrorCode,
  isCertificateError,
  isTlsProtocolError,
  JobError,
  messageOf,
} from "../../base/errors.js";
import { type RetryTools, type RetryVerdict, tryAgain } from "../../base/retry.js";
import { hideCredentials } from "../../job/jobfile/secrets.js";
import { outputColumns } from "../../models/binding/contract.js";
import { logicalDateOf } from "../../run/lifecycle/published-run.js";
import { isDateText, splitRunId } from "../../run/plan/identity.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import type { RunSink } from "../target.js";
import type { After } from "./after.js";

/*
 * What is in Redis, for the prefix P, which is the name of the job by default:
 *
 * - `P:current`: the id of the run that readers have, a text. It expires after the ttl.
 * - `P:<run id>:<key>`: a row, a JSON object of `columns`: {"score":0.25}. Floats have their shortest digits, integers
 *   all of theirs, texts, dates and timestamps are texts, lists are lists; NULL, NaN and infinity are null. A key of one
 *   column is its text; of several, their texts joined by `:`, with %25 and %3A for % and : in them. A row whose key is
 *   NULL has none; of rows with one key, the last one is there. They expire a minute after `P:current` does.
 * - `P:{P:current}:newest`: which run is current, and its place in the order of runs. It does not expire, so that an
 *   older run is never set later. In a cluster it is where `P:current` is: what stands in braces decides.
 * - `P:{P:current}:<run id>`: how far the publication of a run has come.
 *
 * A reader takes two GETs: of `P:current`, then of the key. The rows of a run are all there before it is current, and as
 * long as it is; of one that was current before, until they expire, so that a reader between two GETs finds its row.
 *
 * Redis may lose what it has: a server that was restarted is another one, and then all rows are written again.
 */

/** What a job says of Redis. */
export interface RedisOptions {
  readonly prefix: string;
  readonly key: readonly string[];
  readonly columns: readonly string[];
  readonly ttlSeconds: number;
  /** Its host and port, as messages name it. */
  readonly place: string;
  /** Reads secrets and files as they are now. */
  readonly settings: () => Promise<RedisSettings>;
  /** The param that is an hour, which orders runs as dates do; undefined: there is none. */
  readonly hourParam: string | undefined;
  /** Yields the files of a published run, each time in the same order. */
  readonly read: (run: RunSink, named: KeyedColumns) => AsyncIterable<() => AsyncIterable<KeyValues>>;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
  readonly info: (message: string) => void;
}

export interface RedisSettings {
  readonly url: string;
  readonly password: string | undefined;
  /** In PEM. */
  readonly ca: string | undefined;
}

/** The run that is current, as Redis stores it. */
interface NewestRun {
  readonly runId: RunId;
  /** Runs are compared by the first text that differs. */
  readonly order: readonly string[];
  /** What all runs of the prefix share: job and params, without dates. */
  readonly series: string;
}

/** How far a publication has come. */
interface Progress {
  /** Files whose rows are all there. */
  readonly files: number;
  readonly isWhole: boolean;
  /** When `P:current` expires, in seconds since 1970. */
  readonly until: number;
  /** The servers that were given rows, as they name themselves since they were started. */
  readonly servers: string;
  /** What the rows are like. */
  readonly columns: string;
}

/** Rows last longer than `P:current`, by a difference of clocks that servers of a cluster may have. */
const spareSeconds = 60;

/** Opens Redis, for the rows of published runs. The client is loaded when it is used. */
export function openRedis(options: RedisOptions): After {
  const { prefix, key, columns, ttlSeconds, retry, signal, info } = options;
  const place = `Redis at ${options.place}`;
  const current = `${prefix}:current`;
  const newestKey = `${prefix}:{${current}}:newest`;

  const named = ({ contract, runId }: Plan): KeyedColumns => {
    const all = outputColumns(contract);
    const find = (at: "key" | "columns", isKey: boolean) => (name: string) => {
      const column = all.find((output) => output.name === name);
      const isNested = typeof column?.type === "object" && column.type.kind !== "decimal";
      if (column === undefined || (isKey && isNested)) {
        const found =
          column === undefined ? `the output has no column ${name}` : `column ${name} has a list or a struct`;
        throw new JobError("CONTRACT", `planning run ${runId}: publish.redis.${at}: ${found}`, {
          hint: `the output has ${all.map((output) => output.name).join(", ")}`,
        });
      }
      return column;
    };
    return { key: key.map(find("key", true)), columns: columns.map(find("columns", false)) };
  };

  const retried = <T>(doing: string, work: (servers: Servers) => Promise<T>): Promise<T> =>
    tryAgain(
      doing,
      retry,
      { judge: (error) => judge(doing, error), code: "NETWORK", hint: "see that it answers" },
      async () => {
        signal.throwIfAborted();
        await using servers = await connect(await options.settings(), current);
        return await work(servers);
      },
    );

  /** The run that is current, and the text that says so. @throws JobError USAGE for that of another series */
  const readNewest = async (
    servers: Servers,
    doing: string,
    series: string,
  ): Promise<{ readonly newest: NewestRun | undefined; readonly text: string }> => {
    const text = ((await servers.ask("GET", newestKey)) as string | null) ?? "";
    const newest = text === "" ? undefined : (JSON.parse(text) as NewestRun);
    if (newest !== undefined && newest.series !== series) {
      throw new JobError("USAGE", `${doing}: ${current} belongs to ${newest.series}, and this run to ${series}`, {
        hint: `give them prefixes of their own: publish.redis.prefix; or delete the key ${newestKey} if the others are no more`,
      });
    }
    return { newest, text };
  };

  /** Writes the rows that are not there yet. Returns when they expire. */
  const writeRows = async (servers: Servers, run: RunSink): Promise<Progress> => {
    const { plan } = run;
    const progressKey = `${prefix}:{${current}}:${plan.runId}`;
    const now = Number(((await servers.ask("TIME")) as string[])[0]);
    const stored = (await servers.ask("GET", progressKey)) as string | null;
    const known = JSON.parse(stored ?? "null") as Progress | null;
    const fresh: Progress = {
      files: 0,
      isWhole: false,
      until: now + ttlSeconds,
      servers: servers.ids,
      columns: JSON.stringify([key, columns]),
    };
    const goesOn =
      known !== null &&
      known.servers === fresh.servers &&
      known.columns === fresh.columns &&
      known.until - now > ttlSeconds / 2;
    let progress = goesOn ? known : fresh;
    if (progress.isWhole) {
      return progress;
    }
    const save = async (next: Progress): Promise<void> => {
      progress = next;
      await servers.ask("SET", progressKey, JSON.stringify(progress), "EXAT", String(progress.until));
    };
    const expires = String(progress.until + spareSeconds);
    let [file, rows, unnamed] = [0, 0, 0];
    for await (const read of options.read(run, named(plan))) {
      file += 1;
      if (file <= progress.files) {
        continue;
      }
      for await (const { keys, values } of read()) {
        signal.throwIfAborted();
        const commands = keys.flatMap((text, row) =>
          text === null ? [] : [["SET", `${prefix}:${plan.runId}:${text}`, values[row] ?? "", "EXAT", expires]],
        );
        await servers.send(commands);
        rows += commands.length;
        unnamed += keys.length - commands.length;
      }
      await save({ ...progress, files: file });
    }
    if (unnamed > 0) {
      retry.warn(`publishing run ${plan.runId} to ${place}: ${unnamed} rows have no key, and cannot be looked up`);
    }
    if ((await servers.readIds()) !== progress.servers) {
      throw new PassingError("a server was restarted, and may have lost rows");
    }
    await save({ ...progress, isWhole: true });
    info(`wrote ${rows} rows of run ${plan.runId} to ${place}`);
    return progress;
  };

  return {
    place,
    warn: retry.warn,
    check: (plan) => void named(plan),
    async rehearse(plan) {
      const doing = `checking ${place}`;
      await retried(doing, (servers) => readNewest(servers, doing, placeInOrder(plan, options.hourParam).series));
    },
    async publish(run, isWithdrawn) {
      const { runId } = run.plan;
      const doing = `publishing run ${runId} to ${place}`;
      const own = { runId, ...placeInOrder(run.plan, options.hourParam) };
      await retried(doing, async (servers) => {
        const { newest, text } = await readNewest(servers, doing, own.series);
        if (newest !== undefined && isNewer(newest, own) && !(await isWithdrawn(newest.runId))) {
          info(`run ${newest.runId} is newer than ${runId}, and stays current in ${place}`);
          return;
        }
        const { until } = await writeRows(servers, run);
        const keys = ["2", newestKey, current];
        if (Number(await servers.ask("EVAL", swap, ...keys, text, JSON.stringify(own), runId, String(until))) === 0) {
          throw new PassingError("another run was published meanwhile");
        }
      });
    },
  };
}

/** Sets the current run, if the newest one is still the one that it was compared with. */
const swap = `if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'EXAT', ARGV[4])
return 1`;

/** Dates order the runs of a series, then the hour, then their numbers. */
function placeInOrder(plan: Plan, hourParam: string | undefined): Pick<NewestRun, "order" | "series"> {
  const params = Object.entries(plan.params).toSorted(([one], [other]) => (one < other ? -1 : 1));
  const isTime = ([name, value]: readonly [string, string]): boolean => name === hourParam || isDateText(value);
  const times = params.filter((param) => isTime(param) && param[0] !== plan.dateParam && param[0] !== hourParam);
  const hour = hourParam === undefined ? "" : (plan.params[hourParam] ?? "");
  const number = String(splitRunId(plan.runId).number).padStart(9, "0");
  const others = params.filter((param) => !isTime(param)).map(([name, value]) => `${name}=${value}`);
  return {
    order: [logicalDateOf(plan) ?? "", hour, ...times.map(([, value]) => value), number],
    series: [`job ${plan.job}`, ...others].join(", "),
  };
}

function isNewer(one: NewestRun, other: NewestRun): boolean {
  const at = one.order.findIndex((text, index) => text !== other.order[index]);
  return at >= 0 && (one.order[at] ?? "") > (other.order[at] ?? "");
}

/** What passes, and is no error of the client. */
class PassingError extends Error {}

type Command = string[];

/** The servers that have the keys: one, or the masters of a cluster. */
interface Servers extends AsyncDisposable {
  /** Names them as long as none is restarted or replaced. */
  readonly ids: string;
  readIds(): Promise<string>;
  /** Asks the server of `P:current`. */
  ask(...command: Command): Promise<unknown>;
  /** Sends commands whose second words are keys, each server its own. @throws if one of them fails */
  send(commands: readonly Command[]): Promise<void>;
}

/** A connection to one server, as far as it is used. */
interface Client {
  sendCommand(command: Command): Promise<unknown>;
  multi(): { addCommand(command: Command): unknown; execAsPipeline(): Promise<unknown> };
}

/** A server that is silent for so long does not answer any more. */
const silenceMs = 60_000;

/** Connects to a server; if it is one of a cluster, to all masters. Nothing is sent twice: who asks connects anew. */
async function connect({ url, password, ca }: RedisSettings, current: string): Promise<Servers> {
  const { createClient, createCluster } = await import("@redis/client");
  const { hostname, port, protocol, pathname, ...login } = partsOf(url);
  const secret = password ?? login.password;
  const tls = protocol === "rediss:" ? { tls: true as const, ...(ca === undefined ? {} : { ca }) } : {};
  const place = { host: hostname.replaceAll(/[[\]]/g, ""), port: Number(port === "" ? 6379 : port) };
  const common = {
    RESP: 2,
    disableClientInfo: true,
    ...(login.username === "" ? {} : { username: login.username }),
    ...(secret === "" ? {} : { password: secret }),
    socket: { connectTimeout: 10_000, reconnectStrategy: false, ...tls },
  } as const;
  const closing: (() => unknown)[] = [];
  const opened = async <T extends { on(event: "error", does: () => void): unknown; connect(): Promise<unknown> }>(
    client: T,
    close: () => unknown,
  ): Promise<T> => {
    client.on("error", () => undefined); // each call that fails says so
    closing.push(close);
    await answered(client.connect());
    return client;
  };
  const close = (): void => {
    for (const closes of closing.splice(0)) {
      closes();
    }
  };

  try {
    const database = Number(pathname.slice(1));
    const one = createClient({ ...common, database, socket: { ...common.socket, ...place } });
    let clients: readonly Client[] = [await opened(one, () => one.isOpen && one.destroy())];
    let bySlot: readonly number[] = [];
    const facts = await answered<unknown>(one.sendCommand(["INFO", "cluster"]));
    if (String(facts).includes("cluster_enabled:1")) {
      const cluster = createCluster({
        rootNodes: [{ ...common, socket: { ...common.socket, ...place } }],
        defaults: common,
      });
      await opened(cluster, () => cluster.isOpen && cluster.destroy());
      const { masters } = cluster;
      clients = await answered(Promise.all(masters.map((master) => cluster.nodeClient(master))));
      bySlot = cluster.slots.map(({ master }) => masters.findIndex(({ id }) => id === master.id));
    }
    const clientOf = (key: string): number => (bySlot.length === 0 ? 0 : (bySlot[slotOf(key)] ?? 0));
    const readIds = async (): Promise<string> => {
      const infos = await answered(Promise.all(clients.map((client) => client.sendCommand(["INFO", "server"]))));
      return infos
        .map((info) => /run_id:(\w+)/.exec(String(info))?.[1] ?? "")
        .toSorted()
        .join();
    };
    const send = async (client: Client, commands: readonly Command[]): Promise<void> => {
      const pipeline = client.multi();
      for (const command of commands) {
        pipeline.addCommand(command);
      }
      await answered(pipeline.execAsPipeline());
    };
    return {
      ids: await readIds(),
      readIds,
      ask: async (...command) => await answered((clients[clientOf(current)] as Client).sendCommand(command)),
      async send(commands) {
        const shares = clients.map((): Command[] => []);
        for (const command of commands) {
          shares[clientOf(command[1] ?? "")]?.push(command);
        }
        await Promise.all(clients.map((client, index) => send(client, shares[index] ?? [])));
      },
      [Symbol.asyncDispose]: () => Promise.resolve(close()),
    };
  } catch (error) {
    close();
    throw error;
  }
}

/** The parts of a URL that was checked before. No error has it, because it may have a password. @throws JobError SPEC_INVALID */
function partsOf(url: string): Pick<URL, "hostname" | "port" | "protocol" | "pathname" | "username" | "password"> {
  if (!/^rediss?:\/\//.test(url) || !URL.canParse(url)) {
    throw new JobError("SPEC_INVALID", "reading publish.redis.url: expected redis://… or rediss://…");
  }
  const { hostname, port, protocol, pathname, username, password } = new URL(url);
  const [name, secret] = [username, password].map(decodeURIComponent) as [string, string];
  return { hostname, port, protocol, pathname, username: name, password: secret };
}

/** The slot of a key in a cluster, of 16384: the CRC16 of the key, or of what stands in its first braces. */
function slotOf(key: string): number {
  const [, tag = key] = /^[^{]*\{([^}]+)\}/.exec(key) ?? [];
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) {
      crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
    }
    crc &= 0xffff;
  }
  return crc % 16_384;
}

/** What a call of the client ends with that fails; `cause` is its error. */
class CallError extends Error {}

/** Waits for a call of the client. @throws CallError if it fails, or there is no answer for too long */
async function answered<T>(call: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer for ${silenceMs / 1000} s`)), silenceMs);
  });
  try {
    return await Promise.race([call, silence]);
  } catch (error) {
    throw new CallError("a call of the client failed", { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

/** Whether a call is made again; replies of the server begin with a word that says what is wrong. */
function judge(doing: string, error: unknown): RetryVerdict {
  if (error instanceof PassingError) {
    return { kind: "again", found: error.message };
  }
  if (!(error instanceof CallError)) {
    return { kind: "end", error };
  }
  const { cause } = error;
  const { replies = [], errors = [] } = cause as { replies?: readonly Error[]; errors?: readonly Error[] };
  const first = replies[0] ?? errors[0] ?? cause;
  const errno = errnoOf(first);
  const found = hideCredentials(messageOf(first)).split("\n", 1)[0] || (errno ?? "no answer");
  const end = (code: ErrorCode, hint: string): RetryVerdict => ({
    kind: "end",
    error: new JobError(code, `${doing}: ${found}`, { hint, cause: first }),
  });
  if (/^(WRONGPASS|NOAUTH|NOPERM)|^ERR (AUTH|invalid password)/.test(found)) {
    return end(
      "PERMISSION",
      "correct the user and the password of publish.redis, or what the server lets that user do",
    );
  }
  if (errno !== undefined && (isCertificateError(errno) || isTlsProtocolError(errno))) {
    return end(
      "USAGE",
      "name the authorities of the server's certificate in publish.redis.ca, and the server as its certificate does",
    );
  }
  if (/^ERR (unknown command|syntax error|DB index)/.test(found)) {
    return end("USAGE", "publish.redis takes Redis 6.2 or later, or Valkey");
  }
  return { kind: "again", found };
}
