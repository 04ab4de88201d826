import { errnoOf, isCertificateError, isTlsProtocolError, JobError, messageOf } from "../../base/errors.js";
import { ifOpened } from "../../base/promises.js";
import { connectionErrors, type RetryTools, type RetryVerdict, tryAgain } from "../../base/retry.js";
import { type Connection, type KafkaLogin, type KafkaTls, openConnection, type Request } from "./connection.js";
import { type BrokerAnswer, RequestBody } from "./wire.js";

export interface ClusterOptions {
  /** `host:port` each, some of the cluster's. */
  readonly brokers: readonly string[];
  readonly topic: string;
  readonly tls: KafkaTls | undefined;
  readonly login: KafkaLogin | undefined;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
}

export interface TopicFacts {
  /** A topic that is made anew under its name has another one. */
  readonly id: string;
  /** By their numbers, ascending. */
  readonly partitions: ReadonlyMap<number, { readonly leader: number; readonly epoch: number }>;
}

/** An offset, and the epoch of the leader that has told it: after another election it may be that of other records. */
export interface LeaderOffset {
  readonly offset: number;
  readonly epoch: number;
}

/** What a broker has from an offset on. */
export interface FetchedRecords {
  /** The first offset that the partition still has. */
  readonly logStart: number;
  /** Transactions that were aborted, each by its producer and its first offset. */
  readonly aborted: readonly { readonly producer: bigint; readonly first: number }[];
  /** Record batches; the last one may be cut off. undefined: the partition has no such offset. */
  readonly records: Buffer | undefined;
}

/** One topic of a cluster. What fails for a while, such as a broker that is gone or a leader that moves, is tried again. */
export interface Cluster extends Disposable {
  topic(): Promise<TopicFacts>;
  /** The first offset of each partition, or the one after the last that is stable. */
  offsets(at: "earliest" | "stable", topic: TopicFacts): Promise<ReadonlyMap<number, LeaderOffset>>;
  /** Where an epoch of a partition's leader has ended: the end of the log while it lasts; -1: it is not known. */
  endOfEpoch(partition: number, epoch: number): Promise<number>;
  fetch(partition: number, offset: number, mostBytes: number): Promise<FetchedRecords>;
  /** Stores offsets by partition as those of a consumer group. */
  commit(group: string, offsets: ReadonlyMap<number, LeaderOffset>): Promise<void>;
}

const requests = {
  fetch: { api: 1, version: 10 },
  offsets: { api: 2, version: 4 },
  metadata: { api: 3, version: 10, isFlexible: true },
  commit: { api: 8, version: 7 },
  coordinator: { api: 10, version: 2 },
  epochs: { api: 23, version: 3 },
} as const satisfies Record<string, Request>;

/** Error codes: https://kafka.apache.org/protocol#protocol_error_codes */
const codes = { outOfRange: 1, noTopic: 3, notAuthorized: 29 } as const;
const transient: Readonly<Record<number, string>> = {
  3: "the broker does not have the partition",
  5: "the partition has no leader",
  6: "the leader of the partition has moved",
  7: "the request timed out",
  8: "the broker is not available",
  9: "the replica is not available",
  13: "the broker was disconnected",
  14: "the group's coordinator is starting",
  15: "the group has no coordinator yet",
  16: "the group's coordinator has moved",
  56: "the broker's disk fails",
  74: "the leader of the partition has changed",
  75: "the broker does not know of the new leader yet",
  78: "the new leader does not know the stable offset yet",
  89: "the broker holds this client to a quota, or has no records at hand",
};

class BrokerError extends Error {
  readonly code: number;
  constructor(code: number) {
    super(transient[code] ?? `error ${code} of Kafka's protocol`);
    this.code = code;
  }
}

const timeoutMs = 30_000;
/** A broker that has nothing yet answers after this time. */
const waitMs = 500;
const anyEpoch = -1;
const readCommitted = 1;

