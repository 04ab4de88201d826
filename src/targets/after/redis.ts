import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { ColumnType, NamedColumn } from "../../columns/types.js";
import { jsonOf } from "../../columns/value-text.js";
import type { KeyedColumns, KeyValues } from "../../duckdb/key-values.js";
import {
  errnoOf,
  type ErrorCode,
  isCertificateError,
  isTlsProtocolError,
  JobError,
  messageOf,
} from "../../base/errors.js";
import { within } from "../../base/promises.js";
import { sha256Of } from "../../base/sha256.js";
import { type RetryTools, type RetryVerdict, tryAgain } from "../../base/retry.js";
import { isRedisUrl, type RedisSpec } from "../../job/jobfile/publish-spec.js";
import { hideCredentials } from "../../job/jobfile/secrets.js";
import { outputColumns, scoredColumns } from "../../models/binding/contract.js";
import { logicalDateOf } from "../../run/lifecycle/published-run.js";
import { isDateText, splitRunId } from "../../run/plan/identity.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import type { RunSink } from "../target.js";
import type { After } from "./after.js";

/*
 * What is in Redis, for the prefix P, which is the name of the job by default:
 *
 * - `P:current`: what readers have, a text: the id of a run, and what tells its rows from those of another plan, key or
 *   columns of that run (below: R). It expires after the ttl.
 * - `P:R:<key>`: a row, a JSON object of `columns`: {"score":0.25}, as `membersOf` spells it. A key of one
 *   column is its text; of several, their texts joined by `:`, with %25 and %3A for % and : in them. A row whose key is
 *   NULL has none; of rows with one key, the last one is there. They expire a minute after `P:current` does.
 * - `P:{P:current}:newest`: which run is current, and its place in the order of runs. It does not expire, so that an
 *   older run is never set later. In a cluster it is where `P:current` is: what stands in braces decides.
 * - `P:{P:current}:R`: how far the publication of a run has come.
 *
 * A reader takes two GETs: of `P:current`, then of the key. The rows of a run are all there before it is current, and as
 * long as it is; of one that was current before, until they expire, so that a reader between two GETs finds its row.
 *
 * Redis may lose what it has: a server that was restarted is another one, and then all rows are written again.
 */

export interface RedisOptions {
  readonly spec: RedisSpec;
  readonly job: string;
  /** The param that is an hour, which orders runs as dates do; undefined: there is none. */
  readonly hourParam: string | undefined;
  readonly place: string;
  /** Reads secrets and files as they are now. */
  readonly login: () => Promise<RedisLogin>;
  /** Yields the files of a published run, each time in the same order. */
  readonly read: (run: RunSink, named: KeyedColumns) => AsyncIterable<() => AsyncIterable<KeyValues>>;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
  readonly info: (message: string) => void;
}

export interface RedisLogin extends Pick<RedisSpec, "url" | "password"> {
  /** In PEM. */
  readonly ca: string | undefined;
}

/** All runs of a prefix are of one series. */
interface NewestRun extends PlaceInOrder {
  readonly runId: RunId;
  /** Another one each time that a run is set, so that whoever sets a run replaces the one that it has seen. */
  readonly set: string;
}

interface Progress {
  /** Files whose rows are all there. */
  readonly files: number;
  readonly isWhole: boolean;
  /** Whether all rows are there, although they may be being written again. */
  readonly isComplete: boolean;
  /** When `P:current` expires, in seconds since 1970. */
  readonly until: number;
  /** The servers that were given rows, as they name themselves since they were started. */
  readonly servers: string;
}

/** Rows last longer than `P:current`, by a difference of clocks that servers of a cluster may have. */
const spareSeconds = 60;

