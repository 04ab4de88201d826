import { createHash, createHmac, pbkdf2Sync, randomBytes, timingSafeEqual } from "node:crypto";
import { connect as connectPlain, isIP, type Socket } from "node:net";
import { addAbortSignal } from "node:stream";
import { connect as connectTls } from "node:tls";
import { JobError } from "../../base/errors.js";
import { BrokerAnswer, RequestBody } from "./wire.js";

export interface KafkaLogin {
  readonly mechanism: "plain" | "scram-sha-256" | "scram-sha-512" | "oauthbearer";
  readonly username: string;
  /** The password, or the token; asked for with each connection. */
  readonly secret: () => Promise<string>;
}

export interface ConnectionOptions {
  readonly host: string;
  readonly port: number;
  /** PEM texts; undefined: the connection is not encrypted. */
  readonly tls: KafkaTls | undefined;
  readonly login: KafkaLogin | undefined;
  /** How long a broker may be silent; `slowest` times that, an answer may take as a whole. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

export interface KafkaTls {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** A request by its number, and a version of it that all brokers from Kafka 2.8 on have. */
export interface Request {
  readonly api: number;
  readonly version: number;
  /** Whether the version is a flexible one, whose headers have tags. */
  readonly isFlexible?: boolean;
}

/** An open connection to a broker. Requests may overlap; their answers come in order. */
export interface Connection {
  readonly isOpen: boolean;
  call(request: Request, body: Buffer): Promise<BrokerAnswer>;
  close(): void;
}

/** A broker that sends a byte now and then is not silent, and must not hold up a run. */
const slowest = 4;
/** The number of its request, with which each answer begins. */
const headBytes = 4;
/** Larger answers are not asked for. */
const mostAnswerBytes = 256 * 1024 * 1024;

/** Connects, and logs in. @throws system errors; JobError PERMISSION when the login is refused */
export async function openConnection(options: ConnectionOptions): Promise<Connection> {
  const socket = await connectSocket(options);
  const connection = connectionOver(socket, slowest * options.timeoutMs);
  try {
    if (options.login !== undefined) {
      await logIn(connection, options.login, `${options.host}:${options.port}`);
    }
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

async function connectSocket({ host, port, tls, timeoutMs, signal }: ConnectionOptions): Promise<Socket> {
  const servername = isIP(host) === 0 ? host : undefined;
  const socket =
    tls === undefined
      ? connectPlain({ host, port, noDelay: true })
      : connectTls({ host, port, ...(servername === undefined ? {} : { servername }), ...withoutGaps(tls) });
  addAbortSignal(signal, socket);
  const opening = new Promise<Socket>((resolve, reject) => {
    // While it is open, too: one that is not used for so long is opened anew.
    socket.setTimeout(timeoutMs, () => socket.destroy(timedOut()));
    socket.once(tls === undefined ? "connect" : "secureConnect", () => {
      socket.removeListener("error", reject);
      resolve(socket);
    });
    socket.once("error", reject);
    socket.once("close", () => {
      reject(lost());
    });
  });
  return await inTime(socket, slowest * timeoutMs, opening);
}

async function inTime<T>(socket: Socket, limitMs: number, awaited: Promise<T>): Promise<T> {
  const timer = setTimeout(() => socket.destroy(timedOut()), limitMs);
  try {
    return await awaited;
  } finally {
    clearTimeout(timer);
  }
}

function withoutGaps({ ca, cert, key }: KafkaTls): { ca?: string; cert?: string; key?: string } {
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
}

function timedOut(): Error {
  return Object.assign(new Error("the broker does not answer"), { code: "ETIMEDOUT" });
}

function lost(): Error {
  return Object.assign(new Error("the broker has closed the connection"), { code: "ECONNRESET" });
}

function notKafka(): RangeError {
  return new RangeError("the broker sends what was not asked for: is it Kafka?");
}

interface Waiting {
  readonly resolve: (answer: BrokerAnswer) => void;
  readonly reject: (error: Error) => void;
}

function connectionOver(socket: Socket, limitMs: number): Connection {
  const waiting: Waiting[] = [];
  let correlation = 0;
  let [chunks, held]: [Buffer[], number] = [[], 0];
  let ended: Error | undefined;

  const end = (error: Error): void => {
    ended ??= error;
    socket.destroy();
    for (const { reject } of waiting.splice(0)) {
      reject(ended);
    }
  };
  const joined = (): Buffer => {
    const all = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
    chunks = [all];
    return all;
  };
  const take = (): void => {
    while (held >= wanted) {
      const all = joined();
      const length = all.readInt32BE();
      if (length < headBytes || length > mostAnswerBytes || waiting.length === 0) {
        end(notKafka());
        return;
      }
      wanted = 4 + length;
      if (held >= wanted) {
        waiting.shift()?.resolve(new BrokerAnswer(all.subarray(4, wanted)));
        chunks = [all.subarray(wanted)];
        held -= wanted;
        wanted = 4;
      }
    }
  };
  let wanted = 4;
  socket.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    held += chunk.length;
    take();
  });
  socket.on("error", end);
  socket.on("close", () => {
    end(lost());
  });
  return {
    get isOpen() {
      return ended === undefined;
    },
    async call({ api, version, isFlexible = false }, body) {
      correlation += 1;
      const asked = correlation;
      const header = new RequestBody().int16(api).int16(version).int32(asked).text("infer-batch");
      const message = (isFlexible ? header.int8(0) : header).raw(body).done();
      const answering = new Promise<BrokerAnswer>((resolve, reject) => {
        if (ended !== undefined) {
          reject(ended);
          return;
        }
        waiting.push({ resolve, reject });
        socket.write(new RequestBody().bytes(message).done());
      });
      const answer = await inTime(socket, limitMs, answering);
      if (answer.int32() !== asked) {
        end(notKafka());
        throw notKafka();
      }
      if (isFlexible) {
        answer.tags();
      }
      return answer;
    },
    close() {
      end(lost());
    },
  };
}

const handshake: Request = { api: 17, version: 1 };
const authenticate: Request = { api: 36, version: 0 };

async function logIn(connection: Connection, login: KafkaLogin, broker: string): Promise<void> {
  const { mechanism } = login;
  const name = mechanism.toUpperCase();
  const answer = await connection.call(handshake, new RequestBody().text(name).done());
  if (answer.int16() !== 0) {
    const offered = answer.array(() => answer.text()).join(", ");
    throw new JobError("PERMISSION", `logging in to Kafka at ${broker}: it does not take ${name}, but ${offered}`, {
      hint: "correct input.kafka.sasl.mechanism",
    });
  }
  const step = async (message: string): Promise<string> => {
    const found = await connection.call(authenticate, new RequestBody().bytes(Buffer.from(message)).done());
    const [code, said, bytes] = [found.int16(), found.text(), found.bytes()];
    if (code !== 0) {
      throw refused(broker, name, said);
    }
    return bytes.toString();
  };
  const secret = await login.secret();
  if (mechanism === "plain") {
    await step(`\0${login.username}\0${secret}`);
  } else if (mechanism === "oauthbearer") {
    const error = await step(`n,,\u0001auth=Bearer ${secret}\u0001\u0001`);
    if (error !== "") {
      throw refused(broker, name, error);
    }
  } else {
    await logInByScram(step, { ...login, secret, hash: mechanism === "scram-sha-256" ? "sha256" : "sha512" }, () =>
      refused(broker, name, "the broker does not know the password itself"),
    );
  }
}

function refused(broker: string, name: string, said: string): JobError {
  return new JobError("PERMISSION", `logging in to Kafka at ${broker} with ${name}: refused: ${said.slice(0, 200)}`, {
    hint: "correct input.kafka.sasl, or grant the user access",
  });
}

/** Fewer would tell whoever poses as a broker much of the password. */
const leastRounds = 4096;

/** RFC 5802. */
async function logInByScram(
  step: (message: string) => Promise<string>,
  { username, secret, hash }: { readonly username: string; readonly secret: string; readonly hash: string },
  wrong: () => Error,
): Promise<void> {
  const nonce = randomBytes(18).toString("base64");
  const first = `n=${username.replaceAll("=", "=3D").replaceAll(",", "=2C")},r=${nonce}`;
  const challenge = await step(`n,,${first}`);
  const [, joint = "", salt = "", rounds = "0"] = /^r=([^,]+),s=([^,]+),i=(\d{1,7})/.exec(challenge) ?? [];
  if (!joint.startsWith(nonce) || Number(rounds) < leastRounds) {
    throw wrong();
  }
  const length = hash === "sha256" ? 32 : 64;
  const salted = pbkdf2Sync(secret, Buffer.from(salt, "base64"), Number(rounds), length, hash);
  const hmac = (key: Buffer, text: string): Buffer => createHmac(hash, key).update(text).digest();
  const clientKey = hmac(salted, "Client Key");
  const last = `c=biws,r=${joint}`;
  const signed = `${first},${challenge},${last}`;
  const signature = hmac(createHash(hash).update(clientKey).digest(), signed);
  const proof = Buffer.from(clientKey.map((byte, index) => byte ^ (signature[index] ?? 0))).toString("base64");
  const final = await step(`${last},p=${proof}`);
  const [, found = ""] = /^v=(.+)$/.exec(final) ?? [];
  const due = hmac(hmac(salted, "Server Key"), signed);
  const server = Buffer.from(found, "base64");
  if (server.length !== due.length || !timingSafeEqual(server, due)) {
    throw wrong();
  }
}