/** Opens nothing yet. */
export function openCluster({ brokers, topic: name, tls, login, retry, signal }: ClusterOptions): Cluster {
  const connections = new Map<string, Promise<Connection>>();
  let known: (TopicFacts & { readonly addresses: ReadonlyMap<number, string> }) | undefined;
  const doing = `reading topic ${name}`;

  const connected = async (address: string): Promise<Connection> => {
    const before = connections.get(address);
    const connection = await ifOpened(before);
    if (connection?.isOpen === true) {
      return connection;
    }
    if ((connections.get(address) ?? before) === before) {
      const { host, port } = hostAndPort(address);
      connections.set(address, openConnection({ host, port, tls, login, timeoutMs, signal }));
    }
    return await (connections.get(address) as Promise<Connection>);
  };

  const judge = (error: unknown): RetryVerdict => {
    if (signal.aborted) {
      return { kind: "end", error: signal.reason };
    }
    if (error instanceof BrokerError) {
      known = undefined; // ask again who leads
      return error.code === codes.notAuthorized
        ? { kind: "end", error: notAuthorized(doing) }
        : transient[error.code] === undefined
          ? { kind: "end", error: new JobError("NETWORK", `${doing}: ${error.message}`) }
          : { kind: "again", found: error.message };
    }
    const errno = errnoOf(error);
    if (errno !== undefined && connectionErrors.has(errno)) {
      known = undefined;
      return { kind: "again", found: `${messageOf(error) || errno} (${errno})` };
    }
    return { kind: "end", error: error instanceof JobError ? error : unexpected(doing, error) };
  };
  const trying = async <T>(work: () => Promise<T>): Promise<T> =>
    await tryAgain(doing, retry, { judge, code: "NETWORK", hint: unreachable }, work);

  /** Asks one of the brokers that can be reached, the last that answered first. */
  const askAny = async <T>(ask: (connection: Connection) => Promise<T>): Promise<T> => {
    let last: unknown;
    for (const address of new Set([...connections.keys(), ...brokers])) {
      try {
        return await ask(await connected(address));
      } catch (error) {
        connections.delete(address);
        if (error instanceof JobError || error instanceof BrokerError) {
          throw error;
        }
        last = error;
      }
    }
    throw last;
  };

  const readTopic = async (): Promise<NonNullable<typeof known>> => {
    const body = new RequestBody().raw(Buffer.from([2])).raw(Buffer.alloc(16)); // an array of one, without an id
    const text = Buffer.from(name);
    // Neither is the topic made if it is missing, nor are rights listed.
    const asked = body.raw(compactLength(text.length)).raw(text).raw(Buffer.alloc(5)).done();
    const found = await askAny((connection) => connection.call(requests.metadata, asked));
    known = topicIn(found, name, doing);
    return known;
  };
  const facts = async (): Promise<NonNullable<typeof known>> => known ?? (await readTopic());
  const onLeader = async (partition: number): Promise<Connection> => {
    const { partitions, addresses } = await facts();
    const address = addresses.get(partitions.get(partition)?.leader ?? -1);
    if (address === undefined) {
      throw new BrokerError(5);
    }
    return await connected(address);
  };

  return {
    topic: () => trying(readTopic),
    async offsets(at, { partitions }) {
      const asked = [...partitions].map(async ([partition, { epoch }]): Promise<[number, LeaderOffset]> => {
        const told = await trying(async () => {
          const body = new RequestBody().int32(-1).int8(readCommitted);
          body.array([name], (topic) =>
            body.text(topic).array([partition], (number) =>
              body
                .int32(number)
                .int32(anyEpoch)
                .int64(at === "earliest" ? -2 : -1),
            ),
          );
          const answer = await (await onLeader(partition)).call(requests.offsets, body.done());
          answer.int32();
          return onlyPartition(answer, () => {
            answer.int32();
            refuse(answer.int16());
            answer.int64();
            return { offset: answer.int64(), epoch: Math.max(epoch, answer.int32()) };
          });
        });
        return [partition, told];
      });
      return new Map(await Promise.all(asked));
    },
    endOfEpoch: (partition, epoch) =>
      trying(async () => {
        const body = new RequestBody().int32(-1);
        body.array([name], (topic) =>
          body.text(topic).array([partition], (number) => body.int32(number).int32(anyEpoch).int32(epoch)),
        );
        const answer = await (await onLeader(partition)).call(requests.epochs, body.done());
        answer.int32();
        return onlyPartition(answer, () => {
          refuse(answer.int16());
          answer.int32();
          answer.int32();
          return answer.int64();
        });
      }),
    fetch: (partition, offset, mostBytes) =>
      trying(async () => {
        const body = new RequestBody().int32(-1).int32(waitMs).int32(1).int32(mostBytes).int8(readCommitted);
        body.int32(0).int32(-1);
        body.array([name], (topic) =>
          body
            .text(topic)
            .array([partition], (number) =>
              body.int32(number).int32(anyEpoch).int64(offset).int64(-1).int32(mostBytes),
            ),
        );
        const answer = await (await onLeader(partition)).call(requests.fetch, body.int32(0).done());
        answer.int32();
        refuse(answer.int16());
        answer.int32();
        return onlyPartition(answer, () => {
          answer.int32();
          const code = answer.int16();
          if (code !== codes.outOfRange) {
            refuse(code);
          }
          answer.int64();
          const [lastStable, logStart] = [answer.int64(), answer.int64()];
          const aborted = answer.array(() => ({ producer: answer.id64(), first: answer.int64() }));
          const records = answer.bytes();
          if (code === 0 && records.length === 0) {
            // Offsets that were stable once are so again when a new leader knows; it is no proof that there is no record.
            throw new BrokerError(lastStable <= offset ? 78 : 89);
          }
          return { logStart, aborted, records: code === codes.outOfRange ? undefined : records };
        });
      }),
    commit: (group, offsets) =>
      trying(async () => {
        const asked = new RequestBody().text(group).int8(0).done();
        const coordinator = await askAny((connection) => connection.call(requests.coordinator, asked));
        coordinator.int32();
        refuse(coordinator.int16());
        coordinator.text();
        coordinator.int32();
        const [host, port] = [coordinator.text(), coordinator.int32()];
        const body = new RequestBody().text(group).int32(-1).text("").int16(-1); // of no member
        body.array([name], (topic) =>
          body
            .text(topic)
            .array([...offsets], ([partition, { offset, epoch }]) =>
              body.int32(partition).int64(offset).int32(epoch).int16(-1),
            ),
        );
        const answer = await (await connected(`${host}:${port}`)).call(requests.commit, body.done());
        answer.int32();
        answer.array(() => {
          answer.text();
          answer.array(() => {
            answer.int32();
            refuse(answer.int16());
          });
        });
      }),
    [Symbol.dispose]() {
      for (const opening of connections.values()) {
        void ifOpened(opening).then((connection) => connection?.close());
      }
    },
  };
}