/** Opens Redis, for the rows of published runs. The client is loaded when it is used. */
export function openRedis({
  spec,
  job,
  place: server,
  hourParam,
  login,
  read,
  retry,
  signal,
  info,
}: RedisOptions): After {
  const { prefix = job, key, columns, ttl } = spec;
  const place = `Redis at ${server}`;
  const current = `${prefix}:current`;
  const newestKey = `${prefix}:{${current}}:newest`;
  const rowsNameOf = ({ runId }: Plan, planId: string): string =>
    `${runId}.${sha256Of(JSON.stringify([planId, key, columns])).slice(0, 8)}`;
  const progressOf = (rowsName: string): string => `${prefix}:{${current}}:${rowsName}`;

  const named = ({ contract, runId }: Plan): KeyedColumns => {
    const all = outputColumns(contract);
    const find = (at: "key" | "columns") => (name: string) => {
      const column = all.find((output) => output.name === name);
      const isNested = typeof column?.type === "object" && column.type.kind !== "decimal";
      if (column === undefined || (at === "key" && isNested)) {
        const found = column === undefined ? `the output has no column ${name}` : `${name} is a list or a struct`;
        throw new JobError("CONTRACT", `planning run ${runId}: publish.redis.${at}: ${found}`, {
          hint: `the output has ${all.map((output) => output.name).join(", ")}`,
        });
      }
      return column;
    };
    return { key: key.map(find("key")), columns: columns.map(find("columns")) };
  };

  /** Connects and does `work`, again where that fails in passing. `work` calls `advanced` when the next try has less to do. */
  const retried = async (
    doing: string,
    work: (servers: Servers, advanced: () => void) => Promise<unknown>,
  ): Promise<void> => {
    let isNew = false;
    const rules = {
      judge: (error: unknown) => ({ ...judge(doing, error), isNew }),
      code: "NETWORK",
      hint: "see that it answers",
    } as const;
    await tryAgain(doing, retry, rules, async () => {
      signal.throwIfAborted();
      isNew = false;
      using servers = await connect(await login(), current);
      await work(servers, () => {
        isNew = true;
      });
    });
  };

  const readNewest = async (
    servers: Servers,
    doing: string,
    { series }: Pick<NewestRun, "series">,
  ): Promise<{ readonly newest: NewestRun | undefined; readonly text: string }> => {
    const text = ((await servers.ask("GET", newestKey)) as string | null) ?? "";
    const newest = text === "" ? undefined : (JSON.parse(text) as NewestRun);
    if (newest !== undefined && newest.series !== series) {
      throw new JobError("USAGE", `${doing}: ${current} belongs to ${newest.series}, and this run to ${series}`, {
        hint: `give each a prefix of its own (publish.redis.prefix), or delete the key ${newestKey} if the other is no more`,
      });
    }
    return { newest, text };
  };

  /** Returns when `P:current` is to expire. */
  const writeRows = async (servers: Servers, run: RunSink, advanced: () => void): Promise<number> => {
    const { plan } = run;
    const rowsName = rowsNameOf(plan, run.planId);
    const progressKey = progressOf(rowsName);
    const now = Number(((await servers.ask("TIME")) as string[])[0]);
    const own = { servers: await servers.readIds() };
    const stored = JSON.parse(((await servers.ask("GET", progressKey)) as string | null) ?? "null") as Progress | null;
    const isKept = stored?.servers === own.servers;
    const isComplete = isKept && stored.isComplete;
    const goesOn = isKept && stored.until - now > ttl / 2;
    const progress = goesOn ? stored : { files: 0, isWhole: false, until: now + ttl };
    if (progress.isWhole) {
      return progress.until;
    }
    const save = async (files: number, isWhole: boolean): Promise<void> => {
      const { until } = progress;
      const stage = { ...own, until, files, isWhole, isComplete: isComplete || isWhole } satisfies Progress;
      const text = JSON.stringify(stage);
      await servers.ask("SET", progressKey, text, "EXAT", String(progress.until));
      advanced();
    };

    const expires = String(progress.until + spareSeconds);
    let [files, rows, unnamed] = [0, 0, 0];
    for await (const readFile of read(run, named(plan))) {
      files += 1;
      if (files <= progress.files) {
        continue; // an attempt before this one has written it
      }
      for await (const { keys, values } of readFile()) {
        signal.throwIfAborted();
        const commands = keys.flatMap((text, row) =>
          text === null ? [] : [["SET", `${prefix}:${rowsName}:${text}`, values[row] ?? "", "EXAT", expires]],
        );
        await servers.send(commands);
        rows += commands.length;
        unnamed += keys.length - commands.length;
      }
      await save(files, false);
    }
    if (unnamed > 0) {
      retry.warn(`publishing run ${plan.runId} to ${place}: ${unnamed} rows have no key, and cannot be looked up`);
    }
    if ((await servers.readIds()) !== own.servers) {
      throw new PassingError("a server was restarted, and may have lost rows");
    }
    await save(files, true);
    info(`wrote ${rows} rows of run ${plan.runId} to ${place}`);
    return progress.until;
  };

  return {
    place,
    check: (plan) => void named(plan),
    async rehearse(plan) {
      const doing = `checking ${place}`;
      await retried(doing, (servers) => readNewest(servers, doing, placeInOrder(plan, hourParam)));
    },
    async publish(run, isShown) {
      const { runId } = run.plan;
      const doing = `publishing run ${runId} to ${place}`;
      const own = { runId, ...placeInOrder(run.plan, hourParam) };
      await retried(doing, async (servers, advanced) => {
        const { newest, text } = await readNewest(servers, doing, own);
        if (!((await isShown()) ?? (newest === undefined || !isLaterRun(newest, own)))) {
          info(`run ${runId} is not the newest one, and does not go to ${place}`);
          return;
        }
        const until = await writeRows(servers, run, advanced);
        const next = JSON.stringify({ ...own, set: randomUUID() } satisfies NewestRun);
        const rowsName = rowsNameOf(run.plan, run.planId);
        if ((await servers.ask("EVAL", swap, "2", newestKey, current, text, next, rowsName, String(until))) === 0) {
          throw new PassingError("another run was published meanwhile");
        }
      });
    },
    async openKeyedRows({ plan, planId }, wanted) {
      const { contract, runId, model } = plan;
      const scored = scoredColumns(contract);
      const ofKey = key.map((name) => scored.find((column) => column.name === name));
      const own = new Set([...key, ...columns]);
      const isWhole = own.size === scored.length && scored.every(({ name }) => own.has(name));
      const isNamed = key.length === wanted.length && key.every((name) => wanted.includes(name));
      if (!isWhole || !isNamed || !ofKey.every((column) => column !== undefined && hasPlainText(column.type))) {
        info(`rows are not looked up in ${place}: publish.redis has another key, or other columns`);
        return undefined;
      }
      const stored = new Set(columns);
      const rowsName = rowsNameOf(plan, planId);
      const progressKey = progressOf(rowsName);
      const reader = await openReader(async () => await connect(await login(), current), place, retry);
      const first = await reader.get([progressKey]);
      if (first !== undefined && !hasAllRows(first[0])) {
        retry.warn(`${place} does not have the rows of run ${runId}: the command that has published it writes them`);
        await reader[Symbol.asyncDispose]();
        return undefined;
      }
      return {
        async lookUp(keys, rows) {
          const inOrder = key.map((name) => keys.find((column) => column.name === name) as NamedColumn);
          const names = Array.from({ length: rows }, (_, row) => `${prefix}:${rowsName}:${keyText(inOrder, row)}`);
          const [progress, ...values] = (await reader.get([progressKey, ...names])) ?? [];
          if (!hasAllRows(progress)) {
            return undefined;
          }
          return names.map((_, row) => {
            const value = values[row];
            const members = inOrder
              .filter(({ name }) => !stored.has(name))
              .map(({ name, type, column }) => `${JSON.stringify(name)}:${jsonOf(type, column, row)}`);
            return typeof value === "string"
              ? { members: [...members, value.slice(1, -1)].join(","), runId, model: model.sha256 }
              : undefined;
          });
        },
        [Symbol.asyncDispose]: () => reader[Symbol.asyncDispose](),
      };
    },
  };
}

/** Whether all rows are there, by the text of a `Progress`. */
function hasAllRows(text: string | null | undefined): boolean {
  return (JSON.parse(text ?? "null") as Progress | null)?.isComplete === true;
}

/** Whether DuckDB writes values of a type as `jsonOf` does. */
function hasPlainText(type: ColumnType): boolean {
  return typeof type === "string" && /^(u?int\d+|utf8|bool|date32|uuid)$/.test(type);
}

/** A key as `keyedFiles` writes it. */
function keyText(key: readonly NamedColumn[], row: number): string {
  const texts = key.map(({ type, column }) => {
    const json = jsonOf(type, column, row);
    return json.startsWith('"') ? (JSON.parse(json) as string) : json;
  });
  return texts.length === 1
    ? (texts[0] ?? "")
    : texts.map((text) => text.replaceAll("%", "%25").replaceAll(":", "%3A")).join(":");
}

/** Reads values for requests that wait. */
interface Reader extends AsyncDisposable {
  /** Never fails. undefined: there is no connection, or no answer in time. */
  get(keys: readonly string[]): Promise<readonly (string | null)[] | undefined>;
}

/** How long a request waits for values. */
const lookUpMs = 500;
/** How long the first connection is waited for. */
const firstOpenMs = 5000;
/** How long no other connection is opened after one that failed. */
const reconnectMs = 1000;
const warnedEachMs = 60_000;