const unreachable = "see whether the brokers of input.kafka.brokers can be reached from here, and run again";

function notAuthorized(doing: string): JobError {
  return new JobError("PERMISSION", `${doing}: the user of input.kafka.sasl may not read it`, {
    hint: "grant Read and Describe on the topic",
  });
}

function unexpected(doing: string, error: unknown): JobError {
  const errno = errnoOf(error) ?? "";
  if (isCertificateError(errno) || isTlsProtocolError(errno)) {
    return new JobError("PERMISSION", `${doing}: no encrypted connection: ${messageOf(error)}`, {
      hint: "input.kafka.tls.ca names the authority's certificate; leave input.kafka.tls out where brokers do not encrypt",
      cause: error,
    });
  }
  return new JobError("NETWORK", `${doing}: ${messageOf(error)}`, { hint: unreachable, cause: error });
}

function refuse(code: number): void {
  if (code !== 0) {
    throw new BrokerError(code);
  }
}

function onlyPartition<T>(answer: BrokerAnswer, read: () => T): T {
  const [topic = []] = answer.array(() => {
    answer.text();
    return answer.array(read);
  });
  if (topic.length !== 1) {
    // None: a quota is used up.
    throw topic.length === 0
      ? new BrokerError(89)
      : new RangeError(`the broker answers for ${topic.length} partitions, asked for one`);
  }
  return topic[0] as T;
}

function compactLength(length: number): Buffer {
  const bytes: number[] = [];
  let rest = length + 1;
  for (; rest >= 128; rest = Math.floor(rest / 128)) {
    bytes.push((rest & 127) | 128);
  }
  return Buffer.from([...bytes, rest]);
}

function topicIn(
  answer: BrokerAnswer,
  name: string,
  doing: string,
): TopicFacts & { readonly addresses: ReadonlyMap<number, string> } {
  answer.int32();
  const brokers = answer.compactArray((): [number, string] => {
    const [node, host, port] = [answer.int32(), answer.compactText(), answer.int32()];
    answer.compactText();
    answer.tags();
    return [node, `${host}:${port}`];
  });
  answer.compactText();
  answer.int32();
  const [topic] = answer.compactArray(() => {
    const code = answer.int16();
    answer.compactText();
    const id = answer.uuid();
    answer.int8();
    const partitions = answer.compactArray((): [number, { leader: number; epoch: number }] => {
      answer.int16();
      const [partition, leader, epoch] = [answer.int32(), answer.int32(), answer.int32()];
      for (let list = 0; list < 3; list += 1) {
        answer.compactArray(() => answer.int32());
      }
      answer.tags();
      return [partition, { leader, epoch }];
    });
    answer.int32();
    answer.tags();
    return { code, id, partitions };
  });
  if (topic === undefined || topic.code === codes.noTopic) {
    throw new JobError("FILE_MISSING", `${doing}: the cluster has no topic ${name}`, {
      hint: "correct input.kafka.topic, or create the topic",
    });
  }
  refuse(topic.code);
  const partitions = new Map(topic.partitions.toSorted(([left], [right]) => left - right));
  return { id: topic.id, partitions, addresses: new Map(brokers) };
}

/** `host:port`, `[::1]:port`. */
function hostAndPort(address: string): { readonly host: string; readonly port: number } {
  const [, host = address, port = "9092"] = /^(.*?)(?::(\d+))?$/.exec(address) ?? [];
  return { host: host.replaceAll(/[[\]]/g, ""), port: Number(port) };
}