/** Opens a connection, and another one after it was lost, which no request waits for. */
async function openReader(
  open: () => Promise<Servers>,
  place: string,
  { nowMs, warn }: Pick<RetryTools, "nowMs" | "warn">,
): Promise<Reader> {
  let servers: Servers | undefined;
  let [triedMs, warnedMs] = [Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY];
  const fail = (error: unknown): void => {
    servers?.[Symbol.dispose]();
    servers = undefined;
    if (nowMs() - warnedMs >= warnedEachMs) {
      warnedMs = nowMs();
      warn(`looking rows up in ${place}: ${foundIn(error)}; they are scored meanwhile`);
    }
  };
  const reopen = async (): Promise<void> => {
    triedMs = nowMs();
    try {
      servers = await open();
    } catch (error) {
      fail(error);
    }
  };
  let opening: Promise<void> | undefined;
  let isClosed = false;
  const openAgain = async (): Promise<void> => {
    opening = reopen().finally(() => {
      opening = undefined;
      if (isClosed) {
        servers?.[Symbol.dispose]();
      }
    });
    await opening;
  };
  await Promise.race([openAgain(), sleep(firstOpenMs, undefined, { ref: false })]);
  return {
    async get(keys) {
      const asked = servers;
      if (asked === undefined) {
        if (opening === undefined && nowMs() - triedMs >= reconnectMs) {
          void openAgain();
        }
        return undefined;
      }
      try {
        return await asked.get(keys);
      } catch (error) {
        if (servers === asked) {
          fail(error);
        }
        return undefined;
      }
    },
    [Symbol.asyncDispose]() {
      isClosed = true;
      servers?.[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}

/** Sets the current run, if the newest one is still the one that it was compared with. */
const swap = `if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'EXAT', ARGV[4])
return 1`;

/** What passes, and is no error of the client. */
class PassingError extends Error {}

type Command = string[];

interface Client {
  sendCommand(command: Command): Promise<unknown>;
  multi(): { addCommand(command: Command): unknown; execAsPipeline(): Promise<unknown> };
}

/** The servers that have the keys: one, or the masters of a cluster. */
interface Servers extends Disposable {
  /** Names them as long as none is restarted or replaced. */
  readIds(): Promise<string>;
  ask(...command: Command): Promise<unknown>;
  get(keys: readonly string[]): Promise<(string | null)[]>;
  /** Sends commands whose second words are keys, each server its own. @throws if one of them fails */
  send(commands: readonly Command[]): Promise<void>;
}

/** Connects to all masters of a cluster. Nothing is sent twice: who asks connects anew. */
async function connect({ url, password, ca }: RedisLogin, current: string): Promise<Servers> {
  if (!isRedisUrl(url)) {
    throw new JobError("SPEC_INVALID", "reading publish.redis.url: expected redis://… or rediss://…");
  }
  const { createClient } = await import("@redis/client");
  const place = new URL(url);
  place.password = password === undefined ? place.password : encodeURIComponent(password);
  const opened: { readonly isOpen: boolean; destroy(): void }[] = [];
  const open = async ({ href }: URL): Promise<Client> => {
    const socket = { connectTimeout: 10_000, reconnectStrategy: false, ...(ca === undefined ? {} : { ca }) } as const;
    const client = createClient({ url: href, RESP: 2, disableClientInfo: true, socket });
    client.on("error", () => undefined); // each call that fails says so
    opened.push(client);
    await answered(client.connect());
    return client;
  };
  const close = (): void => {
    for (const client of opened) {
      if (client.isOpen) {
        client.destroy();
      }
    }
  };

  try {
    const { clients, clientOf } = await clientsOf(await open(place), place, open);
    return {
      async readIds() {
        const infos = await answered(Promise.all(clients.map((client) => client.sendCommand(["INFO", "server"]))));
        return infos.map((info) => /run_id:(\w+)/.exec(String(info))?.[1] ?? "").join();
      },
      ask: async (...command) => await answered(clientOf(current).sendCommand(command)),
      async get(keys) {
        const values = keys.map(async (name) => await clientOf(name).sendCommand(["GET", name]));
        return (await answered(Promise.all(values), lookUpMs)) as (string | null)[];
      },
      async send(commands) {
        const pipelines = new Map(clients.map((client) => [client, client.multi()]));
        for (const command of commands) {
          pipelines.get(clientOf(command[1] ?? ""))?.addCommand(command);
        }
        await answered(Promise.all([...pipelines.values()].map((pipeline) => pipeline.execAsPipeline())));
      },
      [Symbol.dispose]: close,
    };
  } catch (error) {
    close();
    throw error;
  }
}

type SlotRange = readonly [first: number, last: number, master: readonly [host: string | null, port: number]];

async function clientsOf(
  first: Client,
  place: URL,
  open: (place: URL) => Promise<Client>,
): Promise<{ readonly clients: readonly Client[]; readonly clientOf: (key: string) => Client }> {
  const facts = await answered(first.sendCommand(["INFO", "cluster"]));
  if (!String(facts).includes("cluster_enabled:1")) {
    return { clients: [first], clientOf: () => first };
  }
  const slots = await answered(first.sendCommand(["CLUSTER", "SLOTS"]));
  const masters = new Map<string, Client>();
  const bySlot: Client[] = [];
  for (const [from, to, [host, port]] of slots as readonly SlotRange[]) {
    const at = new URL(place);
    at.hostname = host === null || host === "" ? place.hostname : host.includes(":") ? `[${host}]` : host;
    at.port = String(port);
    const client = masters.get(at.host) ?? (await open(at));
    masters.set(at.host, client);
    bySlot.length = Math.max(bySlot.length, to + 1);
    bySlot.fill(client, from, to + 1);
  }
  const clients = [...masters].toSorted(([left], [right]) => (left < right ? -1 : 1)).map(([, client]) => client);
  return {
    clients,
    clientOf(key) {
      const client = bySlot[slotOf(key)];
      if (client === undefined) {
        throw new PassingError("no server of the cluster has some of the keys");
      }
      return client;
    },
  };
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

class CallError extends Error {}

/** A server that is silent for so long does not answer any more. */
const silenceMs = 60_000;

async function answered<T>(call: Promise<T>, mostMs = silenceMs): Promise<T> {
  try {
    return await within(call, mostMs, () => new Error(`no answer for ${mostMs / 1000} s`));
  } catch (error) {
    throw new CallError("a call of the client failed", { cause: error });
  }
}

/** What no later call mends: by the reply of a server, or the code of a system error. */
const permanent: readonly (readonly [(reply: string, errno: string) => boolean, ErrorCode, hint: string])[] = [
  [
    (reply) => /^(WRONGPASS|NOAUTH|NOPERM)|^ERR (AUTH|invalid password)/.test(reply),
    "PERMISSION",
    "correct the user and the password of publish.redis, or what the server lets that user do",
  ],
  [
    (_, errno) => isCertificateError(errno) || isTlsProtocolError(errno),
    "USAGE",
    "name the authorities of the server's certificate in publish.redis.ca",
  ],
  [
    (reply) => /^ERR (unknown command|syntax error|DB index)/.test(reply),
    "USAGE",
    "publish.redis takes Redis 6.2 or later, or Valkey",
  ],
];

function causeOf({ cause }: CallError): unknown {
  return (cause as { errors?: readonly Error[] }).errors?.[0] ?? cause;
}

function foundIn(error: unknown): string {
  return hideCredentials(messageOf(error instanceof CallError ? causeOf(error) : error) || "no answer");
}

function judge(doing: string, error: unknown): RetryVerdict {
  if (error instanceof PassingError) {
    return { kind: "again", found: error.message };
  }
  if (!(error instanceof CallError)) {
    return { kind: "end", error };
  }
  const cause = causeOf(error);
  const found = foundIn(error);
  const [, code, hint] = permanent.find(([isIt]) => isIt(found, errnoOf(cause) ?? "")) ?? [];
  return code === undefined || hint === undefined
    ? { kind: "again", found }
    : { kind: "end", error: new JobError(code, `${doing}: ${found}`, { hint, cause }) };
}

interface PlaceInOrder {
  /** Runs are compared by the first text that differs. */
  readonly order: readonly string[];
  /** Job and params, without dates. */
  readonly series: string;
}

/** Dates order the runs of a series, then the hour, then their numbers. @param hourParam undefined: no param is an hour */
function placeInOrder(plan: Plan, hourParam: string | undefined): PlaceInOrder {
  const params = Object.entries(plan.params).toSorted(([left], [right]) => (left < right ? -1 : 1));
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

function isLaterRun({ order }: PlaceInOrder, than: PlaceInOrder): boolean {
  const at = order.findIndex((text, index) => text !== than.order[index]);
  return at >= 0 && (order[at] ?? "") > (than.order[at] ?? "");
}
